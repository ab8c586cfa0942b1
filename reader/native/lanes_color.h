/* The loops of color.c in vectors, once for AVX2 and NEON: 8 pixels at a time, or 32 bytes. Each returns how many it
 * has done; the plain ones do the rest. */

/* Of 4 pixels in 12 bytes: R and G as words; each channel as 32 bits; back from 4 R, 4 G, 4 B; the bytes after them. */
static const uint8_t WORDS[16] = {0, N, 1, N, 3, N, 4, N, 6, N, 7, N, 9, N, 10, N};
static const uint8_t CHANNEL[3][16] = {{0, N, N, N, 3, N, N, N, 6, N, N, N, 9, N, N, N},
                                       {1, N, N, N, 4, N, N, N, 7, N, N, N, 10, N, N, N},
                                       {2, N, N, N, 5, N, N, N, 8, N, N, N, 11, N, N, N}};
static const uint8_t JOINED[16] = {0, 4, 8, 1, 5, 9, 2, 6, 10, 3, 7, 11, N, N, N, N};
static const uint8_t AFTER[16] = {N, N, N, N, N, N, N, N, N, N, N, N, 12, 13, 14, 15};
static const uint8_t QUARTER[4][16] = {{0, N, N, N, 1, N, N, N, 2, N, N, N, 3, N, N, N},
                                       {4, N, N, N, 5, N, N, N, 6, N, N, N, 7, N, N, N},
                                       {8, N, N, N, 9, N, N, N, 10, N, N, N, 11, N, N, N},
                                       {12, N, N, N, 13, N, N, N, 14, N, N, N, 15, N, N, N}};
/* Pixels that are loaded after the 8 that are made. They are loaded before those are stored, which has 4 bytes beyond
 * them: a load from bytes that are being stored takes long. */
enum { BEHIND = 10 };

LANES static inline Vec picked(Vec v, const uint8_t *which) { return vec_pick(v, vec_load_two(which, which)); }
LANES static inline Vec pair(int32_t first, int32_t second) {
    return vec_all32((int32_t)((uint32_t)first & 0xffff) | (int32_t)((uint32_t)second << 16));
}
/* Sums of the three products of a pixel. */
LANES static inline Vec weighed(Vec pixels, Vec red_green, Vec blue) {
    return vec_add32(vec_dot16(picked(pixels, WORDS), red_green), vec_dot16(picked(pixels, CHANNEL[2]), blue));
}
LANES static inline Vec load_pixels(const uint8_t *p) { return vec_load_two(p, p + 12); }
LANES static inline void put_pixels(uint8_t *p, Vec before, const Vec rgb[3]) {
    Vec bytes = vec_pack16(vec_pack32(rgb[0], rgb[1]), vec_pack32(rgb[2], rgb[2]));
    vec_store_two(p, p + 12, vec_or(picked(bytes, JOINED), picked(before, AFTER)));
}

LANES static int64_t lanes_lift(uint8_t *bytes, int64_t n, int32_t slope, int32_t shift) {
    const Vec by = vec_all32(slope), add = vec_all32(shift);
    int64_t i = 0;
    for (; i + 32 <= n; i += 32) {
        Vec v = vec_load(bytes + i), made[4];
        for (int32_t k = 0; k < 4; k++)
            made[k] = vec_shift32(vec_add32(vec_mul32(picked(v, QUARTER[k]), by), add), LEVEL_BITS);
        vec_store(bytes + i, vec_pack16(vec_pack32(made[0], made[1]), vec_pack32(made[2], made[3])));
    }
    return i;
}
LANES static int64_t lanes_luma(const uint8_t *pixels, int64_t n, int64_t *sum) {
    const Vec red_green = pair(9798, 19235), blue = pair(3735, 0), half = vec_all32(1 << 14);
    int64_t i = 0;
    while (i + 8 + BEHIND <= n) {
        Vec sums = vec_all32(0);
        int32_t each[8];
        for (int64_t end = i + (1 << 20); i + 8 + BEHIND <= n && i < end; i += 8) { /* no sum beyond 32 bits */
            Vec v = load_pixels(pixels + 3 * i);
            sums = vec_add32(sums, vec_shift32(vec_add32(weighed(v, red_green, blue), half), 15));
        }
        vec_store(each, sums);
        for (int32_t k = 0; k < 8; k++) *sum += each[k];
    }
    return i;
}
LANES static int64_t lanes_blend(uint8_t *pixels, int64_t n, const Blend *blend) {
    const Vec red_green = pair(blend->all[0], blend->all[1]), blue = pair(blend->all[2], 0), half = vec_all32(1 << 9);
    int64_t i = 0;
    if (n < 8 + BEHIND) return 0;
    for (Vec next = load_pixels(pixels), v; i + 8 + BEHIND <= n; i += 8) {
        uint8_t *p = pixels + 3 * i;
        v = next, next = load_pixels(p + 24);
        Vec sum = vec_add32(weighed(v, red_green, blue), half), made[3];
        for (int32_t c = 0; c < 3; c++) {
            Vec own = vec_mul32(picked(v, CHANNEL[c]), vec_all32(blend->own[c]));
            made[c] = vec_shift32(vec_add32(own, sum), 10);
        }
        put_pixels(p, v, made);
    }
    return i;
}
LANES static int64_t lanes_turn(uint8_t *pixels, int64_t n, int32_t shift) {
    const Vec by = vec_all32(shift), half = vec_all32(2048), zero = vec_all32(0), sector = vec_all32(85);
    const Vec circle = vec_all32(510), four = vec_all32(340), whole = vec_all32(21675), low = vec_all32(255);
    int64_t i = 0;
    if (n < 8 + BEHIND) return 0;
    for (Vec next = load_pixels(pixels), all; i + 8 + BEHIND <= n; i += 8) {
        uint8_t *p = pixels + 3 * i;
        Vec made[3];
        all = next, next = load_pixels(p + 24);
        Vec r = picked(all, CHANNEL[0]), g = picked(all, CHANNEL[1]), b = picked(all, CHANNEL[2]);
        Vec v = vec_max32(r, vec_max32(g, b)), range = vec_sub32(v, vec_min32(r, vec_min32(g, b)));
        Vec two = vec_add32(range, range), of_green = vec_add32(vec_sub32(b, r), two);
        Vec of_blue = vec_add32(vec_sub32(r, g), vec_add32(two, two));
        Vec part = vec_either(vec_over32(v, g), of_blue, of_green);
        part = vec_either(vec_over32(v, r), part, vec_sub32(g, b));
        /* Without a range, both products are 0, whatever the quotient is. */
        Vec hue = vec_mul32(part, vec_quotient32(1048576.0F / 6, range));
        Vec s = vec_shift32(vec_add32(vec_mul32(range, vec_quotient32(1044480, v)), half), 12);
        Vec x = vec_and(vec_add32(vec_shift32(vec_add32(hue, half), 12), by), low);
        x = vec_add32(x, x);
        for (int32_t c = 0; c < 3; c++) {
            Vec k = vec_add32(x, vec_all32(425 - 170 * c));
            k = vec_sub32(k, vec_and(vec_over32(k, vec_all32(509)), circle));
            Vec m = vec_max32(zero, vec_min32(sector, vec_min32(k, vec_sub32(four, k))));
            made[c] = vec_scale32(vec_mul32(v, vec_sub32(whole, vec_mul32(s, m))), 1.0F / 21675);
        }
        put_pixels(p, all, made);
    }
    return i;
}
