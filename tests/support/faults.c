/* A preloaded library that lets calls of the C library fail: `cc -shared -fPIC -O1 -o faults.so faults.c`.
 *
 *     FAULTS=<rule>[;<rule>...]     rule: <call>[,<call>...]|<part of path>|<n>|<what>[|<times>]
 *     FAULTS_FIFO=<file>            what hangs reads from it; nobody may write to it
 *     FAULTS_COUNTS=<file>          counters that all processes of the tree share, 16 bytes for each rule
 *
 * The n-th of these calls on a file whose path has this part, and `times` in all from there on (0, the default: for
 * ever), does `what`: fails with this number of errno; `short`: moves half of what it was asked for; `hang`: waits for
 * ever; `kill`: the process kills itself; `kill-parent`: it kills its parent, and goes on; `stop`: it stops itself (SIGSTOP).  Calls: open (also creat, fopen), read,
 * write (with their relatives pread, writev ...), preadv2, rename, fsync, close, mkdir, unlink, mmap, ftruncate,
 * fallocate, stat, sendfile (and copy_file_range).
 * The counters say how many calls matched, and how many of them went wrong. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/sendfile.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

enum { RULES = 8, SHORT = -1, HANG = -2, KILL = -3, STOP = -4, KILL_PARENT = -5 };
struct rule { char calls[128], path[256]; long first, times; int what; };
struct count { _Atomic uint64_t matched, failed; };

static struct rule rules[RULES];
static int rule_count;
static struct count own[RULES], *counts = own;

/* Take these rules from now on; for a program that loads this library by its name, too. */
void faults_set(const char *text)
{
    char *copy = text ? strdup(text) : NULL, *rest = copy;
    rule_count = 0;
    for (char *one; rest && (one = strsep(&rest, ";")) && rule_count < RULES;) {
        struct rule *rule = &rules[rule_count];
        char *calls = strsep(&one, "|"), *path = strsep(&one, "|"), *first = strsep(&one, "|"), *what = strsep(&one, "|");
        if (!what)
            continue;
        snprintf(rule->calls, sizeof rule->calls, ",%s,", calls);
        snprintf(rule->path, sizeof rule->path, "%s", path);
        rule->first = atol(first);
        rule->times = one ? atol(one) : 0;
        rule->what = !strcmp(what, "short") ? SHORT : !strcmp(what, "hang") ? HANG : !strcmp(what, "kill") ? KILL
            : !strcmp(what, "stop") ? STOP : !strcmp(what, "kill-parent") ? KILL_PARENT : atoi(what);
        rule_count++;
    }
    free(copy);
}

