/* Loaded before the C library (LD_PRELOAD): lets the n-th read below a folder fail, in whatever process it comes.

   Reads are open, openat, read, pread, readv, preadv, mmap, fstat, sendfile and copy_file_range. What fails, and how,
   is in a file that all processes map: the one that the variable FAILING_READS names, see `Control` in
   failing_reads.py. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

enum { OPEN = 1, READ = 2, MAP = 4, STAT = 8 };
enum { ONCE, THIS_FILE, ALL_FILES };

struct control {
    int64_t at;     /* the read that fails, counted from 1; 0: none */
    int64_t count;  /* reads so far, of the kinds below */
    int64_t failed; /* how many */
    int32_t kinds;
    int32_t number; /* errno; 0: fewer bytes than were asked for */
    int32_t lasting;
    int32_t unused;
    char under[2048];
    char first[2048]; /* the path of the first that failed */
};

static struct control *control;

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))

__attribute__((constructor)) static void load(void) {
    const char *path = getenv("FAILING_READS");
    int fd = path ? REAL(open)(path, O_RDWR) : -1;
    if (fd < 0) return;
    void *mapped = REAL(mmap)(NULL, sizeof *control, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    if (mapped != MAP_FAILED) control = mapped;
}

static int fails(int kind, const char *path) {
    if (!control || !control->under[0] || !(control->kinds & kind)) return 0;
    if (strncmp(path, control->under, strlen(control->under))) return 0;
    int64_t count = __atomic_add_fetch(&control->count, 1, __ATOMIC_SEQ_CST);
    if (!control->at || count < control->at) return 0;
    if (count == control->at)
        strncpy(control->first, path, sizeof control->first - 1);
    else if (control->lasting == ONCE || (control->lasting == THIS_FILE && strcmp(path, control->first)))
        return 0;
    __atomic_add_fetch(&control->failed, 1, __ATOMIC_SEQ_CST);
    return 1;
}

static int open_fails(int dir, const char *path, int flags) {
    char full[8192], folder[4096], link[64];
    if (!control || !control->under[0] || (flags & O_ACCMODE) != O_RDONLY) return 0;
    if (path[0] == '/') return fails(OPEN, path);
    ssize_t length;
    if (dir == AT_FDCWD) {
        if (!getcwd(folder, sizeof folder)) return 0;
    } else {
        snprintf(link, sizeof link, "/proc/self/fd/%d", dir);
        length = readlink(link, folder, sizeof folder - 1);
        if (length < 0) return 0;
        folder[length] = 0;
    }
    snprintf(full, sizeof full, "%s/%s", folder, path);
    return fails(OPEN, full);
}

static int fd_fails(int kind, int fd) {
    char path[4096], link[64];
    int before = errno;
    if (!control || !control->under[0]) return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    errno = before;
    if (length < 0) return 0;
    path[length] = 0;
    return fails(kind, path);
}

#define OPENING(name)                                                                                                  \
    int name(const char *path, int flags, ...) {                                                                       \
        mode_t mode = 0;                                                                                               \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                           \
            va_list more;                                                                                              \
            va_start(more, flags);                                                                                     \
            mode = va_arg(more, mode_t);                                                                               \
            va_end(more);                                                                                              \
        }                                                                                                              \
        if (open_fails(AT_FDCWD, path, flags) && control->number) {                                                    \
            errno = control->number;                                                                                   \
            return -1;                                                                                                 \
        }                                                                                                              \
        return REAL(name)(path, flags, mode);                                                                          \
    }

OPENING(open)
OPENING(open64)

#define OPENING_AT(name)                                                                                               \
    int name(int dir, const char *path, int flags, ...) {                                                              \
        mode_t mode = 0;                                                                                               \
        if (flags & (O_CREAT | O_TMPFILE)) {                                                                           \
            va_list more;                                                                                              \
            va_start(more, flags);                                                                                     \
            mode = va_arg(more, mode_t);                                                                               \
            va_end(more);                                                                                              \
        }                                                                                                              \
        if (open_fails(dir, path, flags) && control->number) {                                                         \
            errno = control->number;                                                                                   \
            return -1;                                                                                                 \
        }                                                                                                              \
        return REAL(name)(dir, path, flags, mode);                                                                     \
    }

OPENING_AT(openat)
OPENING_AT(openat64)

/* Of several bytes, half. */
#define READING(name, fd, size, ...)                                                                                   \
    {                                                                                                                  \
        if (fd_fails(READ, fd)) {                                                                                      \
            if (control->number) {                                                                                     \
                errno = control->number;                                                                               \
                return -1;                                                                                             \
            }                                                                                                          \
            size = (size + 1) / 2;                                                                                     \
        }                                                                                                              \
        return REAL(name)(__VA_ARGS__);                                                                                \
    }

ssize_t read(int fd, void *to, size_t size) READING(read, fd, size, fd, to, size) ssize_t
    pread(int fd, void *to, size_t size, off_t at) READING(pread, fd, size, fd, to, size, at) ssize_t
    pread64(int fd, void *to, size_t size, off64_t at) READING(pread64, fd, size, fd, to, size, at) ssize_t
    readv(int fd, const struct iovec *to, int size) READING(readv, fd, size, fd, to, size) ssize_t
    preadv(int fd, const struct iovec *to, int size, off_t at) READING(preadv, fd, size, fd, to, size, at) ssize_t
    sendfile(int out, int fd, off_t *at, size_t size) READING(sendfile, fd, size, out, fd, at, size) ssize_t
    sendfile64(int out, int fd, off64_t *at, size_t size) READING(sendfile64, fd, size, out, fd, at, size) ssize_t
    copy_file_range(int fd, off64_t *from, int out, off64_t *to, size_t size, unsigned flags)
        READING(copy_file_range, fd, size, fd, from, out, to, size, flags)

#define MAPPING(name, offset_t)                                                                                        \
    void *name(void *at, size_t size, int access, int flags, int fd, offset_t from) {                                  \
        if (fd >= 0 && !(flags & MAP_ANONYMOUS) && fd_fails(MAP, fd) && control->number) {                             \
            errno = control->number;                                                                                   \
            return MAP_FAILED;                                                                                         \
        }                                                                                                              \
        return REAL(name)(at, size, access, flags, fd, from);                                                          \
    }

            MAPPING(mmap, off_t) MAPPING(mmap64, off64_t)

#define STATING(name, stat_t)                                                                                          \
    int name(int fd, stat_t *to) {                                                                                     \
        if (fd_fails(STAT, fd) && control->number) {                                                                   \
            errno = control->number;                                                                                   \
            return -1;                                                                                                 \
        }                                                                                                              \
        return REAL(name)(fd, to);                                                                                     \
    }

                STATING(fstat, struct stat) STATING(fstat64, struct stat64)
