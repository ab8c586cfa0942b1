/* Crops, resizes, flips and converts a batch of images of bytes. docs/explanation/native.md has the definition, in
 * whole numbers only, so that AVX2, NEON, plain C and the NumPy form (rawpack/pixels/resample.py) give the same bits.
 *
 * 32 bits hold the sums of weights times pixels: the weights W add up to 2^p and at most 1/2 for each of 65,536 taps,
 * so that sums are below 255 * (2^22 + 2^15) + 2^21 < 2^31, and no term is negative. p is at least 14, as no W is above
 * 2^p, and W is below 2^15. */
#include "color.h"
#include "core.h"

enum { VERSION = 3 };
enum { LONGEST_SOURCE = 65536, LONGEST_RESULT = 16384, LEAST_BITS = 14, MOST_BITS = 22 };
enum { FLIP_X = 1, FLIP_Y = 2 };

typedef struct {           /* one image and what is made of it */
    const uint8_t *pixels; /* of the image's first row */
    const uint8_t *end;    /* the first byte that must not be read: the end of the mapping */
    int64_t stride;        /* bytes from row to row, of Y if these are planes */
    int32_t height, width;
    int32_t box[4];    /* y, x, height, width: the part that is used, within the image */
    int32_t scaled[2]; /* height, width that this part is resized to */
    int32_t at[2];     /* y, x of the result's first pixel in the resized part; outside of it is `fill` */
    int32_t flips;     /* FLIP_X | FLIP_Y, of the result */
    int32_t planes;    /* 1: Y, Cg, Co of YCgCo 4:2:0 without gaps, which become RGB; 0: pixels */
} Image;
typedef struct {
    uint8_t *out;        /* (n, height, width, channels) or, planar, (n, channels, height, width), C order */
    const void *tables;  /* (channels, 256) values of `itemsize` bytes; NULL: bytes as they are, itemsize 1 */
    const double *lines; /* (channels, 2), a scale and a shift that give the floats of `tables`; NULL: there are none */
    int32_t height, width, channels, itemsize;
    int32_t planar, antialias, fill;
    int32_t lanes; /* 0: plain C only */
} Result;

typedef struct { /* grows, and is used again for the next image */
    void *bytes;
    size_t size;
} Buffer;
typedef struct {            /* what the table of an axis follows from */
    int32_t in, out;        /* pixels of the box, pixels that it is resized to */
    int32_t from, count;    /* the window of these that is computed */
    int32_t left;           /* of the result beside the window, filled (before flips) */
    int32_t triangle, flip; /* flip: positions in the table count from the window's end */
} Span;
typedef struct {
    Span span;
    int32_t count, taps, pitch, bits; /* positions; the most taps of one; weights from position to position; p */
    int32_t *first, *used;            /* by position: first pixel, number of taps */
    int16_t *weights;
    Buffer table;
} Axis;
typedef struct { /* of the vector kernels along x; laid out by their `prepare` */
    Buffer offsets, weights;
    int32_t blends, vectors;
    int32_t reach; /* bytes of a source row that may be read */
} Lanes;
static void *room(Buffer *buffer, size_t bytes) {
    if (buffer->bytes && bytes <= buffer->size) return buffer->bytes;
    free(buffer->bytes);
    buffer->size = (bytes + bytes / 4 + 127) / 64 * 64; /* some more, as the next image is as likely larger */
    buffer->bytes = bytes < SIZE_MAX / 2 ? aligned_alloc(64, buffer->size) : NULL;
    return buffer->bytes; /* NULL ends the call */
}

