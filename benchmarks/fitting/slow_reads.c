/* A preloaded library that makes a storage slow: each call that reads from a file below a folder takes longer.
 *
 *     SLOW_READS_BELOW=<folder>       absolute, without links
 *     SLOW_READS_NS=<nanoseconds>     of each call that returns bytes
 *     SLOW_READS_NS_PER_MIB=<nanoseconds>   of each MiB that it returns
 *     SLOW_READS_COUNT=<file>         exists, of 8 bytes: number of slowed calls of all processes, which this adds to
 *
 * Calls: read, pread, readv, preadv, preadv2 and fread of the C library.  A call sleeps on its own: threads and
 * processes do not wait for each other, as with a storage of many devices.  Pages of mapped files are not slowed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <time.h>
#include <unistd.h>

enum { SECOND = 1000000000 };

static const char *below;
static size_t below_size;
static uint64_t call_ns, mib_ns;
static uint64_t unseen, *slowed = &unseen;

static uint64_t number_in(const char *variable)
{
    const char *text = getenv(variable);
    return text == NULL ? 0 : strtoull(text, NULL, 10);
}

static void count_in(const char *file)
{
    int fd = file == NULL ? -1 : open(file, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *shared = mmap(NULL, sizeof *slowed, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    if (shared != MAP_FAILED)
        slowed = shared;
    close(fd);
}

__attribute__((constructor)) static void begin(void)
{
    call_ns = number_in("SLOW_READS_NS");
    mib_ns = number_in("SLOW_READS_NS_PER_MIB");
    below = getenv("SLOW_READS_BELOW");
    below_size = below == NULL ? 0 : strlen(below);
    count_in(getenv("SLOW_READS_COUNT"));
}

static int is_below(int fd)
{
    char link[40], path[PATH_MAX];
    if (below_size == 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    long size = syscall(SYS_readlinkat, AT_FDCWD, link, path, sizeof path);
    return size > (long)below_size && memcmp(path, below, below_size) == 0 && path[below_size] == '/';
}

static void sleep_for(uint64_t ns)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    uint64_t end = (uint64_t)time.tv_sec * SECOND + (uint64_t)time.tv_nsec + ns;
    time = (struct timespec){(time_t)(end / SECOND), (long)(end % SECOND)};
    int slack = prctl(PR_GET_TIMERSLACK);
    prctl(PR_SET_TIMERSLACK, 1);
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
        ;
    prctl(PR_SET_TIMERSLACK, slack);
}

/* Returns the result of a read of a descriptor, after the time that the slow storage needs for it. */
static ssize_t delayed(int fd, ssize_t bytes)
{
    int error = errno;
    if (bytes > 0 && is_below(fd)) {
        __atomic_fetch_add(slowed, 1, __ATOMIC_RELAXED);
        sleep_for(call_ns + (uint64_t)((double)bytes * (double)mib_ns / (1 << 20)));
    }
    errno = error;
    return bytes;
}

#define REAL(name) ((__typeof__(&name))dlsym(RTLD_NEXT, #name))
#define READS(name, parameters, ...)                                                                                  \
    ssize_t name parameters                                                                                          \
    {                                                                                                                \
        static __typeof__(&name) real;                                                                               \
        if (real == NULL)                                                                                            \
            real = REAL(name);                                                                                       \
        return delayed(fd, real(__VA_ARGS__));                                                                       \
    }

READS(read, (int fd, void *data, size_t size), fd, data, size)
READS(pread, (int fd, void *data, size_t size, off_t offset), fd, data, size, offset)
READS(pread64, (int fd, void *data, size_t size, off64_t offset), fd, data, size, offset)
READS(readv, (int fd, const struct iovec *parts, int count), fd, parts, count)
READS(preadv, (int fd, const struct iovec *parts, int count, off_t offset), fd, parts, count, offset)
READS(preadv64, (int fd, const struct iovec *parts, int count, off64_t offset), fd, parts, count, offset)
READS(preadv2, (int fd, const struct iovec *parts, int count, off_t offset, int flags), fd, parts, count, offset, flags)
READS(preadv64v2, (int fd, const struct iovec *parts, int count, off64_t offset, int flags), fd, parts, count, offset,
      flags)

size_t fread(void *data, size_t size, size_t count, FILE *file)
{
    static __typeof__(&fread) real;
    if (real == NULL)
        real = REAL(fread);
    size_t items = real(data, size, count, file);
    delayed(fileno(file), (ssize_t)(items * size));
    return items;
}
