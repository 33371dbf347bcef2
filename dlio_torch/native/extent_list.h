/* Lists of extents, and the requests that read them: plain ones, and whole blocks past the page cache (O_DIRECT).
 *
 * A request is planned at a cursor in the list, issued by the caller (preadv, io_uring), and finished with the number
 * of bytes that came.  What did not come is planned again from the cursor on.
 */

#ifndef DLIO_EXTENT_LIST_H
#define DLIO_EXTENT_LIST_H

#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/uio.h>

#ifndef IOV_MAX
#define IOV_MAX 1024
#endif

enum { HUGE_PAGE = 2 << 20 }; /* bytes; of most systems */
enum { COLD_SHARE = 8 }; /* one request of so many is not in the page cache: it is cold */

/* Memory for direct reads, or NULL.
 *
 * It is of huge pages where the system has some: for each request all of its pages are pinned.  A process that is
 * forked finds zeros in it: what is read to private memory past the page cache during a fork may be lost, see open(2). */
static inline void *direct_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED)
        return NULL;
    madvise(memory, size, MADV_HUGEPAGE);
#ifdef MADV_WIPEONFORK
    madvise(memory, size, MADV_WIPEONFORK);
#endif
    return memory;
}

/* Whether the page cache is cold. */
static inline int is_cold(int64_t misses, int64_t requests)
{
    return misses > 0 && misses * COLD_SHARE >= requests;
}

/* `lengths[i]` bytes from byte `offsets[i]` of `descriptors[i]` on belong at `addresses[i]`. */
struct extent_list {
    int64_t count;
    const int32_t *descriptors;
    const int64_t *offsets, *lengths;
    const uint64_t *addresses;
};

/* Byte `done` of extent `extent`: all before it is read, or requested. */
struct extent_cursor {
    int64_t extent, done;
};

static inline int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

static inline int64_t larger(int64_t a, int64_t b) { return a > b ? a : b; }

static inline char *memory_at(uint64_t address) { return (char *)(uintptr_t)address; }

/* Move a cursor over the extents of which nothing is left; returns 0 at the end of the list. */
static inline int skip_done(const struct extent_list *list, struct extent_cursor *at)
{
    while (at->extent < list->count && at->done == list->lengths[at->extent])
        *at = (struct extent_cursor){at->extent + 1, 0};
    return at->extent < list->count;
}

/* Byte of the file at a cursor. */
static inline int64_t file_offset(const struct extent_list *list, struct extent_cursor at)
{
    return list->offsets[at.extent] + at.done;
}

/* --- plain requests --------------------------------------------------------------------------------------------- */

/* Fill `parts` (IOV_MAX) with a request of `request` bytes at most; returns their number.  Extents that follow each
 * other in a file become one request, whatever their addresses. */
static inline int plan_extents(const struct extent_list *list, struct extent_cursor at, int64_t request,
                               struct iovec *parts)
{
    int used = 0;
    int64_t done = at.done;
    for (int64_t i = at.extent; i < list->count && request > 0; i++, done = 0) {
        if (i > at.extent && (list->descriptors[i] != list->descriptors[i - 1] ||
                              list->offsets[i] != list->offsets[i - 1] + list->lengths[i - 1]))
            break;
        size_t taken = (size_t)smaller(list->lengths[i] - done, request);
        char *to = memory_at(list->addresses[i]) + done;
        if (taken == 0)
            continue;
        if (used > 0 && (char *)parts[used - 1].iov_base + parts[used - 1].iov_len == to) {
            parts[used - 1].iov_len += taken;
        } else {
            if (used == IOV_MAX)
                break;
            parts[used++] = (struct iovec){to, taken};
        }
        request -= (int64_t)taken;
    }
    return used;
}

/* Move a cursor over bytes that came in the order of the list. */
static inline void pass_bytes(const struct extent_list *list, struct extent_cursor *at, int64_t bytes)
{
    while (bytes > 0) {
        int64_t left = list->lengths[at->extent] - at->done;
        if (bytes < left) {
            at->done += bytes;
            return;
        }
        bytes -= left;
        *at = (struct extent_cursor){at->extent + 1, 0};
    }
}

/* --- direct requests -------------------------------------------------------------------------------------------- */

/* Request of whole blocks for the extents from `at` to `last`.
 *
 * An extent whose address is as far from a block's border as it is in the file goes `straight` there, but for its
 * first and last block; other extents are read aside and copied. */
