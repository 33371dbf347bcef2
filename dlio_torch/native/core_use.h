/* What a part of a job took of a thread: begin, end, processor time, waiting for a core, bytes of devices. */

#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

enum { DEVICE_BLOCK = 512 }; /* unit of ru_inblock, whatever the device's own */

/* Int64 fields that Python reads; times in ns, -1: not known. */
struct use {
    int64_t task, item, bytes; /* of the part: where it begins, and its size */
    int64_t thread;            /* number that the kernel gave it */
    int64_t begin, end;        /* CLOCK_MONOTONIC */
    int64_t processor, kernel; /* time on a core, and in the kernel */
    int64_t delay;             /* runnable without a core */
    int64_t device;            /* bytes that block devices delivered */
};

static int64_t nanoseconds(clockid_t clock)
{
    struct timespec now;
    clock_gettime(clock, &now);
    return now.tv_sec * INT64_C(1000000000) + now.tv_nsec;
}

/* Time for which this thread has waited for a core; -1: the kernel does not tell. */
static int64_t queue_delay(int clock)
{
    char text[80];
    long long running, waiting;
    ssize_t got = clock < 0 ? -1 : pread(clock, text, sizeof text - 1, 0);
    if (got <= 0)
        return -1;
    text[got] = 0;
    return sscanf(text, "%lld %lld", &running, &waiting) == 2 ? waiting : -1;
}

/* The figures of this thread so far, into `use`, whose begin or end is the caller's. */
static void current_use(struct use *use, int clock)
{
    struct rusage usage;
    use->processor = nanoseconds(CLOCK_THREAD_CPUTIME_ID); /* first: it brings the others up to date */
    getrusage(RUSAGE_THREAD, &usage);
    use->kernel = usage.ru_stime.tv_sec * INT64_C(1000000000) + usage.ru_stime.tv_usec * INT64_C(1000);
    use->device = (int64_t)usage.ru_inblock * DEVICE_BLOCK;
    use->delay = queue_delay(clock);
}

/* Begin a part; `*clock` is the kernel's file about this thread, opened by its first part. */
static void begin_use(struct use *use, int *clock, int64_t thread)
{
    if (*clock < 0)
        *clock = open("/proc/thread-self/schedstat", O_RDONLY | O_CLOEXEC);
    use->thread = thread;
    current_use(use, *clock);
    use->begin = nanoseconds(CLOCK_MONOTONIC);
}

static void end_use(struct use *use, int clock)
{
    struct use now;
    use->end = nanoseconds(CLOCK_MONOTONIC);
    current_use(&now, clock);
    use->processor = now.processor - use->processor;
    use->kernel = now.kernel - use->kernel;
    use->device = now.device - use->device;
    use->delay = use->delay < 0 || now.delay < 0 ? -1 : now.delay - use->delay;
}
