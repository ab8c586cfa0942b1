/* Undoes differences and finds the rows of JPEG files of its input, each in memory of its exact size, and writes the
 * results. A case: a byte that says which, Differences (addresses: 0, size of the result) or size, scan, rows and end,
 * then the bytes stored. */
#include "stored.c"
#include <stdio.h>

static void *block(size_t bytes) {
    void *made = malloc(bytes);
    if (!made || fread(made, 1, bytes, stdin) != bytes) exit(90);
    return made;
}

int main(void) {
    Differences differences;
    int64_t file[4];
    for (int kind; (kind = getchar()) != EOF;) {
        size_t size = kind == 'd' ? sizeof differences : sizeof file;
        if (fread(kind == 'd' ? (void *)&differences : (void *)file, size, 1, stdin) != 1) return 91;
        size_t room = kind == 'd' ? (uintptr_t)differences.out : (size_t)file[3] * sizeof(int64_t);
        void *out = malloc(room), *stored = block((size_t)(kind == 'd' ? differences.size : file[0]));
        differences.stored = stored, differences.out = out;
        int32_t code = kind == 'd' ? rawpack_undo(&differences)
                                   : rawpack_row_ends(stored, file[0], file[1], file[2], file[3], out);
        if (code != DONE && (kind == 'd' || code != OTHER_MARKERS)) return 92;
        fwrite(out, 1, code == DONE ? room : 0, stdout);
        free(stored), free(out);
    }
    return 0;
}
