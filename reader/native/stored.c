/* What stores hold, on its way to pixels: differences of rows, and the rows of blocks of a JPEG. */
#include "core.h"

enum { BAND = 16 }; /* rows */
enum { OTHER_MARKERS = 3 };

typedef struct {
    const uint8_t *stored; /* G, R - G, B - G, or one plane; the lowest bytes of all values, then all of the next */
    uint8_t *out;          /* (height, width, planes) values of the box, C order */
    int64_t size;          /* bytes stored */
    int64_t rows, values;  /* of a plane */
    int64_t box[4];        /* y, x, height, width: rows and values of a plane */
    int32_t planes, itemsize;
    int32_t lanes; /* 0: plain C only */
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

/* The values from `begin` on. Inline: item and planes are constants. */
static inline void plain_undo(const Differences *d, const uint8_t *from, int64_t begin, const uint8_t *above,
                              uint8_t *out, int64_t item, int64_t planes) {
    int64_t plane = d->rows * d->values;
    for (int64_t i = begin; i < d->box[3]; i++) {
        uint64_t value[3] = {0};
        for (int64_t p = 0; p < planes; p++)
            for (int64_t k = 0; k < item; k++) value[p] |= (uint64_t)from[(k * planes + p) * plane + i] << (8 * k);
        if (planes == 3) {
            uint64_t green = value[0];
            value[0] = green + value[1], value[1] = green, value[2] += green;
        }
        for (int64_t p = 0, at = i * planes * item; p < planes; p++, at += item) {
            uint64_t up = 0;
            if (above) memcpy(&up, above + at, (size_t)item);
            value[p] += up;
            memcpy(out + at, &value[p], (size_t)item);
        }
    }
}

static int is_sound(const Differences *d) {
    const int64_t *box = d->box, item = d->itemsize, planes = d->planes;
    if (!d->stored || !d->out || d->size < 1 || d->rows < 1 || d->values < 1) return 0;
    if (!(item == 1 || item == 2 || (planes == 1 && (item == 4 || item == 8))) || !(planes == 1 || planes == 3))
        return 0;
    if (d->size / item / planes / d->rows != d->values || d->rows * d->values * planes * item != d->size) return 0;
    return is_within(box[2], 1, d->rows) && is_within(box[0], 0, d->rows - box[2]) && is_within(box[3], 1, d->values) &&
           is_within(box[1], 0, d->values - box[3]);
}

/* Any thread, without Python's lock, on little-endian machines. Each row of the result is made of the one above it;
 * rows of the band above the box are added up in the first. Returns DONE or BAD_SIZES (nothing was written). */
PUBLIC int32_t rawpack_undo(const Differences *d) {
    if (!d || !is_sound(d)) return BAD_SIZES;
    int64_t y = d->box[0], pitch = d->box[3] * d->planes * d->itemsize;
    for (int64_t row = y - y % BAND; row < y + d->box[2]; row++) {
        const uint8_t *from = d->stored + row * d->values + d->box[1];
        uint8_t *out = d->out + (row > y ? row - y : 0) * pitch;
        const uint8_t *above = row % BAND == 0 ? NULL : row > y ? out - pitch : out;
        int64_t begin = 0;
#ifdef LANES
        if (d->lanes && d->itemsize == 1 && lanes_work()) begin = lanes_undo(d, from, above, out);
#endif
        int32_t kind = 10 * d->planes + d->itemsize;
        if (kind == 11) plain_undo(d, from, begin, above, out, 1, 1);
        if (kind == 12) plain_undo(d, from, begin, above, out, 2, 1);
        if (kind == 14) plain_undo(d, from, begin, above, out, 4, 1);
        if (kind == 18) plain_undo(d, from, begin, above, out, 8, 1);
        if (kind == 31) plain_undo(d, from, begin, above, out, 1, 3);
        if (kind == 32) plain_undo(d, from, begin, above, out, 2, 3);
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
