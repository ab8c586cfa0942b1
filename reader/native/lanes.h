/* The inner loops in vectors, once for AVX2 and NEON: the same results as the plain ones of resample.c, bit for bit. */

typedef struct {               /* 16 bytes of the result along x, by two taps */
    uint8_t near[32], far[32]; /* which bytes of the window the two pixels are */
    int16_t share[16];         /* of the far one, in 2^-15 */
} Blend;

/* Bytes to words: twice 8 taps of gray; twice 2 taps of 3 channels, in turn, for vec_dot16. */
static const uint8_t SPREAD[2][2][16] = {
    {{0, N, 1, N, 2, N, 3, N, 4, N, 5, N, 6, N, 7, N}, {8, N, 9, N, 10, N, 11, N, 12, N, 13, N, 14, N, 15, N}},
    {{0, N, 3, N, 1, N, 4, N, 2, N, 5, N, N, N, N, N}, {6, N, 9, N, 7, N, 10, N, 8, N, 11, N, N, N, N, N}}};
static const uint8_t SQUEEZE[2][16] = {/* four pixels without the fourth byte that each has beside 3 channels */
                                       {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15},
                                       {0, 1, 2, 4, 5, 6, 8, 9, 10, 12, 13, 14, N, N, N, N}};
/* 16 gray pixels reversed; a byte that the next store covers, then 5 pixels of 3 channels reversed. */
static const uint8_t REVERSE[2][16] = {{15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0},
                                       {N, 12, 13, 14, 9, 10, 11, 6, 7, 8, 3, 4, 5, 0, 1, 2}};

/* Along x by two taps: for each 8 bytes of the result one window of 16 bytes. 0 where a window is too narrow. */
static int prepare_blends(Axis *x, int32_t channels, Lanes *lanes) {
    int32_t groups = (x->count * channels + 31) / 32 * 4, position = 0, channel = 0;
    int32_t *offsets = room(&lanes->offsets, (size_t)groups * sizeof *offsets);
    Blend *blends = room(&lanes->weights, (size_t)(groups / 2) * sizeof *blends);
    if (!offsets || !blends) return -1;
    lanes->reach = 0;
    for (int32_t g = 0; g < groups; g++) {
        /* vec_pack16 takes turns: first groups of both lanes, then second ones */
        Blend *blend = blends + g / 4 * 2 + g % 2;
        int32_t lane = g / 2 % 2, at[8], least = INT32_MAX, most = 0;
        for (int32_t k = 0; k < 8; k++) {
            at[k] = x->first[position] * channels + channel;
            blend->share[8 * lane + k] = (int16_t)(x->weights[2 * position + 1] << (15 - x->bits));
            if (at[k] < least) least = at[k];
            if (at[k] > most) most = at[k];
            if (++channel == channels) channel = 0, position += position < x->count - 1;
        }
        if (most - least + channels > 15) return 0;
        for (int32_t k = 0; k < 8; k++) {
            uint8_t *near = blend->near + 16 * lane + 2 * k, *far = blend->far + 16 * lane + 2 * k;
            near[0] = (uint8_t)(at[k] - least), near[1] = N;
            far[0] = (uint8_t)(at[k] - least + channels), far[1] = N;
        }
        offsets[g] = least;
        if (least + 16 > lanes->reach) lanes->reach = least + 16;
    }
    return 1;
}
/* near * (1 - share) + far * share, rounded once */
LANES static inline Vec blended(const uint8_t *low, const uint8_t *high, const Blend *blend) {
    Vec window = vec_load_two(low, high);
    Vec near = vec_pick(window, vec_load(blend->near)), far = vec_pick(window, vec_load(blend->far));
    return vec_add16(near, vec_scale16(vec_sub16(far, near), vec_load(blend->share)));
}
LANES static void row_of_blends(const Axis *x, const Lanes *lanes, int32_t channels, const uint8_t *src, uint8_t *dst) {
    const Blend *blend = lanes->weights.bytes;
    const int32_t *at = lanes->offsets.bytes, bytes = x->count * channels;
    for (int32_t i = 0; i < bytes; i += 32, at += 4, blend += 2) {
        Vec even = blended(src + at[0], src + at[2], blend), odd = blended(src + at[1], src + at[3], blend + 1);
        vec_store(dst + i, vec_pack16(even, odd));
    }
}

