/* Rings of io_uring: opened, mapped, entered and closed by raw system calls.
 *
 * A ring belongs to the thread that opened it.
 */

#ifndef DLIO_URING_RING_H
#define DLIO_URING_RING_H

#include "extent_list.h"

#include <errno.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#if __has_include(<linux/io_uring.h>)
#include <linux/io_uring.h>
#endif

struct uring;

#ifdef IORING_FEAT_RW_CUR_POS /* the headers are of Linux 5.6 or newer */

/* Flags of newer systems than the headers that this is compiled with. */
#define URING_COOP_TASKRUN (1U << 8)   /* Linux 5.19: no interrupt of the thread when a request completes */
#define URING_SINGLE_ISSUER (1U << 12) /* Linux 6.0 */
#define URING_DEFER_TASKRUN (1U << 13) /* Linux 6.1: completions are worked off when the thread asks for them */

/* A request in flight: what is left of it begins at `at`. */
struct uring_slot {
    struct extent_cursor at;
    int64_t left;  /* plain: bytes */
    int64_t count; /* direct: extents of the list before this one */
    int64_t limit; /* direct: byte of the file behind it */
    int used;
    struct iovec *parts;
    char *aside;
    struct direct_request direct;
};

struct uring {
    int fd;
    uint32_t depth;
    _Atomic uint32_t *sq_tail, *cq_head, *cq_tail;
    uint32_t sq_mask, cq_mask;
    uint32_t queued, flying; /* requests that are not submitted yet, and that are not reaped yet, the first included */
    struct io_uring_sqe *sqes;
    struct io_uring_cqe *cqes;
    struct uring_slot *slots;
    uint32_t *free; /* numbers of slots, the first `free_count` of which are not in flight */
    uint32_t free_count;
    void *rings, *vectors, *aside;
    size_t rings_size, sqes_size, vectors_size, aside_size, aside_each;
    long calls; /* of io_uring_enter */
};

static inline void *uring_memory(size_t size)
{
    void *memory = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return memory == MAP_FAILED ? NULL : memory;
}

static inline void uring_unmap(void *memory, size_t size)
{
    if (memory != NULL)
        munmap(memory, size);
}

/* Close a ring that has nothing in flight. */
static void uring_close(struct uring *ring)
{
    if (ring == NULL)
        return;
    uring_unmap(ring->rings, ring->rings_size);
    uring_unmap(ring->sqes, ring->sqes_size);
    uring_unmap(ring->vectors, ring->vectors_size);
    uring_unmap(ring->aside, ring->aside_size);
    if (ring->fd >= 0)
        close(ring->fd);
    free(ring->slots);
    free(ring->free);
    free(ring);
}

/* The descriptor of a ring with the flags that cost least on this system, or -1. */
static int uring_setup(uint32_t depth, struct io_uring_params *params)
{
    static const uint32_t flags[] = {URING_SINGLE_ISSUER | URING_DEFER_TASKRUN, URING_COOP_TASKRUN, 0};
    for (int i = 0; i < 3; i++) {
        *params = (struct io_uring_params){.flags = flags[i] | IORING_SETUP_CLAMP};
        int fd = (int)syscall(SYS_io_uring_setup, depth, params);
        if (fd >= 0 || errno != EINVAL)
            return fd;
    }
    return -1;
}

static int uring_map(struct uring *ring, const struct io_uring_params *params)
{
    size_t sq_size = params->sq_off.array + params->sq_entries * sizeof(uint32_t);
    size_t cq_size = params->cq_off.cqes + params->cq_entries * sizeof(struct io_uring_cqe);
    ring->rings_size = sq_size > cq_size ? sq_size : cq_size;
    ring->sqes_size = params->sq_entries * sizeof(struct io_uring_sqe);
    char *rings = mmap(NULL, ring->rings_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
                       IORING_OFF_SQ_RING);
    if (rings == MAP_FAILED)
        return -1;
    ring->rings = rings;
    void *sqes = mmap(NULL, ring->sqes_size, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_POPULATE, ring->fd,
                      IORING_OFF_SQES);
    if (sqes == MAP_FAILED)
        return -1;
    ring->sqes = sqes;
    /* A process that this one forks has no use for them. */
    madvise(rings, ring->rings_size, MADV_DONTFORK);
    madvise(sqes, ring->sqes_size, MADV_DONTFORK);
    ring->sq_tail = (_Atomic uint32_t *)(rings + params->sq_off.tail);
    ring->sq_mask = *(uint32_t *)(rings + params->sq_off.ring_mask);
    ring->cq_head = (_Atomic uint32_t *)(rings + params->cq_off.head);
    ring->cq_tail = (_Atomic uint32_t *)(rings + params->cq_off.tail);
    ring->cq_mask = *(uint32_t *)(rings + params->cq_off.ring_mask);
    ring->cqes = (struct io_uring_cqe *)(rings + params->cq_off.cqes);
    uint32_t *array = (uint32_t *)(rings + params->sq_off.array);
    for (uint32_t i = 0; i < params->sq_entries; i++)
        array[i] = i;
    return 0;
}

