/* Resamples cases from its input, each in memory of its exact size, so that a sanitizer finds what is read or written
 * beside it, and writes the results. A case: Image (pixels and end: offsets), Result (tables and lines: whether
 * there are any), the number of changes of color, then the bytes of the pixels, of the tables, of the lines and of the
 * changes. */
#ifdef LOADED /* the library that the first argument names, instead of this copy of it */
#define rawpack_resample_recolored unused
#endif
#include "resample.c"
#include <dlfcn.h>
#include <stdio.h>

static void *block(size_t bytes) {
    void *made = malloc(bytes);
    if (!made || fread(made, 1, bytes, stdin) != bytes) exit(90);
    return made;
}

int main(int words, char **arguments) {
#ifdef LOADED
#undef rawpack_resample_recolored
    void *library = words > 1 ? dlopen(arguments[1], RTLD_NOW) : NULL,
         *found = library ? dlsym(library, "rawpack_resample_recolored") : NULL;
    int32_t (*rawpack_resample_recolored)(int64_t, const Image *, const Result *, int32_t, const Change *);
    if (!found) return 91;
    memcpy(&rawpack_resample_recolored, &found, sizeof found);
#else
    (void)words, (void)arguments;
#endif
    Image image;
    Result result;
    int32_t count;
    while (fread(&image, sizeof image, 1, stdin) == 1 && fread(&result, sizeof result, 1, stdin) == 1 &&
           fread(&count, sizeof count, 1, stdin) == 1) {
        size_t values = (size_t)result.channels * (size_t)result.itemsize, bytes = (uintptr_t)image.end;
        size_t made = (size_t)result.height * (size_t)result.width * values;
        uint8_t *pixels = block(bytes), *tables = result.tables ? block(256 * values) : NULL;
        double *lines = result.lines ? block(sizeof *lines * 2 * (size_t)result.channels) : NULL;
        Change *changes = count ? block(sizeof *changes * (size_t)count) : NULL;
        image.pixels = pixels, image.end = pixels + bytes;
        result.out = malloc(made), result.tables = tables, result.lines = lines;
        int32_t code = result.out ? rawpack_resample_recolored(1, &image, &result, count, changes) : NO_MEMORY;
        if (code) return code;
        fwrite(result.out, 1, made, stdout);
        free(pixels), free(tables), free(lines), free(changes), free(result.out);
    }
    return 0;
}
