/* Notes what a process does to its files (LD_PRELOAD), so that it can be done again in part.
 *
 * Every write, truncation, flush, creation and removal of a file whose path contains $RECORD_PATH is
 * appended to $RECORD_LOG once it has succeeded, and what record_mark(n) is called with. Of a log's
 * shared memory nothing is noted: no power cut leaves anything of it. One process, any threads.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { MOST_FILES = 1024, LONGEST = 512 };

struct head { long kind, path_size, at, size; };

static char paths[MOST_FILES][LONGEST];
static int log_file = -1;
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;

static void put(const void *bytes, size_t size) {
    if (size && write(log_file, bytes, size) != (ssize_t)size) abort();
}

static void note(char kind, const char *path, long at, const void *bytes, long size) {
    struct head head = {kind, (long)strlen(path), at, size};
    pthread_mutex_lock(&turn);
    if (log_file < 0) log_file = open(getenv("RECORD_LOG"), O_WRONLY | O_CREAT | O_APPEND, 0600);
    put(&head, sizeof head);
    put(path, strlen(path));
    if (bytes) put(bytes, (size_t)size);
    pthread_mutex_unlock(&turn);
}

static int is_ours(const char *path) {
    const char *part = getenv("RECORD_PATH");
    size_t size = path ? strlen(path) : 0;
    return part && size && size < LONGEST && strstr(path, part) && (size < 4 || strcmp(path + size - 4, "-shm"));
}

static const char *path_of(int fd) { return fd >= 0 && fd < MOST_FILES && *paths[fd] ? paths[fd] : NULL; }

void record_mark(long number) { note('A', "", number, NULL, 0); }

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)

#define WRITING(name, offset) \
    ssize_t name(int fd, const void *bytes, size_t size, offset at) { \
        NEXT(name); \
        ssize_t done = next(fd, bytes, size, at); \
        if (done > 0 && path_of(fd)) note('W', path_of(fd), at, bytes, done); \
        return done; \
    }
WRITING(pwrite, off_t)
WRITING(pwrite64, off64_t)

#define TRUNCATING(name, offset) \
    int name(int fd, offset size) { \
        NEXT(name); \
        int failed = next(fd, size); \
        if (!failed && path_of(fd)) note('T', path_of(fd), size, NULL, 0); \
        return failed; \
    }
TRUNCATING(ftruncate, off_t)
TRUNCATING(ftruncate64, off64_t)

#define FLUSHING(name) \
    int name(int fd) { \
        NEXT(name); \
        int failed = next(fd); \
        if (!failed && path_of(fd)) note('S', path_of(fd), 0, NULL, 0); \
        return failed; \
    }
FLUSHING(fsync)
FLUSHING(fdatasync)

int unlink(const char *path) {
    NEXT(unlink);
    int failed = next(path);
    if (!failed && is_ours(path)) note('U', path, 0, NULL, 0);
    return failed;
}

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        NEXT(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t permissions = va_arg(rest, mode_t); \
        va_end(rest); \
        int is_new = (flags & O_CREAT) && is_ours(path) && access(path, F_OK) != 0; \
        int fd = next(path, flags, permissions); \
        if (fd < 0 || fd >= MOST_FILES) return fd; \
        strcpy(paths[fd], is_ours(path) ? path : ""); \
        if (is_new) note('C', path, 0, NULL, 0); \
        return fd; \
    }
OPENING(open)
OPENING(open64)