/* ---- tables of an axis */
static int64_t divided(uint64_t a, uint64_t b) { /* the second division is much faster on many machines */
    return (a | b) >> 32 ? (int64_t)(a / b) : (int64_t)((uint32_t)a / (uint32_t)b);
}
static int32_t rounded_weight(int64_t part, int64_t whole, int32_t bits) {
    return (int32_t)divided(((uint64_t)part << (bits + 1)) + (uint64_t)whole, 2 * (uint64_t)whole);
}
/* The largest p, at most `bits`, for which this weight is below 2^15. */
static int32_t bits_for(int32_t bits, int64_t part, int64_t whole) {
    while ((part << (bits + 1)) + whole >= whole << 16) bits--;
    return bits;
}

typedef struct { /* the pixels that one of the result is made of: less, the farther their centers are apart */
    int32_t first, end;
    int64_t sum, most; /* of the parts */
} Window;
/* In 1 / (2 * out) of a pixel. Two taps are a triangle that reaches one pixel. */
static int64_t reach_of(const Span *span) { return 2 * (int64_t)(span->triangle ? span->in : span->out); }
static int64_t part_of(const Span *span, int32_t i, int32_t j) {
    int64_t away = (2 * (int64_t)j + 1) * span->out - (2 * (int64_t)i + 1) * span->in;
    int64_t part = reach_of(span) - (away < 0 ? -away : away);
    return part > 0 ? part : 0;
}
static Window window_of(const Span *span, int32_t i) {
    int64_t unit = 2 * (int64_t)span->out, reach = reach_of(span);
    int64_t from = (2 * (int64_t)i + 1) * span->in + span->out - reach;
    int64_t first = from > 0 ? divided((uint64_t)from, (uint64_t)unit) : 0;
    int64_t end = span->triangle ? divided((uint64_t)(from + 2 * reach), (uint64_t)unit) : first + 2 - (from < 0);
    Window window = {(int32_t)first, (int32_t)(end < span->in ? end : span->in), 0, 0};
    for (int32_t j = window.first; j < window.end; j++) {
        int64_t part = part_of(span, i, j);
        window.sum += part;
        if (part > window.most) window.most = part;
    }
    return window;
}
static void fill_axis(Axis *axis) {
    const Span *span = &axis->span;
    const int32_t rest = !span->triangle; /* 1: the first of two weights is the rest */
    axis->bits = MOST_BITS;
    for (int32_t i = 0; i < span->out && axis->bits > LEAST_BITS; i++) {
        Window window = window_of(span, i);
        axis->bits = bits_for(axis->bits, window.most, window.sum);
    }
    for (int32_t i = 0; i < span->count; i++) {
        int32_t position = span->flip ? span->count - 1 - i : i, scaled = span->from + i;
        Window window = window_of(span, scaled);
        int16_t *weights = axis->weights + (size_t)position * (size_t)axis->pitch, *next = weights + rest;
        for (int32_t j = window.first + rest; j < window.end; j++)
            *next++ = (int16_t)rounded_weight(part_of(span, scaled, j), window.sum, axis->bits);
        if ((window.end - window.first) % 2) *next = 0; /* taps are read by twos */
        if (rest) weights[0] = (int16_t)((1 << axis->bits) - weights[1]);
        if (!weights[0] && rest) /* the vectors' far weight, in 2^-15, has 16 bits */
            window.first++, weights[0] = weights[1], weights[1] = 0;
        axis->first[position] = window.first;
        axis->used[position] = window.end - window.first;
    }
}

