/* Runs jobs of all kinds through the read core, in memory of exactly the bytes that they fill, for the compiler's
 * sanitizers; and compares what comes with the file: `driver FILE DEPTH`, which is written; DEPTH: of rings,
 * 0: read calls.  Prints the number of jobs.
 */

#define _GNU_SOURCE
#include <fcntl.h>

#include "read_core.c"

enum { FILE_BYTES = 5 << 20, MOST = 64, ROUNDS = 12, JOBS = 4, WAITING_S = 600 };

static uint8_t content[FILE_BYTES];
static uint64_t seed = 7;

static int64_t drawn(int64_t limit)
{
    seed = seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (int64_t)((seed >> 33) % (uint64_t)limit);
}

static void check(int holds, const char *what)
{
    if (!holds) {
        fprintf(stderr, "%s\n", what);
        exit(1);
    }
}

/* Items of a job, and the memory that they fill one after another. */
struct items {
    int64_t count, offsets[MOST], lengths[MOST], bytes, sizes[MOST], skipped[MOST], chunk[MOST], source[MOST];
    int32_t descriptors[MOST];
    uint64_t to[MOST];
    struct chunk_file file;
    uint8_t *memory;
};

static struct items *some_items(int descriptor, int64_t longest)
{
    struct items *items = calloc(1, sizeof *items);
    items->count = 1 + drawn(MOST - 1);
    for (int64_t i = 0; i < items->count; i++) {
        int is_next = i > 0 && drawn(2) && items->offsets[i - 1] + items->lengths[i - 1] < FILE_BYTES;
        items->offsets[i] = is_next ? items->offsets[i - 1] + items->lengths[i - 1] : drawn(FILE_BYTES);
        items->lengths[i] = drawn(longest < FILE_BYTES - items->offsets[i] ? longest : FILE_BYTES - items->offsets[i]);
        items->descriptors[i] = descriptor;
        items->sizes[i] = 1;
        items->chunk[i] = i;
        items->to[i] = (uint64_t)items->bytes;
        items->bytes += items->lengths[i];
    }
    items->memory = malloc((size_t)items->bytes + 1);
    return items;
}

static struct task task_of(struct items *items, int64_t kind)
{
    struct task task = {kind, items->count, items->descriptors, items->offsets, items->lengths, items->to, NULL, NULL};
    if (kind == TASK_COPIES)
        for (int64_t i = 0; i < items->count; i++)
            items->offsets[i] += (int64_t)(uintptr_t)content;
    if (kind == TASK_EXTENTS && drawn(2))
        task.sizes = items->sizes;
    if (kind == TASK_CHUNKS) { /* of the same size, as they are stored */
        int64_t size = 1 + drawn(90000);
        for (int64_t i = 0; i < items->count; i++) {
            items->offsets[i] = drawn(FILE_BYTES - size);
            items->lengths[i] = size;
            items->to[i] = (uint64_t)(i * size);
        }
        items->bytes = size * items->count;
        free(items->memory);
        items->memory = malloc((size_t)items->bytes);
        items->file.descriptor = items->descriptors[0];
        items->file.batch = (struct chunk_batch){.itemsize = 1, .size = size, .count = items->count,
                                                 .lengths = items->lengths, .skipped = items->skipped,
                                                 .fragments = items->count, .chunk = items->chunk,
                                                 .source = items->source, .bytes = items->lengths,
                                                 .to = (const int64_t *)items->to};
        task.file = &items->file;
    }
    return task;
}

static void compare(const struct items *items, int64_t kind, const uint8_t *memory)
{
    for (int64_t i = 0; i < items->count; i++) {
        const uint8_t *from = content + items->offsets[i];
        if (kind == TASK_COPIES)
            from = (const uint8_t *)(uintptr_t)items->offsets[i];
        check(memcmp(memory + items->to[i], from, (size_t)items->lengths[i]) == 0, "other bytes");
    }
}

static void end_job(struct core *core, struct job *job, int64_t *report)
{
    check(dlio_core_wait(core, &job, 1, WAITING_S) == 0, "a job is not complete in time");
    int64_t parts = dlio_core_report(job, report);
    if (parts == 0)
        return;
    struct use *uses = malloc((size_t)parts * sizeof *uses);
    dlio_core_uses(job, uses);
    for (int64_t i = 0; i < parts; i++)
        check(uses[i].end >= uses[i].begin && uses[i].thread > 0, "a part without times");
    free(uses);
    dlio_core_release(job);
}

