/* Reads of extents by io_uring, many requests in flight.
 *
 * Requests are the same as those of read_extents.c and read_direct.c; they are submitted in the order of the list, as
 * many at a time as there is room for, and reaped as they come.
 */

#ifndef DLIO_URING_H
#define DLIO_URING_H

#include "uring_ring.h"

#ifdef IORING_FEAT_RW_CUR_POS /* as in uring_ring.h */

/* Direct requests that one system call submits.  Completions are taken between the calls: where all free requests are
 * submitted by one call, they also complete together, and meanwhile the device has too little to do. */
enum { DIRECT_AT_ONCE = 2 };

/* Bytes of memory that a direct request of a list needs aside, at most. */
static size_t uring_aside_bytes(const struct extent_list *list, int64_t request, int64_t block)
{
    int64_t longest = 0, begin = 0, end = 0; /* of extents that may become one request */
    for (int64_t i = 0; i < list->count; i++) {
        if (i == 0 || list->descriptors[i] != list->descriptors[i - 1] || list->offsets[i] < begin ||
            list->offsets[i] > ((end + block - 1) & ~(block - 1)))
            begin = end = list->offsets[i];
        end = larger(end, list->offsets[i] + list->lengths[i]);
        longest = larger(longest, end - begin);
    }
    return (size_t)(smaller(request, (longest + block - 1) & ~(block - 1)) + 2 * block);
}

/* Reads of a list by a ring. */
struct uring_reading {
    struct uring *ring;
    const struct extent_list *list;
    int64_t request, block;    /* block 0: through the page cache */
    struct extent_cursor next; /* what is not requested yet */
    int64_t error;             /* errno, or -1: a file ends too early */
    struct extent_cursor bad;  /* first that could not be read, in the order of the list */
};

/* Whether what is read from a cursor on comes before the first error in the list. */
static int uring_needs(const struct uring_reading *reading, struct extent_cursor at)
{
    return reading->error == 0 || at.extent < reading->bad.extent ||
           (at.extent == reading->bad.extent && at.done < reading->bad.done);
}

static void uring_fail(struct uring_reading *reading, struct extent_cursor at, int64_t error)
{
    if (uring_needs(reading, at)) {
        reading->error = error;
        reading->bad = at;
    }
}

/* Queue the request of a slot, from its cursor on. */
static void uring_queue(struct uring_reading *reading, uint32_t number, uint8_t flags)
{
    struct uring *ring = reading->ring;
    struct uring_slot *slot = &ring->slots[number];
    const struct iovec *parts = slot->parts;
    int64_t offset = file_offset(reading->list, slot->at);
    if (reading->block > 0) {
        struct extent_list part = *reading->list;
        part.count = slot->count;
        plan_direct(&part, slot->at, reading->request, reading->block, slot->limit, slot->aside, &slot->direct);
        parts = slot->direct.parts;
        slot->used = slot->direct.used;
        offset = slot->direct.low;
    } else {
        slot->used = plan_extents(reading->list, slot->at, slot->left, slot->parts);
    }
    uint32_t tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);
    struct io_uring_sqe *sqe = &ring->sqes[tail & ring->sq_mask];
    int single = slot->used == 1;
    *sqe = (struct io_uring_sqe){
        .opcode = single ? IORING_OP_READ : IORING_OP_READV,
        .flags = flags,
        .fd = reading->list->descriptors[slot->at.extent],
        .off = (uint64_t)offset,
        .addr = (uint64_t)(uintptr_t)(single ? parts[0].iov_base : (const void *)parts),
        .len = single ? (uint32_t)parts[0].iov_len : (uint32_t)slot->used,
        .user_data = number,
    };
    atomic_store_explicit(ring->sq_tail, tail + 1, memory_order_release);
    ring->queued++;
    ring->flying++;
}

/* Whether there is something to request, and room for it. */
static int uring_has_next(struct uring_reading *reading)
{
    return reading->ring->free_count > 0 && reading->error == 0 && skip_done(reading->list, &reading->next);
}

/* Queue at most `most` requests for what comes next in the list, while there is room. */
static void uring_fill(struct uring_reading *reading, uint32_t most)
{
    struct uring *ring = reading->ring;
    const struct extent_list *list = reading->list;
    while (ring->queued < most && uring_has_next(reading)) {
        uint32_t number = ring->free[--ring->free_count];
        struct uring_slot *slot = &ring->slots[number];
        slot->at = reading->next;
        slot->left = reading->request;
        slot->count = list->count;
        slot->limit = INT64_MAX;
        uring_queue(reading, number, 0);
        if (reading->block > 0) {
            slot->count = slot->direct.last + 1;
            slot->limit = slot->direct.end;
            reading->next = pass_direct(list, &slot->direct, slot->limit);
        } else {
            slot->left = 0;
            for (int i = 0; i < slot->used; i++)
                slot->left += (int64_t)slot->parts[i].iov_len;
            pass_bytes(list, &reading->next, slot->left);
        }
    }
}

/* Take the bytes that came for a slot; returns whether some are left to be read. */
static int uring_take(struct uring_reading *reading, struct uring_slot *slot, int32_t got)
{
    const struct extent_list *list = reading->list;
    struct extent_cursor before = slot->at;
    if (reading->block > 0) {
        int64_t there = deliver_direct(list, &slot->direct, got);
        if (there > slot->direct.begin) {
            slot->at = pass_direct(list, &slot->direct, there);
            return slot->at.extent < slot->count && file_offset(list, slot->at) < slot->limit;
        }
    } else if (got > 0) {
        pass_bytes(list, &slot->at, got);
        slot->left -= got;
        return slot->left > 0 && skip_done(list, &slot->at);
    }
    uring_fail(reading, before, -1);
    return 0;
}

