/* Vectors of 32 bytes as two lanes of 16, in NEON, which each arm64 has. lanes_x86.h says what each function does. */
#include <arm_neon.h>
#define LANES
enum { LANES_NUMBER = 2 };
typedef uint8x16_t Lane;
typedef struct {
    Lane low, high;
} Vec;

static int lanes_work(void) { return 1; }
static inline Vec vec_load_two(const void *low, const void *high) { return (Vec){vld1q_u8(low), vld1q_u8(high)}; }
static inline Vec vec_load(const void *p) { return vec_load_two(p, (const uint8_t *)p + 16); }
static inline void vec_store_two(void *low, void *high, Vec v) { vst1q_u8(low, v.low), vst1q_u8(high, v.high); }
static inline void vec_store(void *p, Vec v) { vec_store_two(p, (uint8_t *)p + 16, v); }

static inline int16x8_t as16(Lane v) { return vreinterpretq_s16_u8(v); }
static inline int32x4_t as32(Lane v) { return vreinterpretq_s32_u8(v); }
static inline Lane of16(int16x8_t v) { return vreinterpretq_u8_s16(v); }
static inline Lane of32(int32x4_t v) { return vreinterpretq_u8_s32(v); }
static inline Lane adds8(Lane a, Lane b) { return (Lane)vqaddq_s8((int8x16_t)a, (int8x16_t)b); }
static inline Lane subs8(Lane a, Lane b) { return (Lane)vqsubq_s8((int8x16_t)a, (int8x16_t)b); }
static inline Lane add16(Lane a, Lane b) { return of16(vaddq_s16(as16(a), as16(b))); }
static inline Lane sub16(Lane a, Lane b) { return of16(vsubq_s16(as16(a), as16(b))); }
static inline Lane scale16(Lane a, Lane b) { return of16(vqrdmulhq_s16(as16(a), as16(b))); }
static inline Lane dot16(Lane a, Lane b) {
    int32x4_t first = vmull_s16(vget_low_s16(as16(a)), vget_low_s16(as16(b))), last = vmull_high_s16(as16(a), as16(b));
    return of32(vpaddq_s32(first, last));
}
static inline Lane add32(Lane a, Lane b) { return of32(vaddq_s32(as32(a), as32(b))); }
static inline Lane sub32(Lane a, Lane b) { return of32(vsubq_s32(as32(a), as32(b))); }
static inline Lane mul32(Lane a, Lane b) { return of32(vmulq_s32(as32(a), as32(b))); }
static inline Lane min32(Lane a, Lane b) { return of32(vminq_s32(as32(a), as32(b))); }
static inline Lane max32(Lane a, Lane b) { return of32(vmaxq_s32(as32(a), as32(b))); }
static inline Lane over32(Lane a, Lane b) { return (Lane)vcgtq_s32(as32(a), as32(b)); }
static inline Lane sums32(Lane a, Lane b) { return of32(vpaddq_s32(as32(a), as32(b))); }
static inline Lane pack32(Lane a, Lane b) { return of16(vcombine_s16(vqmovn_s32(as32(a)), vqmovn_s32(as32(b)))); }
static inline Lane pack16(Lane a, Lane b) { return vcombine_u8(vqmovun_s16(as16(a)), vqmovun_s16(as16(b))); }

#define IN_BOTH_LANES(name, lane)                                                                                      \
    static inline Vec name(Vec a, Vec b) { return (Vec){lane(a.low, b.low), lane(a.high, b.high)}; }
IN_BOTH_LANES(vec_or, vorrq_u8)
IN_BOTH_LANES(vec_and, vandq_u8)
IN_BOTH_LANES(vec_pick, vqtbl1q_u8)
IN_BOTH_LANES(vec_mix_low, vzip1q_u8)
IN_BOTH_LANES(vec_mix_high, vzip2q_u8)
IN_BOTH_LANES(vec_add8, vaddq_u8)
IN_BOTH_LANES(vec_sub8, vsubq_u8)
IN_BOTH_LANES(vec_adds8, adds8)
IN_BOTH_LANES(vec_subs8, subs8)
IN_BOTH_LANES(vec_add16, add16)
IN_BOTH_LANES(vec_sub16, sub16)
IN_BOTH_LANES(vec_scale16, scale16)
IN_BOTH_LANES(vec_dot16, dot16)
IN_BOTH_LANES(vec_add32, add32)
IN_BOTH_LANES(vec_sub32, sub32)
IN_BOTH_LANES(vec_mul32, mul32)
IN_BOTH_LANES(vec_min32, min32)
IN_BOTH_LANES(vec_max32, max32)
IN_BOTH_LANES(vec_over32, over32)
IN_BOTH_LANES(vec_sums32, sums32)
IN_BOTH_LANES(vec_pack32, pack32)
IN_BOTH_LANES(vec_pack16, pack16)
static inline Vec vec_quarter8(Vec v) { return (Vec){vshrq_n_u8(v.low, 2), vshrq_n_u8(v.high, 2)}; }
static inline Vec vec_all16(int16_t x) { return (Vec){of16(vdupq_n_s16(x)), of16(vdupq_n_s16(x))}; }
static inline Vec vec_all32(int32_t x) { return (Vec){of32(vdupq_n_s32(x)), of32(vdupq_n_s32(x))}; }
static inline Vec vec_either(Vec mask, Vec a, Vec b) {
    return (Vec){vbslq_u8(mask.low, a.low, b.low), vbslq_u8(mask.high, a.high, b.high)};
}
static inline Lane near32(float32x4_t v) { return of32(vcvtnq_s32_f32(v)); }
static inline Vec vec_quotient32(float a, Vec v) {
    float32x4_t all = vdupq_n_f32(a);
    return (Vec){near32(vdivq_f32(all, vcvtq_f32_s32(as32(v.low)))),
                 near32(vdivq_f32(all, vcvtq_f32_s32(as32(v.high))))};
}
static inline Vec vec_scale32(Vec v, float by) {
    return (Vec){near32(vmulq_n_f32(vcvtq_f32_s32(as32(v.low)), by)),
                 near32(vmulq_n_f32(vcvtq_f32_s32(as32(v.high)), by))};
}
static inline Vec vec_shift32(Vec v, int bits) {
    int32x4_t by = vdupq_n_s32(-bits);
    return (Vec){of32(vshlq_s32(as32(v.low), by)), of32(vshlq_s32(as32(v.high), by))};
}
static inline float32x2_t line2(uint32x2_t v, double scale, double shift) {
    float64x2_t product = vmulq_f64(vcvtq_f64_u64(vmovl_u32(v)), vdupq_n_f64(scale));
    return vcvt_f32_f64(vaddq_f64(product, vdupq_n_f64(shift)));
}
static inline float32x4_t line4(uint32x4_t v, double scale, double shift) {
    return vcombine_f32(line2(vget_low_u32(v), scale, shift), line2(vget_high_u32(v), scale, shift));
}
static inline void vec_line8(const uint8_t *bytes, double scale, double shift, void *floats) {
    uint16x8_t v = vmovl_u8(vld1_u8(bytes));
    vst1q_u8(floats, vreinterpretq_u8_f32(line4(vmovl_u16(vget_low_u16(v)), scale, shift)));
    vst1q_u8((uint8_t *)floats + 16, vreinterpretq_u8_f32(line4(vmovl_u16(vget_high_u16(v)), scale, shift)));
}
