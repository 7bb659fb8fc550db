/* Stands between a process and the calls by which SQLite reaches its files (LD_PRELOAD).
 *
 * shim_arm(n, mode, calls) counts the calls named by the bits of `calls`, and at the n-th does what
 * `mode` says. With FOREVER added to the mode, every later one gets the same. n = 0 only counts.
 * Opens and removals count only for paths that contain $SHIM_PATH.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

enum { KILL_BEFORE, KILL_AFTER, KILL_TORN, FAIL_EIO, FAIL_ENOSPC, SHORT_WRITE, FAIL_EAGAIN, FAIL_EACCES };
enum { FOREVER = 64, MODE = 63 };
enum { WRITE = 1, SYNC = 2, TRUNCATE = 4, LOCK = 8, READ = 16, OPEN = 32, REMOVE = 64 };

static long count, target;
static int mode, counted;

void shim_arm(long at, int how, int calls) {
    __atomic_store_n(&counted, 0, __ATOMIC_SEQ_CST);
    count = 0;
    target = at;
    mode = how;
    __atomic_store_n(&counted, calls, __ATOMIC_SEQ_CST);
}

long shim_count(void) { return __atomic_load_n(&count, __ATOMIC_SEQ_CST); }

static void die(void) { kill(getpid(), SIGKILL); for (;;) pause(); }

/* Is it now, and for this call? */
static int is_due(int call) {
    if (!(__atomic_load_n(&counted, __ATOMIC_SEQ_CST) & call)) return 0;
    long number = __atomic_add_fetch(&count, 1, __ATOMIC_SEQ_CST);
    if (!target) return 0;
    return (mode & FOREVER) ? number >= target : number == target;
}

static int how(void) { return mode & MODE; }

/* Whether it only gives a lock back, which no system refuses. */
static int is_unlocking(const void *lock) { return how() >= FAIL_EIO && ((const struct flock *)lock)->l_type == F_UNLCK; }

/* For a call that is due: errno set and -1, or 0 if it is to go on (and die afterwards). */
static int refuse(void) {
    switch (how()) {
    case KILL_BEFORE: case KILL_TORN: die(); break;
    case FAIL_EIO: case SHORT_WRITE: errno = EIO; return -1;
    case FAIL_ENOSPC: errno = ENOSPC; return -1;
    case FAIL_EAGAIN: errno = EAGAIN; return -1;
    case FAIL_EACCES: errno = EACCES; return -1;
    }
    return 0;
}

#define NEXT(name) \
    static __typeof__(name) *next; \
    if (!next) next = (__typeof__(name) *)dlsym(RTLD_NEXT, #name)
#define AROUND(call, invocation) \
    if (!is_due(call)) return invocation; \
    if (refuse()) return -1; \
    __typeof__(invocation) result = invocation; \
    die(); \
    return result

static ssize_t write_part(ssize_t (*next)(int, const void *, size_t, off64_t), int fd, const void *bytes, size_t size, off64_t at) {
    if (how() == SHORT_WRITE) return next(fd, bytes, size / 2, at);
    if (how() == KILL_TORN) { next(fd, bytes, size / 2, at); die(); }
    if (refuse()) return -1;
    next(fd, bytes, size, at);
    die();
    return -1;
}

ssize_t pwrite64(int fd, const void *bytes, size_t size, off64_t at) {
    NEXT(pwrite64);
    return is_due(WRITE) ? write_part(next, fd, bytes, size, at) : next(fd, bytes, size, at);
}

ssize_t pwrite(int fd, const void *bytes, size_t size, off_t at) {
    NEXT(pwrite);
    return is_due(WRITE) ? write_part((ssize_t (*)(int, const void *, size_t, off64_t))next, fd, bytes, size, at) : next(fd, bytes, size, at);
}

ssize_t pread64(int fd, void *bytes, size_t size, off64_t at) { NEXT(pread64); AROUND(READ, next(fd, bytes, size, at)); }
ssize_t pread(int fd, void *bytes, size_t size, off_t at) { NEXT(pread); AROUND(READ, next(fd, bytes, size, at)); }
int fsync(int fd) { NEXT(fsync); AROUND(SYNC, next(fd)); }
int fdatasync(int fd) { NEXT(fdatasync); AROUND(SYNC, next(fd)); }
int ftruncate64(int fd, off64_t size) { NEXT(ftruncate64); AROUND(TRUNCATE, next(fd, size)); }
int ftruncate(int fd, off_t size) { NEXT(ftruncate); AROUND(TRUNCATE, next(fd, size)); }

static int is_ours(const char *path) {
    const char *part = getenv("SHIM_PATH");
    return part && path && strstr(path, part) != NULL;
}

int unlink(const char *path) {
    NEXT(unlink);
    if (!is_ours(path)) return next(path);
    AROUND(REMOVE, next(path));
}

#define OPENING(name) \
    int name(const char *path, int flags, ...) { \
        NEXT(name); \
        va_list rest; \
        va_start(rest, flags); \
        mode_t permissions = va_arg(rest, mode_t); \
        va_end(rest); \
        if (!is_ours(path)) return next(path, flags, permissions); \
        AROUND(OPEN, next(path, flags, permissions)); \
    }
OPENING(open)
OPENING(open64)

#define LOCKING(name) \
    int name(int fd, int command, ...) { \
        NEXT(name); \
        va_list rest; \
        va_start(rest, command); \
        void *argument = va_arg(rest, void *); \
        va_end(rest); \
        if (command != F_SETLK || is_unlocking(argument)) return next(fd, command, argument); \
        AROUND(LOCK, next(fd, command, argument)); \
    }
LOCKING(fcntl)
LOCKING(fcntl64)

/* Whoever waits for a lock that is refused for ever waits a hundredth of the time: SQLite takes ten
 * seconds, counted in naps, to give up on the locks of its log. */
int usleep(useconds_t microseconds) {
    NEXT(usleep);
    int in_vain = (__atomic_load_n(&counted, __ATOMIC_SEQ_CST) & LOCK) && (mode & FOREVER);
    return next(in_vain ? microseconds / 100 : microseconds);
}