__attribute__((constructor)) static void begin(void)
{
    const char *file = getenv("FAULTS_COUNTS");
    faults_set(getenv("FAULTS"));
    int fd = file ? (int)syscall(SYS_openat, AT_FDCWD, file, O_RDWR | O_CREAT | O_CLOEXEC, 0666) : -1;
    if (fd < 0)
        return;
    if (syscall(SYS_ftruncate, fd, sizeof own) == 0) {
        long at = syscall(SYS_mmap, 0, sizeof own, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
        if (at != -1)
            counts = (struct count *)at;
    }
    syscall(SYS_close, fd);
}

/* 0: nothing goes wrong; SHORT: half of it; else errno is set. */
static int fault(const char *call, const char *path, int fd)
{
    char name[140], link[40], target[4096];
    int before = errno, found = 0;
    snprintf(name, sizeof name, ",%s,", call);
    for (int i = 0; i < rule_count && !found; i++) {
        if (!strstr(rules[i].calls, name))
            continue;
        if (!path) {
            snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
            long size = syscall(SYS_readlinkat, AT_FDCWD, link, target, sizeof target - 1);
            target[size > 0 ? size : 0] = 0;
            path = target;
        }
        if (!strstr(path, rules[i].path))
            continue;
        long number = (long)atomic_fetch_add(&counts[i].matched, 1) + 1;
        if (number < rules[i].first || (rules[i].times && number >= rules[i].first + rules[i].times))
            continue;
        atomic_fetch_add(&counts[i].failed, 1);
        found = rules[i].what;
    }
    errno = before;
    if (found == HANG) {
        const char *fifo = getenv("FAULTS_FIFO");
        int never = fifo ? (int)syscall(SYS_openat, AT_FDCWD, fifo, O_RDWR | O_CLOEXEC, 0) : -1;
        for (;;)
            if (never < 0 || syscall(SYS_read, never, link, 1) <= 0)
                pause();
    }
    if (found == KILL || found == STOP)
        syscall(SYS_kill, syscall(SYS_getpid), found == KILL ? SIGKILL : SIGSTOP);
    if (found == KILL_PARENT)
        syscall(SYS_kill, syscall(SYS_getppid), SIGKILL);
    errno = found > 0 ? found : before;
    return found;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define HALF(count) ((count) > 1 ? (count) / 2 : (count))
#define SIMPLE(type, bad, name, call, path, fd, params, args)                                                     \
    type name params                                                                                              \
    {                                                                                                             \
        return fault(call, path, fd) > 0 ? (bad) : REAL(name) args;                                               \
    }
#define MOVES(name, call, params, ...)                                                                            \
    ssize_t name params                                                                                           \
    {                                                                                                             \
        int what = fault(call, NULL, fd);                                                                         \
        if (what > 0)                                                                                             \
            return -1;                                                                                            \
        if (what == SHORT)                                                                                        \
            count = HALF(count);                                                                                  \
        return REAL(name)(__VA_ARGS__);                                                                           \
    }
#define OPENS(name, dir_param, dir_arg)                                                                           \
    int name(dir_param const char *path, int flags, ...)                                                          \
    {                                                                                                             \
        va_list list;                                                                                             \
        va_start(list, flags);                                                                                    \
        mode_t mode = flags & (O_CREAT | O_TMPFILE) ? va_arg(list, mode_t) : 0;                                   \
        va_end(list);                                                                                             \
        return fault("open", path, -1) > 0 ? -1 : REAL(name)(dir_arg path, flags, mode);                          \
    }
#define DIR_PARAM int dir,
#define DIR_ARG dir,

OPENS(open, , )
OPENS(open64, , )
OPENS(openat, DIR_PARAM, DIR_ARG)
OPENS(openat64, DIR_PARAM, DIR_ARG)
SIMPLE(int, -1, creat, "open", path, -1, (const char *path, mode_t mode), (path, mode))
SIMPLE(int, -1, creat64, "open", path, -1, (const char *path, mode_t mode), (path, mode))
SIMPLE(FILE *, NULL, fopen, "open", path, -1, (const char *path, const char *mode), (path, mode))
SIMPLE(FILE *, NULL, fopen64, "open", path, -1, (const char *path, const char *mode), (path, mode))
MOVES(read, "read", (int fd, void *data, size_t count), fd, data, count)
MOVES(pread, "read", (int fd, void *data, size_t count, off_t at), fd, data, count, at)
MOVES(pread64, "read", (int fd, void *data, size_t count, off64_t at), fd, data, count, at)
MOVES(readv, "read", (int fd, const struct iovec *data, int count), fd, data, count)
MOVES(preadv, "read", (int fd, const struct iovec *data, int count, off_t at), fd, data, count, at)
MOVES(preadv64, "read", (int fd, const struct iovec *data, int count, off64_t at), fd, data, count, at)
MOVES(preadv2, "preadv2", (int fd, const struct iovec *data, int count, off_t at, int flags), fd, data, count, at, flags)
MOVES(preadv64v2, "preadv2", (int fd, const struct iovec *data, int count, off64_t at, int flags), fd, data, count, at, flags)
MOVES(write, "write", (int fd, const void *data, size_t count), fd, data, count)
MOVES(pwrite, "write", (int fd, const void *data, size_t count, off_t at), fd, data, count, at)
MOVES(pwrite64, "write", (int fd, const void *data, size_t count, off64_t at), fd, data, count, at)
MOVES(writev, "write", (int fd, const struct iovec *data, int count), fd, data, count)
MOVES(pwritev, "write", (int fd, const struct iovec *data, int count, off_t at), fd, data, count, at)
MOVES(pwritev64, "write", (int fd, const struct iovec *data, int count, off64_t at), fd, data, count, at)
MOVES(sendfile, "sendfile", (int fd, int in, off_t *at, size_t count), fd, in, at, count)
MOVES(sendfile64, "sendfile", (int fd, int in, off64_t *at, size_t count), fd, in, at, count)
MOVES(copy_file_range, "sendfile", (int in, off64_t *from, int fd, off64_t *to, size_t count, unsigned flags), in, from, fd, to, count, flags)
SIMPLE(int, -1, rename, "rename", to, -1, (const char *from, const char *to), (from, to))
SIMPLE(int, -1, renameat, "rename", to, -1, (int a, const char *from, int b, const char *to), (a, from, b, to))
SIMPLE(int, -1, fsync, "fsync", NULL, fd, (int fd), (fd))
SIMPLE(int, -1, fdatasync, "fsync", NULL, fd, (int fd), (fd))
SIMPLE(int, -1, mkdir, "mkdir", path, -1, (const char *path, mode_t mode), (path, mode))
SIMPLE(int, -1, mkdirat, "mkdir", path, -1, (int dir, const char *path, mode_t mode), (dir, path, mode))
SIMPLE(int, -1, unlink, "unlink", path, -1, (const char *path), (path))
SIMPLE(int, -1, unlinkat, "unlink", path, -1, (int dir, const char *path, int flags), (dir, path, flags))
SIMPLE(int, -1, ftruncate, "ftruncate", NULL, fd, (int fd, off_t size), (fd, size))
SIMPLE(int, -1, ftruncate64, "ftruncate", NULL, fd, (int fd, off64_t size), (fd, size))
SIMPLE(int, -1, stat, "stat", path, -1, (const char *path, struct stat *to), (path, to))
SIMPLE(int, -1, stat64, "stat", path, -1, (const char *path, struct stat64 *to), (path, to))
SIMPLE(int, -1, lstat, "stat", path, -1, (const char *path, struct stat *to), (path, to))
SIMPLE(int, -1, lstat64, "stat", path, -1, (const char *path, struct stat64 *to), (path, to))
SIMPLE(int, -1, fstat, "stat", NULL, fd, (int fd, struct stat *to), (fd, to))
SIMPLE(int, -1, fstat64, "stat", NULL, fd, (int fd, struct stat64 *to), (fd, to))
SIMPLE(int, -1, fstatat, "stat", path, -1, (int dir, const char *path, struct stat *to, int flags), (dir, path, to, flags))
SIMPLE(int, -1, fstatat64, "stat", path, -1, (int dir, const char *path, struct stat64 *to, int flags), (dir, path, to, flags))
SIMPLE(void *, MAP_FAILED, mmap, "mmap", NULL, fd, (void *at, size_t size, int how, int flags, int fd, off_t from), (at, size, how, flags, fd, from))
SIMPLE(void *, MAP_FAILED, mmap64, "mmap", NULL, fd, (void *at, size_t size, int how, int flags, int fd, off64_t from), (at, size, how, flags, fd, from))

/* What is asked to close a file closes it, whatever it says. */
int close(int fd)
{
    int what = fault("close", NULL, fd), result = REAL(close)(fd);
    if (what > 0)
        errno = what;
    return what > 0 ? -1 : result;
}

int posix_fallocate(int fd, off_t at, off_t size)
{
    int what = fault("fallocate", NULL, fd);
    return what > 0 ? what : REAL(posix_fallocate)(fd, at, size);
}

int posix_fallocate64(int fd, off64_t at, off64_t size)
{
    int what = fault("fallocate", NULL, fd);
    return what > 0 ? what : REAL(posix_fallocate64)(fd, at, size);
}
