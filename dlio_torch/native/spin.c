/* Waiting and burning CPU time without the interpreter lock.
 *
 * Called through ctypes.CDLL, which releases the lock for the length of a call.  Deadlines are
 * nanoseconds of CLOCK_MONOTONIC, the clock of Python's time.monotonic_ns and time.perf_counter_ns
 * on Linux.  No call lasts much longer than SLICE_NS: it then returns early, with a time before the
 * deadline, so that the interpreter can run its signal handlers; the caller calls again.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <limits.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

#define SLICE_NS INT64_C(50000000)
#define LAST_SLEEP_NS INT64_C(1000000)
#define SECOND_NS INT64_C(1000000000)

static int64_t clock_ns(clockid_t clock)
{
    struct timespec t;
    clock_gettime(clock, &t);
    return (int64_t)t.tv_sec * SECOND_NS + t.tv_nsec;
}

static int64_t earlier(int64_t a, int64_t b)
{
    return a < b ? a : b;
}

static int64_t spin(int64_t end)
{
    int64_t now;
    while ((now = clock_ns(CLOCK_MONOTONIC)) < end)
        ;
    return now;
}

/* Spin until the deadline or for one slice; returns the time then. */
int64_t dlio_spin_until(int64_t deadline_ns)
{
    return spin(earlier(deadline_ns, clock_ns(CLOCK_MONOTONIC) + SLICE_NS));
}

static int sleep_to(int64_t until)
{
    struct timespec t = {.tv_sec = until / SECOND_NS, .tv_nsec = until % SECOND_NS};
    return clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL);
}

/* Sleep until spin_tail_ns before the deadline, spin the rest; at most one slice, or until a signal
 * interrupts the sleep; returns the time then.
 *
 * The longer a core has been idle, the later it wakes: a long sleep is therefore cut in two, the
 * second part being short. */
int64_t dlio_sleep_until(int64_t deadline_ns, int64_t spin_tail_ns)
{
    int64_t now = clock_ns(CLOCK_MONOTONIC);
    int64_t limit = now + SLICE_NS;
    int64_t wake = deadline_ns - spin_tail_ns;

    if (wake > limit) {
        sleep_to(limit);
        return clock_ns(CLOCK_MONOTONIC);
    }
    if (wake - now > 2 * LAST_SLEEP_NS && sleep_to(wake - LAST_SLEEP_NS) != 0)
        return clock_ns(CLOCK_MONOTONIC);
    if (wake > now && sleep_to(wake) != 0)
        return clock_ns(CLOCK_MONOTONIC);
    return spin(earlier(deadline_ns, clock_ns(CLOCK_MONOTONIC) + SLICE_NS));
}

/* Use the calling thread's CPU until its CPU time (CLOCK_THREAD_CPUTIME_ID) reaches the deadline, or
 * for one slice of wall time; returns the thread's CPU time then.  The CPU clock costs a system
 * call, so the wall clock paces the loop: CPU time never grows faster than wall time, and what
 * another process took away is made up in the next round. */
int64_t dlio_burn_until(int64_t cpu_deadline_ns)
{
    int64_t limit = clock_ns(CLOCK_MONOTONIC) + SLICE_NS;
    for (;;) {
        int64_t cpu = clock_ns(CLOCK_THREAD_CPUTIME_ID);
        int64_t now = clock_ns(CLOCK_MONOTONIC);
        if (cpu >= cpu_deadline_ns || now >= limit)
            return cpu;
        spin(earlier(now + (cpu_deadline_ns - cpu), limit));
    }
}

/* Threads that are busy beside the calling one.  They are made once, sleep on a condition variable
 * between spins, never touch the interpreter, and take no signals. */
struct pool {
    pthread_mutex_t lock;
    pthread_cond_t wake;
    uint64_t round;
    int stop;
    int helpers;
    pid_t owner;
    _Atomic int64_t until;
    pthread_t *ids;
};

static void *helper_main(void *argument)
{
    struct pool *pool = argument;
    uint64_t seen = 0;

    pthread_mutex_lock(&pool->lock);
    for (;;) {
        while (!pool->stop && pool->round == seen)
            pthread_cond_wait(&pool->wake, &pool->lock);
        if (pool->stop)
            break;
        seen = pool->round;
        pthread_mutex_unlock(&pool->lock);
        while (clock_ns(CLOCK_MONOTONIC) < atomic_load_explicit(&pool->until, memory_order_relaxed))
            ;
        pthread_mutex_lock(&pool->lock);
    }
    pthread_mutex_unlock(&pool->lock);
    return NULL;
}

static void stop_helpers(struct pool *pool, int started)
{
    atomic_store(&pool->until, 0);
    pthread_mutex_lock(&pool->lock);
    pool->stop = 1;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    for (int i = 0; i < started; i++)
        pthread_join(pool->ids[i], NULL);
}

/* Start the helpers in this process; 0, or the errno of the first thread that could not be made. */
static int start_helpers(struct pool *pool)
{
    pthread_attr_t attributes;
    sigset_t all, before;
    int error = 0, started = 0;

    pthread_mutex_init(&pool->lock, NULL);
    pthread_cond_init(&pool->wake, NULL);
    pool->round = 0;
    pool->stop = 0;
    atomic_store(&pool->until, 0);

    pthread_attr_init(&attributes);
    pthread_attr_setstacksize(&attributes, PTHREAD_STACK_MIN + 65536);
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &before);
    while (started < pool->helpers && error == 0) {
        error = pthread_create(&pool->ids[started], &attributes, helper_main, pool);
        if (error == 0)
            pthread_setname_np(pool->ids[started++], "dlio-compute");
    }
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    pthread_attr_destroy(&attributes);
    if (error != 0)
        stop_helpers(pool, started);
    else
        pool->owner = getpid();
    return error;
}

/* A pool of `helpers` threads, which start with the first spin; NULL without memory. */
struct pool *dlio_pool_create(int helpers)
{
    struct pool *pool = calloc(1, sizeof *pool);
    if (pool == NULL)
        return NULL;
    pool->helpers = helpers;
    pool->ids = calloc(helpers > 0 ? helpers : 1, sizeof *pool->ids);
    if (pool->ids == NULL) {
        free(pool);
        return NULL;
    }
    return pool;
}

/* As dlio_spin_until, with the helpers busy too; a negative errno where they could not be started.
 * After fork the child has no helpers: the first spin there starts its own. */
int64_t dlio_pool_spin_until(struct pool *pool, int64_t deadline_ns)
{
    if (pool->owner != getpid()) {
        int error = start_helpers(pool);
        if (error != 0)
            return -(int64_t)error;
    }
    int64_t now = clock_ns(CLOCK_MONOTONIC);
    pthread_mutex_lock(&pool->lock);
    /* Two slices, so that the helpers stay busy while the interpreter calls for the next slice, and
     * stop by themselves when it never does. */
    atomic_store_explicit(&pool->until, earlier(deadline_ns, now + 2 * SLICE_NS), memory_order_relaxed);
    pool->round++;
    pthread_cond_broadcast(&pool->wake);
    pthread_mutex_unlock(&pool->lock);
    return spin(earlier(deadline_ns, now + SLICE_NS));
}

/* End the helpers (those of this process) and free the pool. */
void dlio_pool_destroy(struct pool *pool)
{
    if (pool->owner == getpid())
        stop_helpers(pool, pool->helpers);
    free(pool->ids);
    free(pool);
}