/* Along x by any taps: 8 pixels of the result at a time, pixel k in the low lane beside k + 4 in the high one. */
static int prepare_sums(Axis *x, int32_t channels, Lanes *lanes) {
    int32_t padded = (x->count + 7) / 8 * 8, taps = channels == 3 ? 2 : 8; /* of a vector */
    lanes->vectors = (x->taps + taps - 1) / taps;
    int32_t *offsets = room(&lanes->offsets, (size_t)padded * sizeof *offsets);
    int16_t *weights = room(&lanes->weights, (size_t)padded * (size_t)lanes->vectors * 16);
    if (!offsets || !weights) return -1;
    lanes->reach = 0;
    for (int32_t i = 0; i < padded; i++) {
        int32_t position = i < x->count ? i : x->count - 1, used = x->used[position];
        const int16_t *from = x->weights + (size_t)position * (size_t)x->pitch;
        int16_t *to = weights + ((size_t)(i / 8 * 4 + i % 4) * (size_t)lanes->vectors * 2 + (size_t)(i / 4 % 2)) * 8;
        for (int32_t v = 0; v < lanes->vectors; v++, to += 16)
            for (int32_t k = 0; k < 8; k++) {
                int32_t tap = v * taps + k % taps;
                to[k] = tap < used ? from[tap] : 0;
            }
        offsets[i] = x->first[position] * channels;
        int32_t reach = offsets[i] + (lanes->vectors - 1) * taps * channels + 16;
        if (reach > lanes->reach) lanes->reach = reach;
    }
    return 1;
}
LANES static inline Vec sum_of(const uint8_t *low, const uint8_t *high, const int16_t *weights, int32_t vectors,
                               int32_t step, Vec first, Vec second) {
    Vec sum = vec_all16(0);
    for (int32_t v = 0; v < vectors; v += 2, low += step, high += step, weights += 32) {
        Vec window = vec_load_two(low, high);
        sum = vec_add32(sum, vec_dot16(vec_pick(window, first), vec_load(weights)));
        if (v + 1 < vectors) sum = vec_add32(sum, vec_dot16(vec_pick(window, second), vec_load(weights + 16)));
    }
    return sum;
}
LANES static void row_of_sums(const Axis *x, const Lanes *lanes, int32_t channels, const uint8_t *src, uint8_t *dst) {
    const int color = channels == 3;
    const int32_t *at = lanes->offsets.bytes, bits = x->bits, vectors = lanes->vectors, step = color ? 12 : 16;
    const Vec first = vec_load_two(SPREAD[color][0], SPREAD[color][0]), half = vec_all32(1 << (bits - 1));
    const Vec second = vec_load_two(SPREAD[color][1], SPREAD[color][1]);
    const Vec squeeze = vec_load_two(SQUEEZE[color], SQUEEZE[color]);
    const int16_t *weights = lanes->weights.bytes;
    for (int32_t i = 0; i < x->count; i += 8, at += 8, weights += 64 * vectors) {
        Vec s0 = sum_of(src + at[0], src + at[4], weights, vectors, step, first, second);
        Vec s1 = sum_of(src + at[1], src + at[5], weights + 16 * vectors, vectors, step, first, second);
        Vec s2 = sum_of(src + at[2], src + at[6], weights + 32 * vectors, vectors, step, first, second);
        Vec s3 = sum_of(src + at[3], src + at[7], weights + 48 * vectors, vectors, step, first, second);
        if (!color) s0 = vec_sums32(vec_sums32(s0, s1), vec_sums32(s2, s3));
        s0 = vec_shift32(vec_add32(s0, half), bits), s1 = vec_shift32(vec_add32(s1, half), bits);
        s2 = vec_shift32(vec_add32(s2, half), bits), s3 = vec_shift32(vec_add32(s3, half), bits);
        Vec made = vec_pick(vec_pack16(vec_pack32(s0, s1), vec_pack32(s2, s3)), squeeze);
        vec_store_two(dst + i * channels, dst + (i + 4) * channels, made);
    }
}