static int uring_make_slots(struct uring *ring)
{
    uint32_t depth = ring->depth;
    ring->slots = calloc(depth, sizeof *ring->slots);
    ring->free = calloc(depth, sizeof *ring->free);
    ring->vectors_size = depth * IOV_MAX * sizeof(struct iovec); /* most of it is never touched */
    ring->vectors = uring_memory(ring->vectors_size);
    if (ring->slots == NULL || ring->free == NULL || ring->vectors == NULL) {
        errno = ENOMEM;
        return -1;
    }
    for (uint32_t i = 0; i < depth; i++) {
        ring->slots[i].parts = (struct iovec *)ring->vectors + (size_t)i * IOV_MAX;
        ring->free[i] = depth - 1 - i;
    }
    ring->free_count = depth;
    return 0;
}

/* Open a ring for at most `depth` requests in flight, for the calling thread; returns 0 or the errno.
 * EOPNOTSUPP: this Linux is older than 5.6, whose io_uring cannot read to plain memory. */
static int uring_open(uint32_t depth, struct uring **opened)
{
    struct io_uring_params params;
    *opened = NULL;
    struct uring *ring = calloc(1, sizeof *ring);
    if (ring == NULL)
        return ENOMEM;
    ring->fd = uring_setup(depth, &params);
    int good = ring->fd >= 0;
    if (good && (params.features & (IORING_FEAT_SINGLE_MMAP | IORING_FEAT_RW_CUR_POS)) !=
                    (IORING_FEAT_SINGLE_MMAP | IORING_FEAT_RW_CUR_POS)) {
        errno = EOPNOTSUPP;
        good = 0;
    }
    if (good) {
        ring->depth = depth < params.sq_entries ? depth : params.sq_entries;
        good = uring_map(ring, &params) == 0 && uring_make_slots(ring) == 0;
    }
    if (!good) {
        int error = errno;
        uring_close(ring);
        return error;
    }
    *opened = ring;
    return 0;
}

/* Give each slot `each` bytes of memory for blocks that are read aside; returns 0 or the errno. */
static int uring_make_aside(struct uring *ring, size_t each)
{
    if (ring->aside_each < each) {
        uring_unmap(ring->aside, ring->aside_size);
        ring->aside_each = 0;
        ring->aside_size = (each * ring->depth / HUGE_PAGE + 2) * HUGE_PAGE;
        ring->aside = direct_memory(ring->aside_size);
        if (ring->aside == NULL)
            return ENOMEM;
        ring->aside_each = each;
    }
    char *first = (char *)(((uintptr_t)ring->aside + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE);
    for (uint32_t i = 0; i < ring->depth; i++)
        ring->slots[i].aside = first + i * ring->aside_each;
    return 0;
}

/* Submit what is queued, and wait for `least` completions; returns 0 or the errno.
 * `flags`: IORING_ENTER_GETEVENTS works off what has completed, which `least` above 0 needs. */
static int uring_enter(struct uring *ring, uint32_t least, uint32_t flags)
{
    long done = syscall(SYS_io_uring_enter, ring->fd, ring->queued, least, flags, NULL, 0);
    ring->calls++;
    if (done < 0)
        return errno;
    ring->queued -= (uint32_t)done;
    return 0;
}

#else /* headers without what is needed: there are no rings */

static int uring_open(uint32_t depth, struct uring **opened)
{
    (void)depth;
    *opened = NULL;
    return EOPNOTSUPP;
}

static void uring_close(struct uring *ring) { (void)ring; }

#endif
#endif
