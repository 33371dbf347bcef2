/* A pool of threads that fill memory by jobs: lists of extents to read, of records to take apart, of copies.
 *
 * Called through ctypes.  The threads run no Python.  They take parts of jobs in the order of the jobs, so that all
 * threads read a large one and none waits for a small one.  The caller keeps the arrays and the memory of a job until
 * the job is complete, or for good where a thread hangs in a read.
 */

#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include "core_jobs.h"

enum { THREAD_STACK = 1 << 20 };

static void *run(void *argument)
{
    struct thread *self = argument;
    struct core *core = self->core;
    int clock = -1; /* the kernel's file about this thread */
    pthread_mutex_lock(&core->lock);
    self->number = (int64_t)syscall(SYS_gettid);
    core->begun++;
    pthread_cond_broadcast(&core->completed);
    for (;;) {
        while (core->first == NULL && !core->stopping) {
            core->idle++;
            pthread_cond_wait(&core->work, &core->lock);
            core->idle--;
        }
        if (core->stopping)
            break;
        struct job *job = core->first;
        bind_block(core, job);
        int64_t task = job->task, failed[4] = {0, 0, 0, 0};
        struct portion part = next_part(&job->list[task], job->base, &core->settings, &job->item, &job->done);
        struct use use = {.task = task, .item = part.low, .bytes = part.bytes};
        job->under_way++;
        core->busy++;
        if (is_taken(job))
            remove_first(core);
        pthread_mutex_unlock(&core->lock);
        if (job->recorded)
            begin_use(&use, &clock, self->number);
        int64_t result = read_part(self->reader, &core->settings, &part, failed);
        if (job->recorded)
            end_use(&use, clock);
        pthread_mutex_lock(&core->lock);
        core->busy--;
        note(core, job, task, result, failed, &use);
        if (--job->under_way == 0 && job->task == job->tasks)
            complete(core, job);
    }
    core->alive--;
    pthread_cond_broadcast(&core->completed);
    pthread_mutex_unlock(&core->lock);
    if (clock >= 0)
        close(clock);
    return NULL;
}

static void free_core(struct core *core)
{
    for (int i = 0; i < core->threads; i++) {
        pthread_join(core->thread[i].id, NULL); /* which has left the lock, or is about to */
        free_reader(core->thread[i].reader);
    }
    pthread_cond_destroy(&core->completed);
    pthread_cond_destroy(&core->work);
    pthread_mutex_destroy(&core->lock);
    free(core->block);
    free(core);
}

/* The moment that is `seconds` away, on the clock of the conditions. */
static struct timespec moment(double seconds)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    int64_t ns = now.tv_nsec + (int64_t)(seconds * 1e9);
    return (struct timespec){now.tv_sec + ns / 1000000000, ns % 1000000000};
}

/* End the threads and free the pool.  Returns 0, or how many threads have not ended within `seconds`: then the pool
 * stays, and threads end after their read.  There are no jobs left that are not complete. */
int64_t dlio_core_close(struct core *core, double seconds)
{
    struct timespec end = moment(seconds);
    pthread_mutex_lock(&core->lock);
    core->stopping = 1;
    pthread_cond_broadcast(&core->work);
    while (core->alive > 0 && pthread_cond_timedwait(&core->completed, &core->lock, &end) == 0)
        ;
    int64_t left = core->alive;
    pthread_mutex_unlock(&core->lock);
    if (left == 0)
        free_core(core);
    return left;
}

/* A pool of `threads` threads; NULL, with errno, where there cannot be so many.  `settings` are int64: most bytes of a
 * request, bytes of a part, bytes of a block of direct reads or 0, requests in flight of a thread's ring or 0. */
struct core *dlio_core_open(int64_t threads, const int64_t *settings)
{
    struct core *core = calloc(1, sizeof *core + (size_t)threads * sizeof *core->thread);
    if (core == NULL)
        return NULL;
    core->settings = (struct settings){settings[0], settings[1], settings[2], settings[3]};
    pthread_condattr_t monotonic;
    pthread_condattr_init(&monotonic);
    pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
    pthread_mutex_init(&core->lock, NULL);
    pthread_cond_init(&core->work, NULL);
    pthread_cond_init(&core->completed, &monotonic);
    pthread_condattr_destroy(&monotonic);
    pthread_attr_t small;
    pthread_attr_init(&small);
    pthread_attr_setstacksize(&small, THREAD_STACK);
    int error = 0;
    pthread_mutex_lock(&core->lock);
    while (core->threads < threads && error == 0) {
        struct thread *thread = &core->thread[core->threads];
        char name[16];
        thread->core = core;
        thread->reader = calloc(1, sizeof *thread->reader);
        error = thread->reader == NULL ? ENOMEM : pthread_create(&thread->id, &small, run, thread);
        if (error != 0) {
            free(thread->reader);
            break;
        }
        snprintf(name, sizeof name, "reader %d", core->threads);
        pthread_setname_np(thread->id, name);
        core->threads++;
        core->alive++;
    }
    while (core->begun < core->threads)
        pthread_cond_wait(&core->completed, &core->lock);
    pthread_mutex_unlock(&core->lock);
    pthread_attr_destroy(&small);
    if (error == 0)
        return core;
    dlio_core_close(core, 1e6);
    errno = error;
    return NULL;
}

