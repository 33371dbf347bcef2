/* Jobs of the read core: what is left of each, how its parts ended, and the block that it fills.
 *
 * All of it is guarded by the lock of the pool, but for `complete`, which callers read without it.
 */

#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "core_parts.h"
#include "core_use.h"

enum { CANCELLED = -3 }; /* a result beside those of read_part */

struct job {
    struct job *next;
    uint64_t base;         /* 0: a block of the pool, which the first part takes */
    int64_t tasks, task;   /* of the list; the one that parts are taken from */
    int64_t item, done;    /* next item of that one, and bytes of it that parts have */
    int64_t under_way;     /* parts */
    int64_t report[4];     /* result, task, item, bytes got */
    int64_t misses, requests; /* those that were not in the page cache; all */
    int64_t recorded;      /* parts are to be recorded */
    int64_t uses, room;
    struct use *use;
    _Atomic int complete;
    struct task list[];
};

struct core {
    pthread_mutex_t lock;
    pthread_cond_t work, completed;
    struct settings settings;
    struct job *first, *last; /* with parts to be taken */
    int waiting;              /* callers in dlio_core_wait */
    int busy;                 /* threads inside a part */
    int idle;                 /* threads without work */
    uint64_t *block;          /* addresses of free blocks; the one that came last is taken first: it is still cached */
    int64_t blocks, room;
    int64_t unbound;          /* jobs that are to take a block */
    int stopping;
    int threads, alive, begun;
    struct thread {
        struct core *core;
        struct reader *reader;
        pthread_t id;
        int64_t number; /* that the kernel gave it */
    } thread[];
};

static void remove_first(struct core *core)
{
    core->first = core->first->next;
    if (core->first == NULL)
        core->last = NULL;
}

static void complete(struct core *core, struct job *job)
{
    atomic_store_explicit(&job->complete, 1, memory_order_release);
    if (core->waiting)
        pthread_cond_broadcast(&core->completed);
}

/* Whether all parts of a job are taken; goes on to the next task that has items. */
static int is_taken(struct job *job)
{
    while (job->task < job->tasks && job->item == job->list[job->task].count) {
        job->task++;
        job->item = job->done = 0;
    }
    return job->task == job->tasks;
}

/* Give a job its block when its first part is taken; the lock is held, and there is one for each. */
static void bind_block(struct core *core, struct job *job)
{
    if (job->base == 0) {
        job->base = core->block[--core->blocks];
        core->unbound--;
    }
}

/* Note how a part ended; the lock is held. */
static void note(struct core *core, struct job *job, int64_t task, int64_t result, const int64_t *failed,
                 const struct use *use)
{
    job->misses += failed[2];
    job->requests += failed[3];
    if (result != 0 && job->report[0] == 0) {
        memcpy(job->report, (int64_t[]){result, task, failed[0], failed[1]}, 4 * sizeof(int64_t));
        if (core->first == job) /* what is left of it is of no use */
            remove_first(core);
        job->task = job->tasks;
    }
    if (job->recorded && job->uses == job->room) {
        struct use *grown = realloc(job->use, (size_t)(job->room + 16) * sizeof *grown);
        job->room += grown == NULL ? 0 : 16;
        job->use = grown == NULL ? job->use : grown;
    }
    if (job->recorded && job->uses < job->room)
        job->use[job->uses++] = *use;
}
