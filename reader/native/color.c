/* Changes brightness, contrast, saturation and hue of images of bytes, in place, each image by its own factors in its
 * own order. Whole numbers, or IEEE 754 without fused steps, so that AVX2, NEON, plain C and the fall-back
 * (rawpack/transforms/color.py) give the same bits.
 *   luma = (9798 * R + 19235 * G + 3735 * B + 2^14) >> 15, of one channel the value itself
 *   brightness, contrast: rint(clip(value * factor + mean * (1 - factor))), mean 0 or the rounded mean of the luma
 *   saturation: clip((sum(W * value) + 2^9) >> 10), W = rint(1024 * w) of the float32 w that blend a pixel and its luma
 *   hue: to H 0..255, S and V as OpenCV does; x = 2 * (H + shift mod 256), a sector of the circle being 85; and back,
 *     rint(V * (21675 - S * m) / 21675), m = clip(min(k, 340 - k), 0, 85), k = x + 425, 255, 85 mod 510 for R, G, B */
#include "color.h"
#include "core.h"

enum { BRIGHTNESS, CONTRAST, SATURATION, HUE };
enum { LEVEL_BITS = 21, MOST_FACTOR = 31, MOST_CHANGES = 1024, MOST_IMAGES = 1 << 30, MOST_PIXELS = 1 << 30 };
static const double LUMA[3] = {0.299, 0.587, 0.114};

typedef struct {
    int32_t own[3], all[3]; /* what a value, and what each value of the pixel, counts for, in 2^-10 */
} Blend;

static int32_t least(int32_t a, int32_t b) { return a < b ? a : b; }
static int32_t most(int32_t a, int32_t b) { return a < b ? b : a; }
static double rounded(double x) { return x + 0x1.8p52 - 0x1.8p52; } /* to the nearest, halves to the even one */

#ifdef LANES
#include "lanes_color.h"
#else /* pixels, or bytes, that vectors have done */
static int64_t lanes_lift(uint8_t *bytes, int64_t n, int32_t slope, int32_t shift) { return 0 * (n + slope + shift); }
static int64_t lanes_luma(const uint8_t *pixels, int64_t n, int64_t *sum) { return 0 * (n + *sum + *pixels); }
static int64_t lanes_blend(uint8_t *pixels, int64_t n, const Blend *b) { return 0 * (n + *pixels + b->own[0]); }
static int64_t lanes_turn(uint8_t *pixels, int64_t n, int32_t shift) { return 0 * (n + *pixels + shift); }
#endif