static void run_jobs(struct core *core, int descriptor)
{
    static const int64_t kinds[] = {TASK_EXTENTS, TASK_COPIES, TASK_CHUNKS, TASK_EXTENTS};
    struct items *items[JOBS];
    struct job *jobs[JOBS];
    for (int i = 0; i < JOBS; i++) {
        items[i] = some_items(descriptor, drawn(4) ? 20000 : 1500000);
        struct task task = task_of(items[i], kinds[i]);
        jobs[i] = dlio_core_submit(core, &task, 1, (uint64_t)(uintptr_t)items[i]->memory, (int)drawn(2));
    }
    for (int i = 0; i < JOBS; i++) {
        int64_t report[6];
        end_job(core, jobs[i], report);
        check(report[0] == 0, "a job failed");
        compare(items[i], kinds[i], items[i]->memory);
        free(items[i]->memory);
        free(items[i]);
    }
}

/* A block of the pool; an extent behind the end of the file; a descriptor that is not open. */
static void run_special(struct core *core, int descriptor)
{
    struct items *items = some_items(descriptor, 9000);
    struct task task = task_of(items, TASK_EXTENTS);
    check(dlio_core_give(core, (uint64_t)(uintptr_t)items->memory) && dlio_core_spare(core) == 1, "no block");
    int64_t report[6];
    end_job(core, dlio_core_submit(core, &task, 1, 0, 0), report);
    check(report[5] == (int64_t)(uintptr_t)items->memory && dlio_core_spare(core) == 0, "another block");
    compare(items, TASK_EXTENTS, items->memory);
    int64_t bad = items->count - 1;
    items->lengths[bad] = 1;
    items->offsets[bad] = FILE_BYTES;
    free(items->memory);
    items->memory = malloc((size_t)items->bytes + 1);
    end_job(core, dlio_core_submit(core, &task, 1, (uint64_t)(uintptr_t)items->memory, 1), report);
    check(report[0] == TOO_SHORT && report[2] == bad && report[3] == 0, "the end of the file was not seen");
    items->offsets[bad] = 0; /* else its thread may be the first to fail */
    items->descriptors[0] = -1;
    items->lengths[0] = 1;
    end_job(core, dlio_core_submit(core, &task, 1, (uint64_t)(uintptr_t)items->memory, 1), report);
    check(report[0] == EBADF && report[2] == 0, "a descriptor that is not open was not seen");
    free(items->memory);
    free(items);
}

/* Jobs that are given up: each is complete, and nobody writes to its memory any more. */
static void run_cancelled(struct core *core, int descriptor)
{
    struct items *items[JOBS];
    struct job *jobs[JOBS];
    for (int i = 0; i < JOBS; i++) {
        items[i] = some_items(descriptor, 100000);
        struct task task = task_of(items[i], TASK_EXTENTS);
        jobs[i] = dlio_core_submit(core, &task, 1, (uint64_t)(uintptr_t)items[i]->memory, 0);
    }
    dlio_core_cancel(core);
    for (int i = 0; i < JOBS; i++) {
        int64_t report[6];
        end_job(core, jobs[i], report);
        free(items[i]->memory);
        free(items[i]);
    }
}

int main(int count, char **arguments)
{
    check(count == 3, "a file and a depth");
    for (int64_t i = 0; i < FILE_BYTES; i++)
        content[i] = (uint8_t)drawn(256);
    int descriptor = open(arguments[1], O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0600), jobs = 0;
    check(descriptor >= 0 && write(descriptor, content, FILE_BYTES) == FILE_BYTES, "the file cannot be written");
    for (int threads = 1; threads < 5; threads++) {
        int64_t settings[4] = {1 << (10 + 2 * drawn(6)), 1 << 18, 0, atol(arguments[2])};
        struct core *core = dlio_core_open(threads, settings);
        check(core != NULL, "no threads");
        for (int round = 0; round < ROUNDS; round++) {
            run_jobs(core, descriptor);
            run_special(core, descriptor);
            run_cancelled(core, descriptor);
            jobs += 2 * JOBS + 3;
        }
        check(dlio_core_is_idle(core) && dlio_core_close(core, WAITING_S) == 0, "threads are left");
    }
    close(descriptor);
    printf("%d jobs\n", jobs);
    return 0;
}
