/* Resamples cases from its input, each in memory of its exact size, so that a sanitizer finds what is read or written
 * beside it, and writes the results. A case: Image (pixels and end: offsets), Result (tables: whether there are any),
 * then the bytes of the pixels and of the tables. */
#include "resample.c"
#include <stdio.h>

static void *block(size_t bytes) {
    void *made = malloc(bytes);
    if (!made || fread(made, 1, bytes, stdin) != bytes) exit(90);
    return made;
}

int main(void) {
    Image image;
    Result result;
    while (fread(&image, sizeof image, 1, stdin) == 1 && fread(&result, sizeof result, 1, stdin) == 1) {
        size_t values = (size_t)result.channels * (size_t)result.itemsize, bytes = (uintptr_t)image.end;
        size_t made = (size_t)result.height * (size_t)result.width * values;
        uint8_t *pixels = block(bytes), *tables = result.tables ? block(256 * values) : NULL;
        image.pixels = pixels, image.end = pixels + bytes;
        result.out = malloc(made), result.tables = tables;
        int32_t code = result.out ? rawpack_resample(1, &image, &result) : NO_MEMORY;
        if (code) return code;
        fwrite(result.out, 1, made, stdout);
        free(pixels), free(tables), free(result.out);
    }
    return 0;
}