static int64_t luma_sum(const uint8_t *pixels, int64_t n, int32_t channels, int lanes) {
    int64_t sum = 0, i = lanes && channels == 3 ? lanes_luma(pixels, n, &sum) : 0;
    if (channels == 1)
        for (; i < n; i++) sum += pixels[i];
    for (const uint8_t *p = pixels + 3 * i; i < n; i++, p += 3)
        sum += (9798 * p[0] + 19235 * p[1] + 3735 * p[2] + (1 << 14)) >> 15;
    return sum;
}
static void change_levels(uint8_t *bytes, int64_t n, double factor, double shift, int lanes) {
    uint8_t table[256];
    double one = 1 << LEVEL_BITS;
    int32_t slope = 0, start = 0, same = lanes && factor < 4; /* no sum beyond 32 bits */
    if (same) slope = (int32_t)rounded(factor * one), start = (int32_t)rounded((shift + 0.5) * one);
    for (int32_t v = 0; v < 256; v++) {
        double level = v * factor + shift;
        table[v] = (uint8_t)rounded(level < 0 ? 0 : level > 255 ? 255 : level);
        same = same && table[v] == most(0, least(255, (v * slope + start) >> LEVEL_BITS));
    }
    for (int64_t i = same ? lanes_lift(bytes, n, slope, start) : 0; i < n; i++) bytes[i] = table[bytes[i]];
}
static void saturate(uint8_t *pixels, int64_t n, double factor, int lanes) {
    Blend blend;
    for (int32_t c = 0; c < 3; c++) {
        double luma = (1 - factor) * LUMA[c];
        blend.all[c] = (int32_t)rounded((float)luma * 1024);
        blend.own[c] = (int32_t)rounded((float)(factor + luma) * 1024) - blend.all[c];
    }
    int64_t i = lanes ? lanes_blend(pixels, n, &blend) : 0;
    for (uint8_t *p = pixels + 3 * i; i < n; i++, p += 3) {
        int32_t sum = blend.all[0] * p[0] + blend.all[1] * p[1] + blend.all[2] * p[2] + (1 << 9);
        for (int32_t c = 0; c < 3; c++) p[c] = (uint8_t)most(0, least(255, (sum + blend.own[c] * p[c]) >> 10));
    }
}
static void turn_hue(uint8_t *pixels, int64_t n, int32_t shift, int lanes) {
    int64_t i = lanes ? lanes_turn(pixels, n, shift) : 0;
    for (uint8_t *p = pixels + 3 * i; i < n; i++, p += 3) {
        int32_t r = p[0], g = p[1], b = p[2], v = most(r, most(g, b)), range = v - least(r, least(g, b));
        int32_t part = v == r ? g - b : v == g ? b - r + 2 * range : r - g + 4 * range;
        int32_t hue = range ? part * (int32_t)rounded(1048576 / (6.0 * range)) : 0;
        int32_t s = range ? (range * (int32_t)rounded(1044480.0 / v) + 2048) >> 12 : 0;
        int32_t x = 2 * ((((hue + 2048) >> 12) + shift) & 255);
        for (int32_t c = 0; c < 3; c++) {
            int32_t k = (x + 425 - 170 * c) % 510, m = most(0, least(85, least(k, 340 - k)));
            p[c] = (uint8_t)((2 * v * (21675 - s * m) + 21675) / 43350);
        }
    }
}

int32_t check_changes(int64_t n, int32_t count, const Change *changes) {
    int32_t strong = 0;
    if (count < 0 || count > MOST_CHANGES || n < 0 || n > MOST_IMAGES || (n && count && !changes)) return BAD_SIZES;
    for (int64_t i = 0; i < n * count; i++) { /* not a number is refused, too */
        double kind = changes[i].kind, factor = changes[i].factor;
        if (kind != BRIGHTNESS && kind != CONTRAST && kind != SATURATION && kind != HUE) return BAD_SIZES;
        if (!(factor >= 0) || (kind == HUE && factor > 255)) return BAD_SIZES;
        strong |= kind != HUE && factor > MOST_FACTOR;
    }
    return strong ? TOO_STRONG : DONE;
}
void recolor(uint8_t *image, int64_t pixels, int32_t channels, int32_t count, const Change *changes, int32_t lanes) {
    lanes = lanes && lanes_work();
    for (; count > 0; count--, changes++) {
        double factor = changes->factor, mean = 0;
        if (changes->kind == CONTRAST)
            mean = rounded((double)luma_sum(image, pixels, channels, lanes) * (1.0 / (double)pixels));
        if (changes->kind == BRIGHTNESS || changes->kind == CONTRAST)
            change_levels(image, pixels * channels, factor, mean * (1 - factor), lanes);
        if (changes->kind == SATURATION && channels == 3) saturate(image, pixels, factor, lanes);
        if (changes->kind == HUE && channels == 3) turn_hue(image, pixels, (int32_t)factor, lanes);
    }
}

/* image: (pixels, channels), in place. Any thread, without Python's lock. Returns DONE, or, where nothing was written,
 * BAD_SIZES or TOO_STRONG. */
PUBLIC int32_t rawpack_recolor(uint8_t *image, int64_t pixels, int32_t channels, int32_t count, const Change *changes,
                               int32_t lanes) {
    if (!image || pixels < 1 || pixels > MOST_PIXELS || (channels != 1 && channels != 3)) return BAD_SIZES;
    int32_t code = check_changes(1, count, changes);
    if (code == DONE) recolor(image, pixels, channels, count, changes, lanes);
    return code;
}
