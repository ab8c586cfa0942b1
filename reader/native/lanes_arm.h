/* Vectors of 32 bytes as two lanes of 16, in NEON, which each arm64 has. lanes_x86.h says what each function does. */
#include <arm_neon.h>
#define LANES
#define LANES_NUMBER 2
typedef struct {
    uint8x16_t low, high;
} Vec;

static int lanes_work(void) { return 1; }
static inline int16x8_t as16(uint8x16_t v) { return vreinterpretq_s16_u8(v); }
static inline int32x4_t as32(uint8x16_t v) { return vreinterpretq_s32_u8(v); }
static inline Vec from16(int16x8_t low, int16x8_t high) {
    return (Vec){vreinterpretq_u8_s16(low), vreinterpretq_u8_s16(high)};
}
static inline Vec from32(int32x4_t low, int32x4_t high) {
    return (Vec){vreinterpretq_u8_s32(low), vreinterpretq_u8_s32(high)};
}
static inline Vec vec_load_two(const void *low, const void *high) { return (Vec){vld1q_u8(low), vld1q_u8(high)}; }
static inline Vec vec_load(const void *p) { return vec_load_two(p, (const uint8_t *)p + 16); }
static inline void vec_store_two(void *low, void *high, Vec v) {
    vst1q_u8(low, v.low);
    vst1q_u8(high, v.high);
}
static inline void vec_store(void *p, Vec v) { vec_store_two(p, (uint8_t *)p + 16, v); }
static inline Vec vec_all16(int16_t x) { return from16(vdupq_n_s16(x), vdupq_n_s16(x)); }
static inline Vec vec_all32(int32_t x) { return from32(vdupq_n_s32(x), vdupq_n_s32(x)); }
static inline Vec vec_or(Vec a, Vec b) { return (Vec){vorrq_u8(a.low, b.low), vorrq_u8(a.high, b.high)}; }
static inline Vec vec_pick(Vec v, Vec which) {
    return (Vec){vqtbl1q_u8(v.low, which.low), vqtbl1q_u8(v.high, which.high)};
}
static inline Vec vec_mix_low(Vec a, Vec b) { return (Vec){vzip1q_u8(a.low, b.low), vzip1q_u8(a.high, b.high)}; }
static inline Vec vec_mix_high(Vec a, Vec b) { return (Vec){vzip2q_u8(a.low, b.low), vzip2q_u8(a.high, b.high)}; }
static inline Vec vec_add16(Vec a, Vec b) {
    return from16(vaddq_s16(as16(a.low), as16(b.low)), vaddq_s16(as16(a.high), as16(b.high)));
}
static inline Vec vec_sub16(Vec a, Vec b) {
    return from16(vsubq_s16(as16(a.low), as16(b.low)), vsubq_s16(as16(a.high), as16(b.high)));
}
static inline Vec vec_scale16(Vec a, Vec b) {
    return from16(vqrdmulhq_s16(as16(a.low), as16(b.low)), vqrdmulhq_s16(as16(a.high), as16(b.high)));
}
static inline int32x4_t dot16(int16x8_t a, int16x8_t b) {
    return vpaddq_s32(vmull_s16(vget_low_s16(a), vget_low_s16(b)), vmull_high_s16(a, b));
}
static inline Vec vec_dot16(Vec a, Vec b) {
    return from32(dot16(as16(a.low), as16(b.low)), dot16(as16(a.high), as16(b.high)));
}
static inline Vec vec_add32(Vec a, Vec b) {
    return from32(vaddq_s32(as32(a.low), as32(b.low)), vaddq_s32(as32(a.high), as32(b.high)));
}
static inline Vec vec_shift32(Vec v, int bits) {
    return from32(vshlq_s32(as32(v.low), vdupq_n_s32(-bits)), vshlq_s32(as32(v.high), vdupq_n_s32(-bits)));
}
static inline Vec vec_sums32(Vec a, Vec b) {
    return from32(vpaddq_s32(as32(a.low), as32(b.low)), vpaddq_s32(as32(a.high), as32(b.high)));
}
static inline int16x8_t pack32(uint8x16_t a, uint8x16_t b) {
    return vcombine_s16(vqmovn_s32(as32(a)), vqmovn_s32(as32(b)));
}
static inline Vec vec_pack32(Vec a, Vec b) { return from16(pack32(a.low, b.low), pack32(a.high, b.high)); }
static inline uint8x16_t pack16(uint8x16_t a, uint8x16_t b) {
    return vcombine_u8(vqmovun_s16(as16(a)), vqmovun_s16(as16(b)));
}
static inline Vec vec_pack16(Vec a, Vec b) { return (Vec){pack16(a.low, b.low), pack16(a.high, b.high)}; }
