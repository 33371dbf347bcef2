/* A simulated storage: reads that are answered from memory take as long as a storage with a latency and a bandwidth
 * would need for them.
 *
 * A request spends the latency and its jitter on its own, then passes a pipe that all processes share, one request
 * after the other in the order of their arrival at the pipe:
 *
 *     arrival = begin of the call + latency + jitter,  jitter uniform in [0, jitter_ns)
 *     end     = max(arrival, end of the request before) + bytes / bandwidth
 *
 * The parameters and the state of the pipe lie in a file that all processes map, named by DLIO_TORCH_MEMORY_DELAY.
 * No lock is held: a request reserves its time in the pipe by one atomic exchange, and then sleeps. */

#include <sys/prctl.h>
#include <time.h>

enum { DELAY_SPIN_NS = 3000, DELAY_SECOND = 1000000000 };

struct delay {
    uint64_t latency_ns, jitter_ns;
    uint64_t bytes_per_s; /* 0: the pipe takes no time */
    uint64_t seed;
    uint64_t pipe_free_ns; /* when the pipe has served all requests, on CLOCK_MONOTONIC */
    uint64_t reads, bytes; /* answered so far */
};

static struct delay *delay; /* NULL: reads take no time */

static void map_delay(const char *path)
{
    REAL(int (*)(const char *, int, ...), "open");
    int fd = path == NULL ? -1 : real(path, O_RDWR | O_CLOEXEC);
    if (fd < 0)
        return;
    void *shared = mmap(NULL, sizeof(struct delay), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    delay = shared == MAP_FAILED ? NULL : shared;
    close(fd);
}

static uint64_t now_ns(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (uint64_t)time.tv_sec * DELAY_SECOND + (uint64_t)time.tv_nsec;
}

/* Sleep up to the last microseconds, which are shorter than the way into the kernel and back.  A longer wait on a core
 * would be more exact on an idle machine; on a busy one the thread would wait for that core, too. */
static void sleep_until(uint64_t end)
{
    if (end > now_ns() + DELAY_SPIN_NS) {
        uint64_t wake = end - DELAY_SPIN_NS;
        struct timespec time = {(time_t)(wake / DELAY_SECOND), (long)(wake % DELAY_SECOND)};
        int slack = prctl(PR_GET_TIMERSLACK);
        prctl(PR_SET_TIMERSLACK, 1);
        while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &time, NULL) == EINTR)
            ;
        prctl(PR_SET_TIMERSLACK, slack);
    }
    while (now_ns() < end)
        ;
}

/* Hash of a request's number, uniform in 64 bits (splitmix64). */
static uint64_t random_of(uint64_t number)
{
    number += 0x9E3779B97F4A7C15u;
    number = (number ^ (number >> 30)) * 0xBF58476D1CE4E5B9u;
    number = (number ^ (number >> 27)) * 0x94D049BB133111EBu;
    return number ^ (number >> 31);
}

/* Time at which the pipe will have served a request that arrives at `arrival`. */
static uint64_t end_of_transfer(uint64_t arrival, uint64_t bytes)
{
    uint64_t length = (uint64_t)((double)bytes * DELAY_SECOND / (double)delay->bytes_per_s);
    uint64_t end, free_at = __atomic_load_n(&delay->pipe_free_ns, __ATOMIC_RELAXED);
    do
        end = (free_at > arrival ? free_at : arrival) + length;
    while (!__atomic_compare_exchange_n(&delay->pipe_free_ns, &free_at, end, 0, __ATOMIC_RELAXED, __ATOMIC_RELAXED));
    return end;
}

/* Wait as long as the storage takes for a read of so many bytes; a read of nothing (end of file) asks it nothing. */
static void delayed(size_t bytes)
{
    if (delay == NULL || bytes == 0)
        return;
    int error = errno;
    uint64_t begin = now_ns();
    uint64_t number = __atomic_fetch_add(&delay->reads, 1, __ATOMIC_RELAXED);
    __atomic_fetch_add(&delay->bytes, bytes, __ATOMIC_RELAXED);
    uint64_t jitter = (uint64_t)((double)(random_of(delay->seed + number) >> 11) * 0x1p-53 * (double)delay->jitter_ns);
    uint64_t arrival = begin + delay->latency_ns + jitter;
    if (delay->bytes_per_s == 0) {
        sleep_until(arrival);
    } else {
        sleep_until(arrival);
        sleep_until(end_of_transfer(arrival, bytes));
    }
    errno = error;
}
