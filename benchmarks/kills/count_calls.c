/* Counts the calls of a process tree on some files, and sends a signal when the drawn one is about to be made.
 *
 * Preload it (LD_PRELOAD) with KILL_POINTS_PAGE naming a file of sizeof(struct page) bytes that all processes of the
 * tree map, and KILL_POINTS_PATHS the prefixes of the files that count, one per line.  benchmarks/kills/counting.py
 * makes both and knows the layout of the page.  The signal is sent before the call is made, so that each state of the
 * files between two calls can be met. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <semaphore.h>
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
#include <sys/uio.h>
#include <unistd.h>

enum victim { MAIN, OTHER, GROUP };

struct page {
    _Atomic int64_t count[2];   /* calls so far: all, those that change files */
    int64_t target;             /* number of the call before which the signal is sent, from 1; 0: never */
    int32_t number;             /* of the signal */
    int32_t victim;             /* enum victim */
    int32_t changes;            /* target is a number of calls that change files */
    _Atomic int32_t main;       /* the first process of the tree */
    _Atomic int32_t killed;     /* the process that got the signal; 0: none so far */
    _Atomic int32_t used;       /* bytes of shared */
    char what[500];             /* the call before which it was sent */
    char shared[65536];         /* names of shared memory that were made, one per line */
};

static struct page *page;
static char paths[8192];