struct direct_request {
    struct extent_cursor at;
    int64_t last;
    int64_t low, high;     /* bytes of the file that are requested: whole blocks */
    int64_t begin, end;    /* bytes of them that extents need */
    int64_t inner, outer;  /* whole blocks between these */
    int straight, used;
    char *aside, *behind; /* memory of the first block, or of all of them, and of the last block */
    struct iovec parts[3];
};

/* Plan a direct request at a cursor.
 *
 * The list is in the order of files and of bytes in each.  `block` is a power of two, `request` a multiple of it, and
 * `aside` has room for a request and two blocks and begins on a block.  No byte from `limit` of the file on is needed. */
static inline void plan_direct(const struct extent_list *list, struct extent_cursor at, int64_t request,
                               int64_t block, int64_t limit, char *aside, struct direct_request *plan)
{
    int64_t i = at.extent, begin = file_offset(list, at), low = begin & ~(block - 1), last = i;
    limit = smaller(limit, low + request);
    int64_t end = smaller(list->offsets[i] + list->lengths[i], limit);
    char *to = memory_at(list->addresses[i]) + at.done;
    int joined = 1; /* the extents follow each other in memory as in the file */
    while (end < limit && last + 1 < list->count && list->descriptors[last + 1] == list->descriptors[i] &&
           list->offsets[last + 1] >= low && list->offsets[last + 1] <= ((end + block - 1) & ~(block - 1))) {
        last++;
        if (list->offsets[last] != end || memory_at(list->addresses[last]) != to + (end - begin))
            joined = 0;
        end = larger(end, smaller(list->offsets[last] + list->lengths[last], limit));
    }
    int64_t high = (end + block - 1) & ~(block - 1);
    int64_t inner = (begin + block - 1) & ~(block - 1), outer = end & ~(block - 1);
    *plan = (struct direct_request){.at = at, .last = last, .low = low, .high = high, .begin = begin, .end = end,
                                    .inner = inner, .outer = outer, .aside = aside, .behind = aside + block};
    plan->straight = joined && outer > inner && (((uintptr_t)to + (uintptr_t)(inner - begin)) & (uintptr_t)(block - 1)) == 0;
    if (!plan->straight) {
        plan->parts[plan->used++] = (struct iovec){aside, (size_t)(high - low)};
        return;
    }
    if (low < inner)
        plan->parts[plan->used++] = (struct iovec){aside, (size_t)block};
    plan->parts[plan->used++] = (struct iovec){to + (inner - begin), (size_t)(outer - inner)};
    if (outer < high)
        plan->parts[plan->used++] = (struct iovec){plan->behind, (size_t)block};
}

/* Copy bytes `from` to `to` of a file, which lie at `memory` from byte `begin` of the file on, to an extent. */
static inline void deliver(char *address, int64_t offset, int64_t length, const char *memory, int64_t begin,
                           int64_t from, int64_t to)
{
    int64_t low = larger(offset, from), high = smaller(offset + length, to);
    if (low < high)
        memcpy(address + (low - offset), memory + (low - begin), (size_t)(high - low));
}

/* The cursor behind byte `there` of a direct request's file. */
static inline struct extent_cursor pass_direct(const struct extent_list *list, const struct direct_request *plan,
                                               int64_t there)
{
    int64_t i = plan->at.extent;
    while (i <= plan->last && list->offsets[i] + list->lengths[i] <= there)
        i++;
    return (struct extent_cursor){i, i <= plan->last ? larger(0, there - list->offsets[i]) : 0};
}

/* Copy what came of a direct request, `got` bytes, to where it belongs; returns the byte of the file behind it. */
static inline int64_t deliver_direct(const struct extent_list *list, const struct direct_request *plan, int64_t got)
{
    int64_t there = smaller(plan->end, plan->low + got), first = plan->at.extent;
    if (plan->straight) {
        char *to = memory_at(list->addresses[first]) + plan->at.done;
        int64_t length = plan->end - plan->begin;
        if (plan->low < plan->inner)
            deliver(to, plan->begin, length, plan->aside, plan->low, plan->begin, smaller(there, plan->inner));
        if (there > plan->outer)
            deliver(to, plan->begin, length, plan->behind, plan->outer, plan->outer, there);
        return there;
    }
    for (int64_t i = first; i <= plan->last; i++)
        deliver(memory_at(list->addresses[i]), list->offsets[i], list->lengths[i], plan->aside, plan->low,
                i == first ? plan->begin : plan->low, there);
    return there;
}

#endif
