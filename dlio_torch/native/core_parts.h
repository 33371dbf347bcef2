/* Parts of the tasks of the read core: how a task is divided, and how a part is read.
 *
 * A task is a list of items of one kind.  A part is some consecutive items; a large extent falls into several parts.
 * The kinds of items, and where a part of each is read, are all here: `read_part` is the only function that the pool
 * of threads calls.
 */

#include <stdlib.h>
#include <time.h>

#include "read_direct.h"
#include "read_extents.h"
#include "read_records.h"
#include "swap_bytes.h"

enum task_kind { TASK_EXTENTS, TASK_COPIES, TASK_RECORDS };
enum { PART_ITEMS = 1024, LEARNED = 4 };
enum { TOO_SHORT = -1, UNSUPPORTED = -2 }; /* results beside errno: the file ends; the item needs another decoder */

/* Int64 fields, in this order, of a row that Python writes. */
struct task {
    int64_t kind, count;
    const int32_t *descriptors; /* of extents, of each */
    const int64_t *offsets;     /* bytes in the file; of copies, addresses */
    const int64_t *lengths;
    const uint64_t *to;         /* from the begin of the memory of the job; of records (count, arrays) */
    const int64_t *sizes;       /* of extents, bytes of elements to be turned, or NULL; of records as `to` */
    const int64_t *records;     /* struct record_file, of records */
};

struct record_file {
    int64_t descriptor;
    const struct feature *wanted;
    int64_t features, verify;
    int64_t layout; /* number of the list of features, unique in the process: what is learned of it, stays */
};

/* How parts are divided and read; the same for all tasks of a pool. */
struct settings {
    int64_t request;    /* most bytes of a request */
    int64_t part_bytes; /* of a part, about */
    int64_t block;      /* of direct reads, a power of two; 0: through the page cache */
};

struct portion {
    const struct task *task;
    uint64_t base;      /* address of the memory of the job */
    int64_t low, high;  /* items */
    int64_t skip, last; /* bytes of the first item that are not this part's; end of what is of the last one */
    int64_t bytes;
};

/* The memory of one thread. */
struct reader {
    int32_t descriptors[PART_ITEMS];
    int64_t offsets[PART_ITEMS], lengths[PART_ITEMS];
    uint64_t *to;
    int64_t targets; /* entries of `to` */
    uint8_t *scratch;
    int64_t scratch_bytes;
    struct state *learned[LEARNED]; /* of the layouts of records with these numbers */
    int64_t layouts[LEARNED], next;
};

/* The next part of a task, from byte `*done` of item `*item` on, which become those behind the part. */
static struct portion next_part(const struct task *task, uint64_t base, const struct settings *settings, int64_t *item,
                             int64_t *done)
{
    struct portion part = {task, base, *item, *item, *done, 0, 0};
    int may_cut = task->kind != TASK_RECORDS && (task->kind == TASK_COPIES || task->sizes == NULL);
    while (part.high < task->count && part.high - part.low < PART_ITEMS) {
        int64_t left = task->lengths[part.high] - *done, room = settings->part_bytes - part.bytes;
        if (left > room && part.high > part.low)
            break;
        if (left > room + room / 4 && may_cut) { /* a large one alone */
            if (settings->block > 0 && task->kind == TASK_EXTENTS)
                room -= (task->offsets[part.high] + *done + room) & (settings->block - 1);
            *done += room;
            part.last = *done;
            part.bytes = room;
            *item = part.high++;
            return part;
        }
        part.bytes += left;
        part.last = task->lengths[part.high++];
        *done = 0;
    }
    *item = part.high;
    return part;
}

static int has_scratch(struct reader *reader, int64_t bytes)
{
    if (reader->scratch_bytes >= bytes)
        return 1;
    free(reader->scratch);
    reader->scratch = NULL;
    reader->scratch_bytes = 0;
    if (posix_memalign((void **)&reader->scratch, 4096, (size_t)bytes) != 0)
        return 0;
    reader->scratch_bytes = bytes;
    return 1;
}

static int has_targets(struct reader *reader, int64_t count)
{
    if (reader->targets >= count)
        return 1;
    uint64_t *grown = realloc(reader->to, (size_t)count * sizeof *grown);
    if (grown == NULL)
        return 0;
    reader->to = grown;
    reader->targets = count;
    return 1;
}

