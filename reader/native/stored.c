/* What stores hold, on its way to pixels: differences of rows, and the rows of a JPEG that a box needs. */
#include <stdint.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
enum { DONE = 0, BAD_SIZES = 1 };
enum { BAND = 16, NONE = 128 }; /* rows; a number that vec_pick makes 0 */

typedef struct {
    const uint8_t *stored; /* G, R - G, B - G, or one plane; the lowest bytes of all values, then all of the next */
    uint8_t *out;          /* (height, width, planes) values of the box, C order */
    int64_t size;          /* bytes stored */
    int64_t rows, values;  /* of a plane */
    int64_t box[4];        /* y, x, height, width: rows and values of a plane */
    int32_t planes, itemsize;
    int32_t lanes; /* 0: plain C only */
} Differences;

#if defined(__x86_64__) || defined(__aarch64__)
#if defined(__x86_64__)
#include "lanes_x86.h"
#else
#include "lanes_arm.h"
#endif
/* 32 values at a time of the row `from`, added to the row above (NULL: to nothing). Returns how many are done. */
LANES static int64_t lanes_undo(const Differences *d, const uint8_t *from, const uint8_t *above, uint8_t *out) {
    int64_t plane = d->rows * d->values, width = d->box[3];
    uint8_t which[3][3][16]; /* bytes of 16 values that make 48 of pixels: of plane c in vector v */
    for (int n = 0; n < 48 * (d->planes == 3); n++)
        for (int c = 0; c < 3; c++) which[c][n / 16][n % 16] = n % 3 == c ? (uint8_t)(n / 3) : NONE;
    for (int64_t i = 0; i < width; i += 32) {
        if (i + 32 > width && (width < 32 || above == out)) return i; /* no sum twice */
        if (i + 32 > width) i = width - 32;
        Vec first = vec_load(from + i);
        if (d->planes == 1) {
            vec_store(out + i, above ? vec_add8(first, vec_load(above + i)) : first);
            continue;
        }
        Vec red = vec_add8(first, vec_load(from + plane + i)), blue = vec_add8(first, vec_load(from + 2 * plane + i));
        for (int64_t v = 0, at = 3 * i; v < 3; v++, at += 16) {
            Vec made = vec_or(vec_pick(red, vec_load_two(which[0][v], which[0][v])),
                              vec_or(vec_pick(first, vec_load_two(which[1][v], which[1][v])),
                                     vec_pick(blue, vec_load_two(which[2][v], which[2][v]))));
            if (above) made = vec_add8(made, vec_load_two(above + at, above + at + 48));
            vec_store_two(out + at, out + at + 48, made);
        }
    }
    return width;
}
#else
static int lanes_work(void) { return 0; }
static int64_t lanes_undo(const Differences *d, const uint8_t *from, const uint8_t *above, uint8_t *out) { return 0; }
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
    int64_t count = d->size / (item * planes);
    if (count * item * planes != d->size || count / d->rows != d->values || count % d->rows) return 0;
    if (box[2] < 1 || box[2] > d->rows || box[3] < 1 || box[3] > d->values) return 0;
    return box[0] >= 0 && box[0] <= d->rows - box[2] && box[1] >= 0 && box[1] <= d->values - box[3];
}

/* Any thread, without Python's lock, on little-endian machines. Each row of the result is made of the one above it;
 * rows of the band above the box are added up in the first. Returns DONE or BAD_SIZES (nothing was written). */
PUBLIC int32_t rawpack_undo(const Differences *d) {
    if (!d || !is_sound(d)) return BAD_SIZES;
    int64_t y = d->box[0], pitch = d->box[3] * d->planes * d->itemsize;
    int vectors = d->lanes && d->itemsize == 1 && lanes_work();
    for (int64_t row = y - y % BAND; row < y + d->box[2]; row++) {
        const uint8_t *from = d->stored + row * d->values + d->box[1];
        uint8_t *out = d->out + (row > y ? row - y : 0) * pitch;
        const uint8_t *above = row % BAND == 0 ? NULL : row > y ? out - pitch : out;
        int64_t begin = vectors ? lanes_undo(d, from, above, out) : 0;
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

typedef struct {
    const uint8_t *data;       /* a JPEG file in which a restart marker ends each row of blocks */
    uint8_t *out;              /* room for `size` bytes */
    int32_t size, scan;        /* bytes of the file; where its entropy-coded data begins */
    int32_t height_at, height; /* where the height is, and that of the result, in pixels */
    int32_t rows, first, end;  /* of blocks in the file; those of the result */
} Cut;

/* A JPEG of some rows of blocks. Returns its size; 0 if the file has other markers than that of each row, in order, up
 * to row `end`, or does not end with its end marker; -1 if numbers do not fit. */
PUBLIC int32_t rawpack_cut(const Cut *cut) {
    if (!cut || !cut->data || !cut->out || cut->scan < 4 || cut->size < cut->scan || cut->height_at < 0) return -1;
    if (cut->height_at > cut->scan - 2 || cut->height < 1 || cut->height > 65535) return -1;
    if (cut->first < 0 || cut->end <= cut->first || cut->rows < cut->end) return -1;
    const uint8_t *at = cut->data + cut->scan, *stop = cut->data + cut->size, *begin = at;
    if (stop[-2] != 0xFF || stop[-1] != 0xD9) return 0;
    memcpy(cut->out, cut->data, (size_t)cut->scan);
    cut->out[cut->height_at] = (uint8_t)(cut->height >> 8), cut->out[cut->height_at + 1] = (uint8_t)cut->height;
    uint8_t *to = cut->out + cut->scan;
    for (int32_t row = 0; row < cut->end;) {
        const uint8_t *found = memchr(at, 0xFF, (size_t)(stop - at));
        if (!found || stop - found < 2) return 0;
        at = found + 1;
        if (*at == 0x00 || *at == 0xFF) continue; /* a stuffed byte, a fill byte */
        int last = row == cut->rows - 1;
        if (*at++ != (last ? 0xD9 : 0xD0 + row % 8) || (last && at != stop)) return 0;
        if (row >= cut->first) {
            memcpy(to, begin, (size_t)(at - begin));
            to += at - begin;
            to[-1] = row == cut->end - 1 ? 0xD9 : (uint8_t)(0xD0 + (row - cut->first) % 8);
        }
        begin = at, row++;
    }
    return (int32_t)(to - cut->out);
}