static int lanes_prepare(Axis *x, int32_t channels, Lanes *lanes) {
    int prepared = x->taps == 2 && !x->span.triangle ? prepare_blends(x, channels, lanes) : 0;
    lanes->blends = prepared == 1;
    return prepared ? prepared : prepare_sums(x, channels, lanes);
}
LANES static void lanes_row(const Axis *x, const Lanes *lanes, int32_t channels, const uint8_t *src, uint8_t *dst) {
    (lanes->blends ? row_of_blends : row_of_sums)(x, lanes, channels, src, dst);
}

/* Along y: rows may be read up to 31 bytes past `bytes`, dst is not written past it. */
LANES static inline void store_part(uint8_t *dst, Vec v, int32_t bytes) {
    uint8_t whole[32];
    vec_store(bytes < 32 ? whole : dst, v);
    if (bytes < 32) memcpy(dst, whole, (size_t)bytes);
}
LANES static void column_of_two(const uint8_t *near, const uint8_t *far, int16_t share, int32_t bytes, uint8_t *dst) {
    const Vec shares = vec_all16(share), zero = vec_all16(0);
    for (int32_t i = 0; i < bytes; i += 32) {
        Vec a = vec_load(near + i), b = vec_load(far + i);
        Vec low = vec_mix_low(a, zero), high = vec_mix_high(a, zero);
        low = vec_add16(low, vec_scale16(vec_sub16(vec_mix_low(b, zero), low), shares));
        high = vec_add16(high, vec_scale16(vec_sub16(vec_mix_high(b, zero), high), shares));
        store_part(dst + i, vec_pack16(low, high), bytes - i);
    }
}
LANES static void lanes_column(const Axis *y, int32_t i, const uint8_t *const *rows, int32_t bytes, uint8_t *dst) {
    const int16_t *w = y->weights + (size_t)i * (size_t)y->pitch;
    if (!y->span.triangle) {
        column_of_two(rows[0], rows[1], (int16_t)(w[1] << (15 - y->bits)), bytes, dst);
        return;
    }
    const Vec zero = vec_all32(0), half = vec_all32(1 << (y->bits - 1));
    for (int32_t b = 0; b < bytes; b += 32) {
        Vec s0 = half, s1 = half, s2 = half, s3 = half;
        for (int32_t k = 0; k < y->used[i]; k += 2) { /* an odd last tap has a weight of 0 beside it, and a row */
            int32_t two;
            memcpy(&two, w + k, sizeof two);
            Vec weights = vec_all32(two), even = vec_load(rows[k] + b), odd = vec_load(rows[k + 1] + b);
            Vec low = vec_mix_low(even, odd), high = vec_mix_high(even, odd);
            s0 = vec_add32(s0, vec_dot16(vec_mix_low(low, zero), weights));
            s1 = vec_add32(s1, vec_dot16(vec_mix_high(low, zero), weights));
            s2 = vec_add32(s2, vec_dot16(vec_mix_low(high, zero), weights));
            s3 = vec_add32(s3, vec_dot16(vec_mix_high(high, zero), weights));
        }
        Vec low = vec_pack32(vec_shift32(s0, y->bits), vec_shift32(s1, y->bits));
        Vec high = vec_pack32(vec_shift32(s2, y->bits), vec_shift32(s3, y->bits));
        store_part(dst + b, vec_pack16(low, high), bytes - b);
    }
}

/* Which bytes of 48 make 16 of each channel: those of channel c in vector v are at 48c + 16v. */
static const uint8_t SPLIT[144] = {0,  3,  6,  9,  12, 15, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, 2,  5,
                                   8,  11, 14, N,  N,  N,  N, N, N, N, N, N, N, N, N, N, N, N, N, 1, 4, 7, 10, 13,
                                   1,  4,  7,  10, 13, N,  N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, 0, 3,  6,
                                   9,  12, 15, N,  N,  N,  N, N, N, N, N, N, N, N, N, N, N, N, N, 2, 5, 8, 11, 14,
                                   2,  5,  8,  11, 14, N,  N, N, N, N, N, N, N, N, N, N, N, N, N, N, N, 1, 4,  7,
                                   10, 13, N,  N,  N,  N,  N, N, N, N, N, N, N, N, N, N, N, N, 0, 3, 6, 9, 12, 15};
