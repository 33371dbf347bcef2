/* Reads extents of files by io_uring to where they belong in memory, many in one call, through the page cache or
 * past it (O_DIRECT).
 *
 * Called through ctypes, without the interpreter lock.
 */

#define _GNU_SOURCE
#include "uring.h"

/* Open a ring for the calling thread; returns 0 or the errno, see uring_open. */
int64_t dlio_uring_open(uint32_t depth, struct uring **ring) { return uring_open(depth, ring); }

/* Close a ring; NULL: there is none. */
void dlio_uring_close(struct uring *ring) { uring_close(ring); }

/* As dlio_read_extents, or, where `block` is not 0, as dlio_read_direct. */
int64_t dlio_uring_read(struct uring *ring, int64_t count, const int32_t *descriptors, const int64_t *offsets,
                        const int64_t *lengths, const uint64_t *addresses, int64_t request, int64_t block,
                        int64_t *failed)
{
    if (block == 0) {
        int64_t result = uring_read_extents(ring, count, descriptors, offsets, lengths, addresses, request, failed);
        failed[2] = is_cold(failed[2], failed[3]);
        return result;
    }
    return uring_read_direct(ring, count, descriptors, offsets, lengths, addresses, request, block, failed);
}