/* Called when a process begins, and by one that was forked on purpose, with the variables set. */
__attribute__((constructor)) void kill_points_begin(void)
{
    const char *name = getenv("KILL_POINTS_PAGE"), *wanted = getenv("KILL_POINTS_PATHS");
    if (name == NULL || wanted == NULL || strlen(wanted) >= sizeof paths)
        return;
    strcpy(paths, wanted);
    int descriptor = open(name, O_RDWR | O_CLOEXEC);
    if (descriptor < 0)
        return;
    void *found = mmap(NULL, sizeof(struct page), PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    close(descriptor);
    if (found == MAP_FAILED)
        return;
    page = found;
    int32_t none = 0;
    atomic_compare_exchange_strong(&page->main, &none, getpid());
}

/* Whether a file is one that counts; a name that is not absolute lies in the working folder. */
static int counts(const char *path)
{
    char whole[PATH_MAX];
    if (*path != '/') {
        if (getcwd(whole, sizeof whole) == NULL)
            return 0;
        path = whole;
    }
    for (const char *prefix = paths; *prefix; prefix += strcspn(prefix, "\n"), prefix += *prefix == '\n') {
        size_t size = strcspn(prefix, "\n");
        if (size > 0 && strncmp(path, prefix, size) == 0)
            return 1;
    }
    return 0;
}

static void strike(const char *operation, const char *path)
{
    int32_t none = 0, main = atomic_load(&page->main), victim = page->victim == OTHER ? getpid() : main;
    if (page->victim == OTHER && victim == main)
        return; /* the next call of another process it is */
    if (!atomic_compare_exchange_strong(&page->killed, &none, victim))
        return;
    snprintf(page->what, sizeof page->what, "%s %s", operation, path);
    kill(page->victim == GROUP ? -victim : victim, page->number);
}

/* Whether a call may change what lies on disk. */
static int changes(const char *operation)
{
    static const char *const others[] = {"open", "read", "pread", "mmap", "close"};
    for (size_t i = 0; i < sizeof others / sizeof *others; i++)
        if (strncmp(operation, others[i], strlen(others[i])) == 0)
            return 0;
    return 1;
}

static void named(const char *operation, const char *path)
{
    if (page == NULL || path == NULL)
        return;
    int before = errno;
    if (counts(path)) {
        int64_t number = atomic_fetch_add(&page->count[0], 1) + 1;
        if (changes(operation)) {
            int64_t change = atomic_fetch_add(&page->count[1], 1) + 1;
            number = page->changes ? change : number;
        } else if (page->changes) {
            number = 0;
        }
        if (page->target > 0 && number >= page->target && atomic_load(&page->killed) == 0)
            strike(operation, path);
    }
    errno = before;
}

static void opened(const char *operation, int descriptor)
{
    if (page == NULL || descriptor < 0)
        return;
    int before = errno;
    char link[64], path[PATH_MAX];
    snprintf(link, sizeof link, "/proc/self/fd/%d", descriptor);
    ssize_t size = readlink(link, path, sizeof path - 1);
    if (size > 0) {
        path[size] = 0;
        if (*path == '/')
            named(operation, path);
    }
    errno = before;
}

static void made(const char *name)
{
    if (page == NULL || name == NULL)
        return;
    int size = (int)strlen(name) + 1, at = atomic_fetch_add(&page->used, size);
    if (at + size > (int)sizeof page->shared)
        return;
    memcpy(page->shared + at, name, size - 1);
    page->shared[at + size - 1] = '\n';
}

#define NEXT(name) \
    static __typeof__(&name) next; \
    if (next == NULL) \
        next = (__typeof__(&name))dlsym(RTLD_NEXT, #name)

#define BY_NAME(result, name, arguments, values, path) \
    result name arguments { NEXT(name); named(#name, path); return next values; }

#define BY_DESCRIPTOR(result, name, arguments, values, descriptor) \
    result name arguments { NEXT(name); opened(#name, descriptor); return next values; }

#define OPENING(name, arguments, values, path, last) \
    int name arguments \
    { \
        NEXT(name); \
        mode_t mode = 0; \
        if (flags & (O_CREAT | O_TMPFILE)) { \
            va_list more; \
            va_start(more, last); \
            mode = va_arg(more, mode_t); \
            va_end(more); \
        } \
        named(flags & (O_CREAT | O_TRUNC | O_TMPFILE) ? "create" : #name, path); \
        if ((flags & O_CREAT) && strncmp(path, "/dev/shm/", 9) == 0) \
            made(path + 9); \
        return next values; \
    }

OPENING(open, (const char *path, int flags, ...), (path, flags, mode), path, flags)
OPENING(open64, (const char *path, int flags, ...), (path, flags, mode), path, flags)
OPENING(openat, (int folder, const char *path, int flags, ...), (folder, path, flags, mode), path, flags)
OPENING(openat64, (int folder, const char *path, int flags, ...), (folder, path, flags, mode), path, flags)
BY_NAME(FILE *, fopen, (const char *path, const char *mode), (path, mode), path)
BY_NAME(FILE *, fopen64, (const char *path, const char *mode), (path, mode), path)
BY_NAME(int, rename, (const char *from, const char *to), (from, to), from)
BY_NAME(int, renameat, (int a, const char *from, int b, const char *to), (a, from, b, to), from)
BY_NAME(int, unlink, (const char *path), (path), path)
BY_NAME(int, unlinkat, (int folder, const char *path, int flags), (folder, path, flags), path)
BY_NAME(int, rmdir, (const char *path), (path), path)
BY_NAME(int, mkdir, (const char *path, mode_t mode), (path, mode), path)
BY_NAME(int, mkdirat, (int folder, const char *path, mode_t mode), (folder, path, mode), path)
BY_NAME(int, truncate, (const char *path, off_t size), (path, size), path)
BY_NAME(int, utimensat, (int folder, const char *path, const struct timespec times[2], int flags), (folder, path, times, flags), path)
BY_NAME(int, symlink, (const char *target, const char *path), (target, path), path)

int shm_open(const char *name, int flags, mode_t mode)
{
    NEXT(shm_open);
    named("shm_open", "/dev/shm/");
    if (flags & O_CREAT)
        made(name + (*name == '/'));
    return next(name, flags, mode);
}

sem_t *sem_open(const char *name, int flags, ...)
{
    NEXT(sem_open);
    mode_t mode = 0;
    unsigned int value = 0;
    char file[300];
    if (flags & O_CREAT) {
        va_list more;
        va_start(more, flags);
        mode = va_arg(more, mode_t);
        value = va_arg(more, unsigned int);
        va_end(more);
        snprintf(file, sizeof file, "sem.%s", name + (*name == '/'));
        made(file);
    }
    named("sem_open", "/dev/shm/");
    return next(name, flags, mode, value);
}

int sem_unlink(const char *name)
{
    NEXT(sem_unlink);
    named("sem_unlink", "/dev/shm/");
    return next(name);
}

int shm_unlink(const char *name)
{
    NEXT(shm_unlink);
    named("shm_unlink", "/dev/shm/");
    return next(name);
}

BY_DESCRIPTOR(ssize_t, read, (int d, void *to, size_t size), (d, to, size), d)
BY_DESCRIPTOR(ssize_t, pread, (int d, void *to, size_t size, off_t at), (d, to, size, at), d)
BY_DESCRIPTOR(ssize_t, pread64, (int d, void *to, size_t size, off64_t at), (d, to, size, at), d)
BY_DESCRIPTOR(ssize_t, preadv, (int d, const struct iovec *to, int count, off_t at), (d, to, count, at), d)
BY_DESCRIPTOR(ssize_t, preadv64, (int d, const struct iovec *to, int count, off64_t at), (d, to, count, at), d)
BY_DESCRIPTOR(ssize_t, write, (int d, const void *from, size_t size), (d, from, size), d)
BY_DESCRIPTOR(ssize_t, pwrite, (int d, const void *from, size_t size, off_t at), (d, from, size, at), d)
BY_DESCRIPTOR(ssize_t, pwrite64, (int d, const void *from, size_t size, off64_t at), (d, from, size, at), d)
BY_DESCRIPTOR(ssize_t, writev, (int d, const struct iovec *from, int count), (d, from, count), d)
BY_DESCRIPTOR(ssize_t, pwritev, (int d, const struct iovec *from, int count, off_t at), (d, from, count, at), d)
BY_DESCRIPTOR(ssize_t, sendfile, (int to, int from, off_t *at, size_t size), (to, from, at, size), to)
BY_DESCRIPTOR(ssize_t, sendfile64, (int to, int from, off64_t *at, size_t size), (to, from, at, size), to)
BY_DESCRIPTOR(int, ftruncate, (int d, off_t size), (d, size), d)
BY_DESCRIPTOR(int, ftruncate64, (int d, off64_t size), (d, size), d)
BY_DESCRIPTOR(int, fsync, (int d), (d), d)
BY_DESCRIPTOR(int, fdatasync, (int d), (d), d)
BY_DESCRIPTOR(int, fchmod, (int d, mode_t mode), (d, mode), d)
BY_DESCRIPTOR(int, close, (int d), (d), d)
BY_DESCRIPTOR(int, fflush, (FILE *file), (file), (file == NULL ? -1 : fileno(file)))
BY_DESCRIPTOR(int, fclose, (FILE *file), (file), fileno(file))
BY_DESCRIPTOR(void *, mmap, (void *to, size_t size, int protection, int flags, int d, off_t at), (to, size, protection, flags, d, at), d)
BY_DESCRIPTOR(void *, mmap64, (void *to, size_t size, int protection, int flags, int d, off64_t at), (to, size, protection, flags, d, at), d)