/* See inflate_use_packages. */
void dlio_core_use_packages(const char *isal, const char *zlib_ng)
{
    inflate_use_packages(isal, zlib_ng);
}

/* Numbers that the kernel gave the threads. */
void dlio_core_threads(struct core *core, int64_t *numbers)
{
    for (int i = 0; i < core->threads; i++)
        numbers[i] = core->thread[i].number;
}

/* Give a free block to the pool; returns whether there was memory to note it. */
int dlio_core_give(struct core *core, uint64_t address)
{
    pthread_mutex_lock(&core->lock);
    if (core->blocks == core->room) {
        uint64_t *grown = realloc(core->block, (size_t)(core->room + 64) * sizeof *grown);
        core->room += grown == NULL ? 0 : 64;
        core->block = grown == NULL ? core->block : grown;
    }
    int fits = core->blocks < core->room;
    if (fits)
        core->block[core->blocks++] = address;
    pthread_mutex_unlock(&core->lock);
    return fits;
}

/* Forget all free blocks; no job is under way. */
void dlio_core_forget_blocks(struct core *core)
{
    pthread_mutex_lock(&core->lock);
    core->blocks = 0;
    pthread_mutex_unlock(&core->lock);
}

/* Free blocks that no job is going to take. */
int64_t dlio_core_spare(struct core *core)
{
    pthread_mutex_lock(&core->lock);
    int64_t spare = core->blocks - core->unbound;
    pthread_mutex_unlock(&core->lock);
    return spare;
}

/* A job of `count` tasks, whose memory begins at `base` (0: is a block of the pool, which has one to spare); NULL where
 * there is no memory.  The rows of tasks are copied; the arrays that they name are not. */
struct job *dlio_core_submit(struct core *core, const struct task *tasks, int64_t count, uint64_t base, int recorded)
{
    struct job *job = calloc(1, sizeof *job + (size_t)count * sizeof *tasks);
    if (job == NULL)
        return NULL;
    job->base = base;
    job->tasks = count;
    job->recorded = recorded;
    memcpy(job->list, tasks, (size_t)count * sizeof *tasks);
    pthread_mutex_lock(&core->lock);
    if (is_taken(job)) { /* there is nothing to read */
        job->base = base != 0 ? base : core->block[--core->blocks];
        atomic_store(&job->complete, 1);
        pthread_mutex_unlock(&core->lock);
        return job;
    }
    if (core->last == NULL)
        core->first = job;
    else
        core->last->next = job;
    core->last = job;
    core->unbound += base == 0;
    int idle = core->idle;
    pthread_mutex_unlock(&core->lock);
    if (idle > 0) /* a thread that is woken under the lock would only wait for it */
        pthread_cond_broadcast(&core->work);
    return job;
}

/* Whether a job is complete. */
int dlio_core_is_complete(const struct job *job)
{
    return atomic_load_explicit(&job->complete, memory_order_acquire);
}

static int64_t first_complete(struct job *const *jobs, int64_t count)
{
    for (int64_t i = 0; i < count; i++)
        if (dlio_core_is_complete(jobs[i]))
            return i;
    return -1;
}

/* Wait until one of some jobs is complete; returns its position, or -1 after `seconds`. */
int64_t dlio_core_wait(struct core *core, struct job *const *jobs, int64_t count, double seconds)
{
    struct timespec end = moment(seconds);
    int64_t position;
    pthread_mutex_lock(&core->lock);
    core->waiting++;
    while ((position = first_complete(jobs, count)) < 0 &&
           pthread_cond_timedwait(&core->completed, &core->lock, &end) == 0)
        ;
    core->waiting--;
    pthread_mutex_unlock(&core->lock);
    return position;
}

/* Give up all parts that no thread has taken; jobs without other parts are complete. */
void dlio_core_cancel(struct core *core)
{
    pthread_mutex_lock(&core->lock);
    while (core->first != NULL) {
        struct job *job = core->first;
        remove_first(core);
        job->task = job->tasks;
        core->unbound -= job->base == 0;
        if (job->report[0] == 0)
            job->report[0] = CANCELLED;
        if (job->under_way == 0)
            complete(core, job);
    }
    pthread_mutex_unlock(&core->lock);
}

/* Whether no thread is inside a part. */
int dlio_core_is_idle(struct core *core)
{
    pthread_mutex_lock(&core->lock);
    int idle = core->busy == 0;
    pthread_mutex_unlock(&core->lock);
    return idle;
}

/* What was recorded of the parts of a complete job: rows of struct use. */
void dlio_core_uses(const struct job *job, struct use *uses)
{
    if (job->uses > 0)
        memcpy(uses, job->use, (size_t)job->uses * sizeof *uses);
}

/* Free a complete job. */
void dlio_core_release(struct job *job)
{
    free(job->use);
    free(job);
}

/* How a complete job ended, see struct job, whether the page cache was cold, and the address of its memory.  Returns
 * the number of parts that are recorded; a job without such parts is freed. */
int64_t dlio_core_report(struct job *job, int64_t *report)
{
    int64_t uses = job->uses;
    memcpy(report, job->report, sizeof job->report);
    report[4] = is_cold(job->misses, job->requests);
    report[5] = (int64_t)job->base;
    if (uses == 0)
        dlio_core_release(job);
    return uses;
}
