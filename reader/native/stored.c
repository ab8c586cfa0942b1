/* What stores hold, on its way to pixels: differences of rows, and the rows of blocks of a JPEG. */
#include "core.h"

enum { BAND = 16 }; /* rows */
enum { OTHER_MARKERS = 3 };

typedef struct {
    const uint8_t *stored; /* planes of bytes: G, R - G, B - G, or one */
    uint8_t *out;          /* (height, width, planes) bytes of the box, C order */
    int64_t size;          /* bytes stored */
    int64_t rows, values;  /* of a plane */
    int64_t box[4];        /* y, x, height, width */
    int32_t planes, lanes; /* lanes: 0: plain C only */
} Differences;

#ifdef LANES
/* 32 values at a time of the row `from`, added to the row above (NULL: to nothing). Returns how many are done. */
LANES static int64_t lanes_undo(const Differences *d, const uint8_t *from, const uint8_t *above, uint8_t *out) {
    int64_t plane = d->rows * d->values, width = d->box[3], parts = d->planes;
    for (int64_t i = 0; i < width; i += 32) {
        if (i + 32 > width && (width < 32 || above == out)) return i; /* no sum twice */
        if (i + 32 > width) i = width - 32;
        Vec rgb[3] = {vec_load(from + i)};
        if (parts == 3) {
            const uint8_t *red = from + plane + i, *blue = red + plane;
            rgb[1] = rgb[0], rgb[0] = vec_add8(rgb[1], vec_load(red)), rgb[2] = vec_add8(rgb[1], vec_load(blue));
        }
        for (int64_t v = 0, at = parts * i; v < parts; v++, at += 16) {
            Vec made = parts == 3 ? vec_join(rgb, (int)v) : rgb[0];
            if (above) made = vec_add8(made, vec_load_two(above + at, above + at + 16 * parts));
            vec_store_two(out + at, out + at + 16 * parts, made);
        }
    }
    return width;
}
#endif

/* The values from `begin` on. */
static void plain_undo(const Differences *d, const uint8_t *from, int64_t begin, const uint8_t *above, uint8_t *out) {
    int64_t plane = d->rows * d->values, planes = d->planes;
    for (int64_t i = begin; i < d->box[3]; i++)
        for (int64_t c = 0, at = planes * i; c < planes; c++, at++) {
            int32_t value = from[i] + (above ? above[at] : 0);
            if (planes == 3 && c != 1) value += from[i + (c ? 2 : 1) * plane];
            out[at] = (uint8_t)value;
        }
}

/* Any thread, without Python's lock. Each row of the result is made of the one above it; rows of the band above the box
 * are added up in the first. Returns DONE or BAD_SIZES (nothing was written). */
PUBLIC int32_t rawpack_undo(const Differences *d) {
    if (!d || !d->stored || !d->out || d->rows < 1 || d->values < 1 || !(d->planes == 1 || d->planes == 3))
        return BAD_SIZES;
    if (d->size / d->planes / d->rows != d->values || d->rows * d->values * d->planes != d->size) return BAD_SIZES;
    for (int axis = 0; axis < 2; axis++) {
        int64_t side = axis ? d->values : d->rows, length = d->box[2 + axis];
        if (!is_within(length, 1, side) || !is_within(d->box[axis], 0, side - length)) return BAD_SIZES;
    }
    int64_t y = d->box[0], pitch = d->box[3] * d->planes;
    for (int64_t row = y - y % BAND; row < y + d->box[2]; row++) {
        const uint8_t *from = d->stored + row * d->values + d->box[1];
        uint8_t *out = d->out + (row > y ? row - y : 0) * pitch;
        const uint8_t *above = row % BAND == 0 ? NULL : row > y ? out - pitch : out;
        int64_t begin = 0;
#ifdef LANES
        if (d->lanes && lanes_work()) begin = lanes_undo(d, from, above, out);
#endif
        plain_undo(d, from, begin, above, out);
    }
    return DONE;
}

/* Where each of the first `end` rows of blocks ends in a JPEG of `rows` with data from `scan` on: at its restart
 * marker, the last of all at the end marker. Returns DONE, OTHER_MARKERS where there are not exactly these, in order,
 * or the file does not end with its end marker; BAD_SIZES. */
PUBLIC int32_t rawpack_row_ends(const uint8_t *data, int64_t size, int64_t scan, int64_t rows, int64_t end,
                                int64_t *ends) {
    if (!data || !ends || scan < 0 || scan > size || end < 1 || end > rows) return BAD_SIZES;
    const uint8_t *at = data + scan, *stop = data + size;
    if (stop - at < 2 || stop[-2] != 0xFF || stop[-1] != 0xD9) return OTHER_MARKERS;
    for (int64_t row = 0; row < end;) {
        const uint8_t *marker = memchr(at, 0xFF, (size_t)(stop - at));
        if (!marker || stop - marker < 2) return OTHER_MARKERS;
        at = marker + 1;
        if (*at == 0x00 || *at == 0xFF) continue; /* a stuffed byte, a fill byte */
        int last = row == rows - 1;
        if (*at++ != (last ? 0xD9 : 0xD0 + row % 8) || (last && at != stop)) return OTHER_MARKERS;
        ends[row++] = marker - data;
    }
    return DONE;
}