static int is_copied(const Axis *axis) { return axis->span.in == axis->span.out; }
static int is_whole(const Axis *axis) { return is_copied(axis) && axis->count == axis->span.in && !axis->span.flip; }
static int prepare_axis(Axis *axis, const Span *span) {
    size_t count = (size_t)span->count;
    int64_t most = span->triangle ? 2 * (int64_t)span->in / span->out + 1 : 2;
    axis->span = *span;
    axis->count = span->count;
    axis->taps = (int32_t)(span->triangle && most > span->in ? span->in : most);
    axis->pitch = (axis->taps + 1) / 2 * 2;
    if (is_copied(axis)) return DONE;
    axis->first = room(&axis->table, count * (2 * sizeof(int32_t) + (size_t)axis->pitch * sizeof(int16_t)));
    if (!axis->first) return NO_MEMORY;
    axis->used = axis->first + count;
    axis->weights = (int16_t *)(axis->used + count);
    fill_axis(axis);
    return DONE;
}
static Span span_of(const Image *image, const Result *result, int axis) {
    int32_t in = image->box[2 + axis], out = image->scaled[axis], size = axis ? result->width : result->height;
    int64_t at = image->at[axis], from = at > 0 ? at : 0, end = at + size < out ? at + size : out;
    Span span = {.in = in, .out = out, .triangle = in > out && result->antialias};
    if (from < end) span.from = (int32_t)from, span.count = (int32_t)(end - from), span.left = (int32_t)(from - at);
    span.flip = axis == 1 && (image->flips & FLIP_X);
    return span;
}

/* ---- inner loops in plain C */
static uint8_t clipped(int32_t value) { return value < 0 ? 0 : value > 255 ? 255 : (uint8_t)value; }

static int plain_prepare(Axis *x, int32_t channels, Lanes *lanes) {
    lanes->reach = x->span.in * channels;
    return 1;
}
static void plain_row(const Axis *x, const Lanes *lanes, int32_t channels, const uint8_t *src, uint8_t *dst) {
    const int32_t count = x->count, pitch = x->pitch, bits = x->bits, *first = x->first, *used = x->used;
    const int16_t *weights = x->weights;
    (void)lanes;
    for (int32_t i = 0; i < count; i++, weights += pitch) {
        const uint8_t *pixel = src + first[i] * channels;
        const int32_t end = used[i] * channels;
        for (int32_t c = 0; c < channels; c++) {
            int32_t sum = 1 << (bits - 1), tap = 0;
            for (int32_t k = c; k < end; k += channels) sum += weights[tap++] * pixel[k];
            *dst++ = clipped(sum >> bits);
        }
    }
}
static void plain_column(const Axis *y, int32_t i, const uint8_t *const *rows, int32_t bytes, uint8_t *dst) {
    const int16_t *weights = y->weights + (size_t)i * (size_t)y->pitch;
    const int32_t used = y->used[i], bits = y->bits, half = 1 << (bits - 1), near = weights[0], far = weights[1];
    const uint8_t *restrict first = rows[0], *restrict second = rows[1];
    for (int32_t b = 0; b < bytes; b++) {
        int32_t sum = half + near * first[b] + far * second[b]; /* `used` is 2 or more */
        for (int32_t k = 2; k < used; k++) sum += weights[k] * rows[k][b];
        dst[b] = clipped(sum >> bits);
    }
}
static void plain_split(const uint8_t *row, int32_t width, uint8_t *const planes[3]) {
    for (int32_t i = 0; i < width; i++)
        for (int32_t c = 0; c < 3; c++) planes[c][i] = row[3 * i + c];
}
static void plain_reverse(const uint8_t *src, int32_t width, int32_t channels, uint8_t *dst) {
    for (const uint8_t *pixel = src + width * channels; pixel > src;) {
        pixel -= channels;
        for (int32_t c = 0; c < channels; c++) *dst++ = pixel[c];
    }
}
/* A value of chroma becomes two along each axis, each by the neighbor on its side. No byte overflows, and it makes no
 * difference whether bytes count from 0 or from -128. */
