/* Changes of color, which resample.c makes of its images before their tables. */
#include <stdint.h>

typedef struct {
    double kind, factor; /* of hue, what is added to H: a whole number, 0 to 255 */
} Change;
enum { TOO_STRONG = 3 };

/* (n, count) changes: 0, 1 where one does not fit, TOO_STRONG where a factor is above MOST_FACTOR. */
int32_t check_changes(int64_t n, int32_t count, const Change *changes);
/* Make `count` changes, one after the other, of an image of this many pixels. */
void recolor(uint8_t *image, int64_t pixels, int32_t channels, int32_t count, const Change *changes, int32_t lanes);
