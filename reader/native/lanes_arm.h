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

#define IN_EACH_LANE(name, made)                                                                                       \
    static inline Lane lane_##name(Lane a, Lane b) { return made; }                                                    \
    static inline Vec vec_##name(Vec a, Vec b) { return (Vec){lane_##name(a.low, b.low), lane_##name(a.high, b.high)}; }
IN_EACH_LANE(or, vorrq_u8(a, b))
IN_EACH_LANE(and, vandq_u8(a, b))
IN_EACH_LANE(pick, vqtbl1q_u8(a, b))
IN_EACH_LANE(mix_low, vzip1q_u8(a, b))
IN_EACH_LANE(mix_high, vzip2q_u8(a, b))
IN_EACH_LANE(add8, vaddq_u8(a, b))
IN_EACH_LANE(sub8, vsubq_u8(a, b))
IN_EACH_LANE(adds8, (Lane)vqaddq_s8((int8x16_t)a, (int8x16_t)b))
IN_EACH_LANE(subs8, (Lane)vqsubq_s8((int8x16_t)a, (int8x16_t)b))
IN_EACH_LANE(add16, of16(vaddq_s16(as16(a), as16(b))))
IN_EACH_LANE(sub16, of16(vsubq_s16(as16(a), as16(b))))
IN_EACH_LANE(scale16, of16(vqrdmulhq_s16(as16(a), as16(b))))
IN_EACH_LANE(dot16, of32(vpaddq_s32(vmull_s16(vget_low_s16(as16(a)), vget_low_s16(as16(b))),
                                    vmull_high_s16(as16(a), as16(b)))))
IN_EACH_LANE(add32, of32(vaddq_s32(as32(a), as32(b))))
IN_EACH_LANE(sub32, of32(vsubq_s32(as32(a), as32(b))))
IN_EACH_LANE(mul32, of32(vmulq_s32(as32(a), as32(b))))
IN_EACH_LANE(min32, of32(vminq_s32(as32(a), as32(b))))
IN_EACH_LANE(max32, of32(vmaxq_s32(as32(a), as32(b))))
IN_EACH_LANE(over32, (Lane)vcgtq_s32(as32(a), as32(b)))
IN_EACH_LANE(sums32, of32(vpaddq_s32(as32(a), as32(b))))
IN_EACH_LANE(pack32, of16(vcombine_s16(vqmovn_s32(as32(a)), vqmovn_s32(as32(b)))))
IN_EACH_LANE(pack16, vcombine_u8(vqmovun_s16(as16(a)), vqmovun_s16(as16(b))))
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
static inline void vec_line4(const uint8_t *bytes, double scale, double shift, float *floats) {
    for (int k = 0; k < 4; k += 2) {
        float64x2_t values = {bytes[k], bytes[k + 1]};
        values = vaddq_f64(vmulq_n_f64(values, scale), vdupq_n_f64(shift));
        vst1_f32(floats + k, vcvt_f32_f64(values));
    }
}