static uint8_t enlarged(int32_t near, int32_t far) { return (uint8_t)(near - near / 4 + far / 4); }
/* Along x. The row has a value more on each side; vectors write up to 62 bytes too many. */
static void plain_widen(const uint8_t *src, int32_t count, uint8_t *dst) {
    for (int32_t i = 0; i < 2 * count; i++) dst[i] = enlarged(src[i / 2], src[i / 2 + (i % 2 ? 1 : -1)]);
}
/* chroma: wide rows of Cg, the nearer and the farther one, then those of Co */
static void plain_rgb(const uint8_t *luma, const uint8_t *const chroma[4], int32_t width, uint8_t *dst) {
    for (int32_t i = 0; i < width; i++, dst += 3) {
        int32_t green = enlarged(chroma[0][i], chroma[1][i]) - 128, orange = enlarged(chroma[2][i], chroma[3][i]) - 128;
        int32_t mean = clipped(luma[i] - green); /* of red and blue */
        dst[0] = clipped(mean + orange), dst[1] = clipped(luma[i] + green), dst[2] = clipped(mean - orange);
    }
}
static void plain_line(const uint8_t *bytes, int32_t count, const double *line, float *floats) {
    for (int32_t i = 0; i < count; i++) floats[i] = (float)(bytes[i] * line[0] + line[1]);
}

#ifdef LANES
#include "lanes.h"
#define KERNEL(name) (job->vectors ? lanes_##name : plain_##name)
#else
#define KERNEL(name) plain_##name
#endif

/* ---- one image */
typedef struct {
    int vectors; /* whether they are used */
    Axis x, y;
    Lanes lanes;
    const Image *image;
    const Result *result;
    uint8_t *out;         /* of this image */
    const uint8_t *first; /* of the box; its Y if these are planes */
    Buffer ring;          /* rows that were resized along x, row y of the box in place y % ringed */
    Buffer rows;          /* pointers to those that a row of the result is made from */
    Buffer edge, row, planes, chroma, plain;
    size_t pitch;         /* bytes from row to row of the ring */
    int32_t ringed, next; /* rows of the ring; the row of the box that comes next */
    int32_t bytes;        /* of a row of the window */
    int32_t wide[2];      /* the rows of chroma that are enlarged along x: the last even one and the last odd one */
    size_t wide_pitch;    /* bytes of each, of Cg or of Co */
} Job;

/* Row `row` of Cg, enlarged along x; that of Co is a pitch behind it. */
static const uint8_t *wide_chroma(Job *job, int32_t row) {
    int64_t height = job->image->height, width = job->image->width, rows = (height + 1) / 2, count = (width + 1) / 2;
    const uint8_t *src = job->image->pixels + height * width + row * count;
    uint8_t *all = job->chroma.bytes, *wide = all + (size_t)(row % 2 * 2 + 1) * job->wide_pitch, *copy = all + 1;
    for (size_t plane = 0; plane < 2 && job->wide[row % 2] != row; plane++, src += rows * count) {
        memcpy(copy, src, (size_t)count);
        copy[-1] = copy[0], copy[count] = copy[count - 1];
        KERNEL(widen)(copy, (int32_t)count, wide + plane * job->wide_pitch);
    }
    job->wide[row % 2] = row;
    return wide;
}
/* RGB of row y of a box of planes, and nothing beside it. */
static const uint8_t *make_rgb(Job *job, int32_t y, uint8_t *dst) {
    const int32_t *box = job->image->box, whole = box[0] + y, near = whole / 2, last = (job->image->height - 1) / 2;
    const int32_t far = whole % 2 ? near + (near < last) : near - (near > 0);
    const uint8_t *first = wide_chroma(job, near) + box[1], *second = wide_chroma(job, far) + box[1];
    const uint8_t *const chroma[4] = {first, second, first + job->wide_pitch, second + job->wide_pitch};
    KERNEL(rgb)(job->first + y * job->image->stride, chroma, box[3], dst);
    return dst;
}

