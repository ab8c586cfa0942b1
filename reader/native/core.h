/* What all kernels share. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define PUBLIC __attribute__((visibility("default")))
enum { DONE = 0, BAD_SIZES = 1, NO_MEMORY = 2 };
enum { N = 128 }; /* a number that vec_pick makes 0 */

#if defined(__x86_64__)
#include "lanes_x86.h"
#elif defined(__aarch64__)
#include "lanes_arm.h"
#else
enum { LANES_NUMBER = 0 };
static inline int lanes_work(void) { return 0; }
#endif
static inline int is_within(int64_t value, int64_t least, int64_t most) { return value >= least && value <= most; }

#ifdef LANES
/* Bytes 16v to 16v + 15 of the pixels that 16 values of three channels make; each lane. */
LANES static inline Vec vec_join(const Vec channels[3], int v) {
    static const uint8_t places[50] = {N, N, 0, N, N, 1, N, N,  2, N, N,  3, N, N,  4, N, N,  5, N, N,  6, N, N,  7, N,
                                       N, 8, N, N, 9, N, N, 10, N, N, 11, N, N, 12, N, N, 13, N, N, 14, N, N, 15, N, N};
    Vec made = vec_all16(0);
    for (int c = 0; c < 3; c++) {
        const uint8_t *from = places + 16 * v + 2 - c;
        made = vec_or(made, vec_pick(channels[c], vec_load_two(from, from)));
    }
    return made;
}
#endif