/* Take all completions that are there. */
static void uring_reap(struct uring_reading *reading)
{
    struct uring *ring = reading->ring;
    uint32_t head = atomic_load_explicit(ring->cq_head, memory_order_relaxed);
    uint32_t tail = atomic_load_explicit(ring->cq_tail, memory_order_acquire);
    for (; head != tail; head++) {
        const struct io_uring_cqe *cqe = &ring->cqes[head & ring->cq_mask];
        uint32_t number = (uint32_t)cqe->user_data;
        struct uring_slot *slot = &ring->slots[number];
        int again = 0, blocked = cqe->res == -EAGAIN;
        ring->flying--;
        if (blocked || cqe->res == -EINTR)
            again = 1;
        else if (cqe->res < 0)
            uring_fail(reading, slot->at, -cqe->res);
        else
            again = uring_take(reading, slot, cqe->res);
        if (again && uring_needs(reading, slot->at))
            uring_queue(reading, number, blocked ? IOSQE_ASYNC : 0); /* a thread of the kernel may wait */
        else
            ring->free[ring->free_count++] = number;
    }
    atomic_store_explicit(ring->cq_head, head, memory_order_release);
}

/* Give up what is queued and not submitted. */
static void uring_withdraw(struct uring_reading *reading)
{
    struct uring *ring = reading->ring;
    uint32_t tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);
    for (; ring->queued > 0; ring->queued--, ring->flying--)
        ring->free[ring->free_count++] = (uint32_t)ring->sqes[--tail & ring->sq_mask].user_data;
    atomic_store_explicit(ring->sq_tail, tail, memory_order_release);
}

static int64_t uring_read(struct uring_reading *reading, int64_t *failed, int direct)
{
    struct uring *ring = reading->ring;
    for (;;) {
        uring_fill(reading, direct ? DIRECT_AT_ONCE : ring->depth);
        if (ring->flying == 0)
            break;
        uint32_t sent = ring->queued;
        int error = direct ? uring_enter(ring, !uring_has_next(reading), IORING_ENTER_GETEVENTS)
                           : uring_enter(ring, 0, 0);
        if (error == 0 && !direct) {
            /* What came at once was in the page cache. */
            uint32_t ready = atomic_load_explicit(ring->cq_tail, memory_order_acquire) -
                             atomic_load_explicit(ring->cq_head, memory_order_relaxed);
            failed[2] += smaller(sent, ring->flying - ready); /* those of before may still be under way */
            failed[3] += sent;
            if (ready == 0)
                error = uring_enter(ring, 1, IORING_ENTER_GETEVENTS);
        }
        if (error != 0 && error != EINTR) {
            uint32_t first = ring->queued;
            if (first > 0) {
                uint32_t tail = atomic_load_explicit(ring->sq_tail, memory_order_relaxed);
                uint32_t number = (uint32_t)ring->sqes[(tail - first) & ring->sq_mask].user_data;
                uring_fail(reading, ring->slots[number].at, error);
                uring_withdraw(reading);
            } else {
                usleep(1000);
            }
        }
        uring_reap(reading);
    }
    if (reading->error != 0) {
        failed[0] = reading->bad.extent;
        failed[1] = reading->bad.done;
    }
    return reading->error;
}

/* As dlio_read_extents. */
static int64_t uring_read_extents(struct uring *ring, int64_t count, const int32_t *descriptors,
                                  const int64_t *offsets, const int64_t *lengths, const uint64_t *addresses,
                                  int64_t request, int64_t *failed)
{
    struct extent_list list = {count, descriptors, offsets, lengths, addresses};
    struct uring_reading reading = {.ring = ring, .list = &list, .request = request};
    return uring_read(&reading, failed, 0);
}

/* As dlio_read_direct, whose `scratch` is the ring's own. */
static int64_t uring_read_direct(struct uring *ring, int64_t count, const int32_t *descriptors,
                                 const int64_t *offsets, const int64_t *lengths, const uint64_t *addresses,
                                 int64_t request, int64_t block, int64_t *failed)
{
    struct extent_list list = {count, descriptors, offsets, lengths, addresses};
    struct uring_reading reading = {.ring = ring, .list = &list, .request = request, .block = block};
    int error = uring_make_aside(ring, uring_aside_bytes(&list, request, block));
    if (error != 0) {
        failed[0] = failed[1] = 0;
        return error;
    }
    return uring_read(&reading, failed, 1);
}

#else /* headers without what is needed: there are no rings */

static int64_t uring_read_extents(struct uring *ring, int64_t count, const int32_t *descriptors,
                                  const int64_t *offsets, const int64_t *lengths, const uint64_t *addresses,
                                  int64_t request, int64_t *failed)
{
    (void)ring, (void)count, (void)descriptors, (void)offsets, (void)lengths, (void)addresses, (void)request;
    failed[0] = failed[1] = 0;
    return EOPNOTSUPP;
}

static int64_t uring_read_direct(struct uring *ring, int64_t count, const int32_t *descriptors,
                                 const int64_t *offsets, const int64_t *lengths, const uint64_t *addresses,
                                 int64_t request, int64_t block, int64_t *failed)
{
    (void)block;
    return uring_read_extents(ring, count, descriptors, offsets, lengths, addresses, request, failed);
}

#endif
#endif