static int prepare(Job *job) {
    Axis *x = &job->x, *y = &job->y;
    const Result *result = job->result;
    Span along[2] = {span_of(job->image, result, 0), span_of(job->image, result, 1)};
    int32_t channels = result->channels;
    if (!along[0].count || !along[1].count) along[0].count = along[1].count = 0; /* nothing but `fill` */
    if (memcmp(&y->span, &along[0], sizeof *along) && prepare_axis(y, &along[0])) return NO_MEMORY;
    if (memcmp(&x->span, &along[1], sizeof *along)) {
        if (prepare_axis(x, &along[1])) return NO_MEMORY;
        if (x->count && !is_copied(x) && KERNEL(prepare)(x, channels, &job->lanes) < 0) return NO_MEMORY;
    }
    if (is_copied(x)) job->lanes.reach = 0;
    job->bytes = x->count * channels;
    job->pitch = ((size_t)job->bytes + 127) / 64 * 64; /* vectors are stored whole, up to 63 bytes too many */
    job->ringed = is_copied(y) ? 1 : y->taps;
    job->next = 0;
    job->wide[0] = job->wide[1] = -1;
    job->wide_pitch = ((size_t)job->image->width + 191) / 64 * 64; /* of an even width, and 63 bytes */
    size_t row = (size_t)x->span.in * (size_t)channels, reach = (size_t)job->lanes.reach;
    size_t line = (size_t)result->width * (size_t)channels;
    int made = room(&job->ring, (size_t)job->ringed * job->pitch) && room(&job->edge, row > reach ? row : reach) &&
               room(&job->rows, ((size_t)job->ringed + 1) * sizeof(uint8_t *)) && room(&job->row, line) &&
               room(&job->planes, line) && (!job->image->planes || room(&job->chroma, 5 * job->wide_pitch));
    return made ? DONE : NO_MEMORY;
}

/* Row y of the box, resized along x: the window of it. A copy writes nothing beside it. */
static void make_row(Job *job, int32_t y, uint8_t *dst) {
    const Axis *x = &job->x;
    const uint8_t *src = job->first + (int64_t)y * job->image->stride;
    int32_t channels = job->result->channels;
    if (job->image->planes) src = make_rgb(job, y, is_whole(x) ? dst : job->edge.bytes);
    if (src == dst) return;
    if (is_copied(x)) {
        src += (size_t)x->span.from * (size_t)channels;
        if (x->span.flip)
            KERNEL(reverse)(src, x->count, channels, dst);
        else
            memcpy(dst, src, (size_t)job->bytes);
        return;
    }
    if (!job->image->planes && job->lanes.reach > job->image->end - src)
        src = memcpy(job->edge.bytes, src, (size_t)x->span.in * (size_t)channels);
    KERNEL(row)(x, &job->lanes, channels, src, dst);
}

/* Row i of the window into dst. Called for ascending i. */
static void make_window_row(Job *job, int32_t i, uint8_t *dst) {
    const Axis *y = &job->y;
    if (is_copied(y) && is_copied(&job->x)) {
        make_row(job, y->span.from + i, dst);
        return;
    }
    int32_t first = is_copied(y) ? y->span.from + i : y->first[i], used = is_copied(y) ? 1 : y->used[i];
    uint8_t *ring = job->ring.bytes;
    const uint8_t **rows = job->rows.bytes;
    if (job->next < first) job->next = first;
    for (; job->next < first + used; job->next++)
        make_row(job, job->next, ring + (size_t)(job->next % job->ringed) * job->pitch);
    for (int32_t k = 0; k < used; k++) rows[k] = ring + (size_t)((first + k) % job->ringed) * job->pitch;
    rows[used] = rows[used - 1]; /* taps are read by twos */
    if (used == 1)
        memcpy(dst, rows[0], (size_t)job->bytes);
    else
        KERNEL(column)(y, i, rows, job->bytes, dst);
}

/* The values of a table for every `step`-th byte, `apart` bytes from each other. Inline: `item` is a constant. */
static inline void look_up(const uint8_t *bytes, int32_t count, int32_t step, const uint8_t *table, size_t item,
                           uint8_t *out, size_t apart) {
#pragma GCC unroll 8
    for (int32_t i = 0; i < count; i++, bytes += step, out += apart) memcpy(out, table + *bytes * item, item);
}