LANES static void lanes_split(const uint8_t *row, int32_t width, uint8_t *const planes[3]) {
    if (width < 32) plain_split(row, width, planes);
    for (int32_t next = 0; next < width && width >= 32; next += 32) {
        int32_t i = next < width - 32 ? next : width - 32; /* the last ones overlap those before */
        const uint8_t *low = row + 3 * i, *high = low + 48;
        Vec parts[3];
        for (int32_t v = 0; v < 3; v++) parts[v] = vec_load_two(low + 16 * v, high + 16 * v);
        for (int32_t c = 0; c < 3; c++) {
            Vec plane = vec_all16(0);
            for (int32_t v = 0; v < 3; v++)
                plane =
                    vec_or(plane, vec_pick(parts[v], vec_load_two(SPLIT + 48 * c + 16 * v, SPLIT + 48 * c + 16 * v)));
            vec_store(planes[c] + i, plane);
        }
    }
}

LANES static void lanes_line(const uint8_t *bytes, int32_t count, const double *line, float *floats) {
    const double scale = line[0], shift = line[1];
    int32_t i = 0;
#pragma GCC unroll 4
    for (; i + 4 <= count; i += 4) vec_line4(bytes + i, scale, shift, floats + i);
    plain_line(bytes + i, count - i, line, floats + i);
}

/* A row reversed pixel by pixel, from the last of dst to the first: memory is fetched ahead of ascending reads. */
LANES static void lanes_reverse(const uint8_t *src, int32_t width, int32_t channels, uint8_t *dst) {
    const Vec reverse = vec_load_two(REVERSE[channels == 3], REVERSE[channels == 3]);
    int32_t left = width * channels, step = channels == 3 ? 15 : 16;
    for (; left >= 32; left -= 2 * step, src += 2 * step)
        vec_store_two(dst + left - 16, dst + left - 16 - step, vec_pick(vec_load_two(src, src + step), reverse));
    plain_reverse(src, left / channels, channels, dst);
}

LANES static inline Vec between(const uint8_t *near, const uint8_t *far) { /* as `enlarged` */
    Vec v = vec_load(near);
    return vec_add8(vec_sub8(v, vec_quarter8(v)), vec_quarter8(vec_load(far)));
}
LANES static void lanes_widen(const uint8_t *src, int32_t count, uint8_t *dst) {
    for (int32_t i = 0; i < count; i += 32, dst += 64) {
        Vec even = between(src + i, src + i - 1), odd = between(src + i, src + i + 1);
        vec_store_two(dst, dst + 32, vec_mix_low(even, odd));
        vec_store_two(dst + 16, dst + 48, vec_mix_high(even, odd));
    }
}
LANES static void lanes_rgb(const uint8_t *luma, const uint8_t *const chroma[4], int32_t width, uint8_t *dst) {
    const Vec middle = vec_all16((int16_t)0x8080); /* bytes are signed where sums saturate */
    if (width < 32) plain_rgb(luma, chroma, width, dst);
    for (int32_t next = 0; next < width && width >= 32; next += 32) {
        int32_t i = next < width - 32 ? next : width - 32;
        Vec green = vec_add8(between(chroma[0] + i, chroma[1] + i), middle);
        Vec orange = vec_add8(between(chroma[2] + i, chroma[3] + i), middle);
        Vec gray = vec_add8(vec_load(luma + i), middle), mean = vec_subs8(gray, green);
        const Vec rgb[3] = {vec_adds8(mean, orange), vec_adds8(gray, green), vec_subs8(mean, orange)};
        for (int32_t v = 0, at = 3 * i; v < 3; v++, at += 16)
            vec_store_two(dst + at, dst + at + 48, vec_add8(vec_join(rgb, v), middle));
    }
}
