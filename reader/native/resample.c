/* Stands in until the kernels are here. */
#include <stdint.h>

#define EXPORTED __attribute__((visibility("default")))

EXPORTED int32_t rawpack_version(void) { return 1; }

EXPORTED int32_t rawpack_lanes(void) { return 0; }