/* A finished row of bytes becomes row y of the result. */
static void put_row(Job *job, const uint8_t *row, int32_t y) {
    const Result *result = job->result;
    int32_t width = result->width, channels = result->channels;
    size_t item = (size_t)result->itemsize, line = (size_t)width * item, plane = (size_t)result->height * line;
    size_t apart = result->planar ? item : item * (size_t)channels;
    uint8_t *to[3], *first = job->out + (size_t)y * (size_t)width * apart;
    for (int32_t c = 0; c < channels; c++) to[c] = first + (size_t)c * (result->planar ? plane : item);
    if (!result->tables) KERNEL(split)(row, width, to);
    if (result->lines && result->planar) { /* computing is faster than looking up */
        uint8_t *bytes = job->planes.bytes, *planes[3] = {bytes, bytes + width, bytes + 2 * (size_t)width};
        if (channels == 3) KERNEL(split)(row, width, planes);
        for (int32_t c = 0; c < channels; c++)
            KERNEL(line)(channels == 3 ? planes[c] : row, width, result->lines + 2 * c, (float *)to[c]);
        return;
    }
    for (int32_t c = 0; result->tables && c < channels; c++) {
        const uint8_t *table = (const uint8_t *)result->tables + (size_t)c * 256 * item;
        if (item == 1) look_up(row + c, width, channels, table, 1, to[c], apart);
        if (item == 2) look_up(row + c, width, channels, table, 2, to[c], apart);
        if (item == 4) look_up(row + c, width, channels, table, 4, to[c], apart);
    }
}

static void make_image(Job *job) {
    const Result *result = job->result;
    const Span *x = &job->x.span, *y = &job->y.span;
    int32_t channels = result->channels, direct = !result->tables && !(result->planar && channels > 1);
    size_t bytes = (size_t)result->width * (size_t)channels;
    size_t left = (size_t)(x->flip ? result->width - x->count - x->left : x->left) * (size_t)channels;
    int stored = !direct && is_copied(&job->x) && is_copied(&job->y) && !x->flip && x->count == result->width &&
                 !job->image->planes;              /* rows are, before tables, those of the image */
    for (int32_t k = 0; k < result->height; k++) { /* in the order of the box's rows */
        int32_t to = job->image->flips & FLIP_Y ? result->height - 1 - k : k, i = k - y->left;
        uint8_t *row = direct ? job->out + (size_t)to * bytes : job->row.bytes;
        const uint8_t *made = row;
        if (i < 0 || i >= y->count) {
            memset(row, result->fill, bytes);
        } else if (stored) {
            made = job->first + (y->from + i) * job->image->stride + (int64_t)x->from * channels;
        } else {
            memset(row, result->fill, left);
            make_window_row(job, i, row + left);
            memset(row + left + job->bytes, result->fill, bytes - left - (size_t)job->bytes);
        }
        if (!direct) put_row(job, made, to);
    }
}

