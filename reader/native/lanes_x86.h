/* Vectors of 32 bytes as two lanes of 16, in AVX2. lanes_arm.h has the same names for NEON. "Each lane" where lanes do
 * not mix. */
#include <immintrin.h>
#define LANES __attribute__((target("avx2")))
enum { LANES_NUMBER = 1 };
typedef __m256i Vec;

static int lanes_work(void) { return __builtin_cpu_supports("avx2"); }
LANES static inline Vec vec_load(const void *p) { return _mm256_loadu_si256((const __m256i *)p); }
LANES static inline Vec vec_load_two(const void *low, const void *high) {
    return _mm256_loadu2_m128i((const __m128i *)high, (const __m128i *)low);
}
LANES static inline void vec_store(void *p, Vec v) { _mm256_storeu_si256((__m256i *)p, v); }
LANES static inline void vec_store_two(void *low, void *high, Vec v) { /* high after low: they may overlap */
    _mm_storeu_si128((__m128i *)low, _mm256_castsi256_si128(v));
    _mm_storeu_si128((__m128i *)high, _mm256_extracti128_si256(v, 1));
}
/* 4 bytes as bytes * scale + shift in doubles, rounded to floats: each step by IEEE 754, without a fused one. */
LANES static inline void vec_line4(const uint8_t *bytes, double scale, double shift, float *floats) {
    __m256d values = _mm256_cvtepi32_pd(_mm_cvtepu8_epi32(_mm_loadu_si32(bytes)));
    values = _mm256_add_pd(_mm256_mul_pd(values, _mm256_set1_pd(scale)), _mm256_set1_pd(shift));
    _mm_storeu_ps(floats, _mm256_cvtpd_ps(values));
}
LANES static inline Vec vec_all16(int16_t x) { return _mm256_set1_epi16(x); }
LANES static inline Vec vec_all32(int32_t x) { return _mm256_set1_epi32(x); }
LANES static inline Vec vec_or(Vec a, Vec b) { return _mm256_or_si256(a, b); }
LANES static inline Vec vec_and(Vec a, Vec b) { return _mm256_and_si256(a, b); }
/* Bytes of a where those of `mask` are -1, of b where they are 0. */
LANES static inline Vec vec_either(Vec mask, Vec a, Vec b) { return _mm256_blendv_epi8(b, a, mask); }
/* Each lane: the bytes that `which` numbers; 0 where it is 128. */
LANES static inline Vec vec_pick(Vec v, Vec which) { return _mm256_shuffle_epi8(v, which); }
/* Each lane: bytes of a and b in turn, from its first or its second half. */
LANES static inline Vec vec_mix_low(Vec a, Vec b) { return _mm256_unpacklo_epi8(a, b); }
LANES static inline Vec vec_mix_high(Vec a, Vec b) { return _mm256_unpackhi_epi8(a, b); }
LANES static inline Vec vec_add8(Vec a, Vec b) { return _mm256_add_epi8(a, b); }
LANES static inline Vec vec_sub8(Vec a, Vec b) { return _mm256_sub_epi8(a, b); }
/* Signed and saturated. */
LANES static inline Vec vec_adds8(Vec a, Vec b) { return _mm256_adds_epi8(a, b); }
LANES static inline Vec vec_subs8(Vec a, Vec b) { return _mm256_subs_epi8(a, b); }
/* Unsigned bytes / 4 */
LANES static inline Vec vec_quarter8(Vec v) { return _mm256_and_si256(_mm256_srli_epi16(v, 2), _mm256_set1_epi8(63)); }
LANES static inline Vec vec_add16(Vec a, Vec b) { return _mm256_add_epi16(a, b); }
LANES static inline Vec vec_sub16(Vec a, Vec b) { return _mm256_sub_epi16(a, b); }
/* (a * b + 2^14) >> 15 */
LANES static inline Vec vec_scale16(Vec a, Vec b) { return _mm256_mulhrs_epi16(a, b); }
/* Sums of the products of two neighbors, in 32 bits. */
LANES static inline Vec vec_dot16(Vec a, Vec b) { return _mm256_madd_epi16(a, b); }
LANES static inline Vec vec_add32(Vec a, Vec b) { return _mm256_add_epi32(a, b); }
LANES static inline Vec vec_sub32(Vec a, Vec b) { return _mm256_sub_epi32(a, b); }
LANES static inline Vec vec_mul32(Vec a, Vec b) { return _mm256_mullo_epi32(a, b); }
LANES static inline Vec vec_min32(Vec a, Vec b) { return _mm256_min_epi32(a, b); }
LANES static inline Vec vec_max32(Vec a, Vec b) { return _mm256_max_epi32(a, b); }
/* -1 where a > b, else 0. */
LANES static inline Vec vec_over32(Vec a, Vec b) { return _mm256_cmpgt_epi32(a, b); }
/* As floats, of numbers below 2^24, rounded to whole numbers, halves to even ones; any number where v is 0. */
LANES static inline Vec vec_quotient32(float a, Vec v) {
    return _mm256_cvtps_epi32(_mm256_div_ps(_mm256_set1_ps(a), _mm256_cvtepi32_ps(v)));
}
LANES static inline Vec vec_scale32(Vec v, float by) {
    return _mm256_cvtps_epi32(_mm256_mul_ps(_mm256_cvtepi32_ps(v), _mm256_set1_ps(by)));
}
LANES static inline Vec vec_shift32(Vec v, int bits) { return _mm256_sra_epi32(v, _mm_cvtsi32_si128(bits)); }
/* Each lane: sums of two neighbors, those of a, then those of b. */
LANES static inline Vec vec_sums32(Vec a, Vec b) { return _mm256_hadd_epi32(a, b); }
/* Each lane: a, then b, in half the bits, saturated: 32 to 16 signed, 16 to 8 unsigned. */
LANES static inline Vec vec_pack32(Vec a, Vec b) { return _mm256_packs_epi32(a, b); }
LANES static inline Vec vec_pack16(Vec a, Vec b) { return _mm256_packus_epi16(a, b); }