/* Fill `count` extents of the reader's arrays: where a request to the system is made. */
static int64_t fill_extents(struct reader *reader, const struct settings *settings, int64_t count, int64_t *failed)
{
    if (settings->block == 0)
        return read_extents(count, reader->descriptors, reader->offsets, reader->lengths, reader->to, settings->request,
                            failed);
    int64_t block = settings->block, request = settings->request / block * block;
    request = request < block ? block : request;
    if (!has_scratch(reader, request + 2 * block))
        return ENOMEM;
    return read_direct(count, reader->descriptors, reader->offsets, reader->lengths, reader->to, request, block,
                       reader->scratch, failed);
}

static int64_t read_extents_part(struct reader *reader, const struct settings *settings, const struct portion *part,
                                 int64_t *failed)
{
    const struct task *task = part->task;
    int64_t count = part->high - part->low;
    if (!has_targets(reader, count))
        return ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        int64_t item = part->low + i, skip = i == 0 ? part->skip : 0;
        int64_t end = i == count - 1 ? part->last : task->lengths[item];
        reader->offsets[i] = task->offsets[item] + skip;
        reader->lengths[i] = end - skip;
        reader->to[i] = part->base + task->to[item] + (uint64_t)skip;
    }
    if (task->kind == TASK_COPIES) {
        copy_extents(count, (const uint64_t *)reader->offsets, reader->lengths, reader->to);
        return 0;
    }
    memcpy(reader->descriptors, task->descriptors + part->low, (size_t)count * sizeof *task->descriptors);
    int64_t result = fill_extents(reader, settings, count, failed);
    if (result != 0) {
        failed[1] += failed[0] == 0 ? part->skip : 0;
        failed[0] += part->low;
    } else if (task->sizes != NULL) {
        swap_bytes(count, reader->to, reader->lengths, task->sizes + part->low);
    }
    return result;
}

/* What this thread has learned of the records of a layout; NULL: there is no memory. */
static struct state *learned_of(struct reader *reader, int64_t layout)
{
    for (int i = 0; i < LEARNED; i++)
        if (reader->learned[i] != NULL && reader->layouts[i] == layout)
            return reader->learned[i];
    int64_t slot = reader->next++ % LEARNED;
    free(reader->learned[slot]);
    reader->learned[slot] = calloc(1, sizeof(struct state));
    reader->layouts[slot] = layout;
    return reader->learned[slot];
}

static int64_t read_records_part(struct reader *reader, const struct settings *settings, const struct portion *part,
                                 int64_t *failed)
{
    const struct task *task = part->task;
    const struct record_file *file = (const struct record_file *)task->records;
    int64_t count = part->high - part->low, arrays = file->features, longest = 0;
    for (int64_t i = part->low; i < part->high; i++)
        longest = task->lengths[i] > longest ? task->lengths[i] : longest;
    int64_t room = (settings->request > longest ? settings->request : longest) + longest;
    struct state *state = learned_of(reader, file->layout);
    if (state == NULL || !has_targets(reader, count * arrays) || !has_scratch(reader, room))
        return ENOMEM;
    for (int64_t i = 0; i < count * arrays; i++)
        reader->to[i] = part->base + task->to[part->low * arrays + i];
    struct wanted want = {count,
                          arrays,
                          file->wanted,
                          task->offsets + part->low,
                          task->lengths + part->low,
                          reader->to,
                          task->sizes + part->low * arrays,
                          (int)file->descriptor,
                          (int)file->verify};
    int64_t result = read_all(&want, settings->request, reader->scratch, reader->scratch_bytes, state, failed);
    failed[0] += part->low;
    return result < 0 ? -result : result > 0 ? UNSUPPORTED : 0;
}

/* Read a part to its memory.  Returns 0, or an errno, TOO_SHORT or UNSUPPORTED; in `failed` the number of the item and
 * the bytes of it that were read, and in its third number 1 where something was not in the page cache. */
static int64_t read_part(struct reader *reader, const struct settings *settings, const struct portion *part,
                         int64_t *failed)
{
    if (part->high == part->low)
        return 0;
    return part->task->kind == TASK_RECORDS ? read_records_part(reader, settings, part, failed)
                                            : read_extents_part(reader, settings, part, failed);
}

static void free_reader(struct reader *reader)
{
    for (int i = 0; i < LEARNED; i++)
        free(reader->learned[i]);
    free(reader->to);
    free(reader->scratch);
    free(reader);
}
