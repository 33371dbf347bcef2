/* Tasks of the read core, and their division into parts.
 *
 * A task is a list of items of one kind.  A part is some consecutive items; a large extent falls into several parts.
 */

#include <stdlib.h>
#include <time.h>

#include "decode_chunk.h"
#include "read_direct.h"
#include "read_extents.h"
#include "read_records.h"
#include "uring.h"

enum task_kind { TASK_EXTENTS, TASK_COPIES, TASK_RECORDS, TASK_CHUNKS };
enum { PART_ITEMS = 1024, LEARNED = 4 };
enum { FILLS = 4 }; /* of a ring by a part */
enum { ASIDE_TURNS = 4 << 20 }; /* bytes of memory in which direct requests of a thread take turns */
enum { TOO_SHORT = -1, UNSUPPORTED = -2 }; /* results beside errno: the file ends; the item needs another decoder */

/* Int64 fields, in this order, of a row that Python writes. */
struct task {
    int64_t kind, count;
    const int32_t *descriptors; /* of extents, of each */
    const int64_t *offsets;     /* bytes in the file; of copies, addresses */
    const int64_t *lengths;
    const uint64_t *to;         /* from the begin of the memory of the job; of records (count, arrays) */
    const int64_t *sizes;       /* of extents, bytes of elements to be turned, or NULL; of records as `to` */
    const void *file;           /* of records, struct record_file; of chunks, struct chunk_file */
};

/* Of chunks, `lengths` are stored bytes, and `to` and `sizes` are not used. */
struct chunk_file {
    int64_t descriptor;
    struct chunk_batch batch; /* of all chunks, without `stored` and `base` */
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
    int64_t depth;      /* requests in flight of the ring of a thread; 0: read calls, one after the other */
};

struct portion {
    const struct task *task;
    uint64_t base;      /* address of the memory of the job */
    int64_t low, high;  /* items */
    int64_t skip, last; /* bytes of the first item that are not this part's; end of what is of the last one */
    int64_t bytes;
};

/* Aligned memory that grows. */
struct buffer {
    uint8_t *data;
    int64_t bytes;
};

/* The memory of one thread. */
struct reader {
    int32_t descriptors[PART_ITEMS];
    int64_t offsets[PART_ITEMS], lengths[PART_ITEMS];
    int64_t numbers[PART_ITEMS];
    uint64_t *to;
    int64_t targets; /* entries of `to` */
    struct buffer scratch, aside; /* aside: of direct reads */
    struct state *learned[LEARNED]; /* of the layouts of records with these numbers */
    int64_t layouts[LEARNED], next;
    struct chunk_decoder decoder;
    int has_decoder;
    struct uring *ring; /* opened by the thread when it first reads */
    int ring_refused;
};

/* Bytes of work of an item: to inflate a chunk takes longer than to read it. */
static int64_t weight(const struct task *task, int64_t item)
{
    int64_t length = task->lengths[item];
    if (task->kind != TASK_CHUNKS)
        return length;
    int64_t size = ((const struct chunk_file *)task->file)->batch.size;
    return size > length ? size : length;
}

/* Bytes of a part of a task, about.  A ring runs empty at the end of each part, so a part is several fills of it. */
static int64_t part_room(const struct task *task, const struct settings *settings)
{
    int64_t in_flight = task->kind == TASK_EXTENTS ? FILLS * settings->depth * settings->request : 0;
    return in_flight > settings->part_bytes ? in_flight : settings->part_bytes;
}

/* The next part of a task, from byte `*done` of item `*item` on, which become those behind the part. */
static struct portion next_part(const struct task *task, uint64_t base, const struct settings *settings, int64_t *item,
                             int64_t *done)
{
    struct portion part = {task, base, *item, *item, *done, 0, 0};
    int may_cut = task->kind == TASK_COPIES || (task->kind == TASK_EXTENTS && task->sizes == NULL);
    while (part.high < task->count && part.high - part.low < PART_ITEMS) {
        int64_t left = weight(task, part.high) - *done, room = part_room(task, settings) - part.bytes;
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