/* ---- a batch */
static int is_sound_result(const Result *result) {
    int32_t item = result->itemsize;
    return result->out && is_within(result->height, 1, LONGEST_RESULT) && is_within(result->width, 1, LONGEST_RESULT) &&
           (result->channels == 1 || result->channels == 3) && (item == 1 || item == 2 || item == 4) &&
           (result->tables || item == 1) && (!result->lines || item == 4) && is_within(result->fill, 0, 255);
}
static int is_sound_image(const Image *image, int32_t channels) {
    const int32_t *box = image->box;
    if (!is_within(image->height, 1, LONGEST_SOURCE) || !is_within(image->width, 1, LONGEST_SOURCE)) return 0;
    if (!image->pixels || (uintptr_t)image->end < (uintptr_t)image->pixels || image->stride < 0) return 0;
    uint64_t readable = (uint64_t)((uintptr_t)image->end - (uintptr_t)image->pixels);
    uint64_t row = (uint64_t)image->width * (uint64_t)channels, others = (uint64_t)image->height - 1;
    if (image->planes) {
        uint64_t chroma = 2 * (others / 2 + 1) * (((uint64_t)image->width + 1) / 2);
        if (image->planes != 1 || channels != 3 || image->stride != image->width || chroma > readable) return 0;
        row = (uint64_t)image->width, readable -= chroma;
    }
    if (row > readable || readable > INT64_MAX) return 0;
    if (others && (uint64_t)image->stride > (readable - row) / others) return 0;
    for (int axis = 0; axis < 2; axis++) {
        int32_t side = axis ? image->width : image->height;
        if (!is_within(box[2 + axis], 1, side) || !is_within(box[axis], 0, side - box[2 + axis])) return 0;
        if (!is_within(image->scaled[axis], 1, LONGEST_SOURCE)) return 0;
    }
    return is_within(image->flips, 0, FLIP_X | FLIP_Y);
}
static void discard(Job *job) {
    Buffer *buffers[] = {&job->x.table, &job->y.table, &job->lanes.offsets, &job->lanes.weights, &job->ring, &job->rows,
                         &job->edge,    &job->row,     &job->planes,        &job->chroma,        &job->plain};
    for (size_t i = 0; i < sizeof buffers / sizeof *buffers; i++) free(buffers[i]->bytes);
}

PUBLIC int32_t rawpack_version(void) { return VERSION; }
/* What this machine would use: 0 plain C, 1 AVX2, 2 NEON. */
PUBLIC int32_t rawpack_lanes(void) { return lanes_work() ? LANES_NUMBER : 0; }

/* With changes of color between the flips and the tables: `count` of each image, in their order. Any thread, without
 * Python's lock. Returns DONE, BAD_SIZES or TOO_STRONG (nothing was written), or NO_MEMORY. */
PUBLIC int32_t rawpack_resample_recolored(int64_t n, const Image *images, const Result *result, int32_t count,
                                          const Change *changes) {
    if (n < 0 || !result || (n && !images) || !is_sound_result(result)) return BAD_SIZES;
    for (int64_t i = 0; i < n; i++)
        if (!is_sound_image(&images[i], result->channels)) return BAD_SIZES;
    int32_t code = check_changes(n, count, changes);
    if (code != DONE) return code;
    int64_t pixels = (int64_t)result->height * result->width, line = (int64_t)result->width * result->channels;
    size_t values = (size_t)pixels * (size_t)result->channels, bytes = values * (size_t)result->itemsize;
    /* Colors are changed in pixels of bytes, which may be the result. */
    int apart = count && (result->tables || (result->planar && result->channels > 1));
    Result plain = *result;
    if (apart) plain.tables = NULL, plain.lines = NULL, plain.planar = 0, plain.itemsize = 1;
    Job job = {.vectors = result->lanes && lanes_work()};
    if (apart && !room(&job.plain, values)) code = NO_MEMORY;
    for (int64_t i = 0; i < n && code == DONE; i++) {
        const Image *image = job.image = &images[i];
        job.first = image->pixels + image->box[0] * image->stride;
        job.first += (int64_t)image->box[1] * (image->planes ? 1 : result->channels);
        uint8_t *out = result->out + (size_t)i * bytes, *made = apart ? job.plain.bytes : out;
        job.out = made, job.result = &plain;
        code = prepare(&job);
        if (code != DONE) break;
        make_image(&job);
        if (count) recolor(made, pixels, result->channels, count, changes + i * count, job.vectors);
        job.out = out, job.result = result;
        for (int32_t y = 0; apart && y < result->height; y++) put_row(&job, made + y * line, y);
    }
    discard(&job);
    return code;
}
PUBLIC int32_t rawpack_resample(int64_t n, const Image *images, const Result *result) {
    return rawpack_resample_recolored(n, images, result, 0, NULL);
}
