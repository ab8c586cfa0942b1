/* Undoes differences and cuts JPEG files from its input, each in memory of its exact size, and writes the results. A
 * case: Differences or Cut (addresses: sizes of memory), after a byte that says which, then the bytes stored. */
#include "stored.c"
#include <stdio.h>
#include <stdlib.h>

static void *block(size_t bytes) {
    void *made = malloc(bytes);
    if (!made || fread(made, 1, bytes, stdin) != bytes) exit(90);
    return made;
}

int main(void) {
    Differences differences;
    Cut cut;
    for (int kind; (kind = getchar()) != EOF;) {
        size_t size = kind == 'd' ? sizeof differences : sizeof cut;
        if (fread(kind == 'd' ? (void *)&differences : (void *)&cut, size, 1, stdin) != 1) return 91;
        size_t room = (uintptr_t)(kind == 'd' ? differences.out : cut.out);
        uint8_t *out = malloc(room), *stored = block((size_t)(kind == 'd' ? differences.size : cut.size));
        differences.stored = cut.data = stored, differences.out = cut.out = out;
        int32_t code = kind == 'd' ? rawpack_undo(&differences) : rawpack_cut(&cut);
        if (kind == 'd' ? code != DONE : code < 0) return 92;
        fwrite(out, 1, kind == 'd' ? room : (size_t)code, stdout);
        free(stored), free(out);
    }
    return 0;
}
