/* Reads extents of files past the page cache (O_DIRECT) to where they belong in memory.
 *
 * Requests are whole blocks to aligned memory.  An extent whose address is as far from a block's border as it
 * is in the file goes straight there, but for its first and last block; other extents are read aside and copied.
 */

#include "extent_list.h"

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

/* Bytes of scratch that a request may need. */
static inline int64_t direct_room(int64_t request, int64_t block) { return request + 2 * block; }

/* As read_extents; `block` is a power of two, `request` a multiple of it, and `scratch` has direct_room and begins on a
 * block.  Where it has more, requests take turns in it: to write to memory that a processor has just copied from costs
 * the device up to a fifth of its rate.  Extents are in the order of files and of bytes in each. */
static int64_t read_direct(int64_t count, const int32_t *descriptors, const int64_t *offsets, const int64_t *lengths,
                           const uint64_t *addresses, int64_t request, int64_t block, void *scratch,
                           int64_t scratch_bytes, int64_t *failed)
{
    char *aside = scratch, *last = aside + scratch_bytes - direct_room(request, block);
    struct extent_list list = {count, descriptors, offsets, lengths, addresses};
    struct extent_cursor at = {0, 0};
    struct direct_request plan;
    while (skip_done(&list, &at)) {
        int descriptor = descriptors[at.extent];
        plan_direct(&list, at, request, block, INT64_MAX, aside, &plan);
        ssize_t got = plan.used == 1 ? pread(descriptor, plan.parts[0].iov_base, plan.parts[0].iov_len, (off_t)plan.low)
                                     : preadv(descriptor, plan.parts, plan.used, (off_t)plan.low);
        if (got < 0 && errno == EINTR)
            continue;
        int64_t there = got > 0 ? deliver_direct(&list, &plan, got) : plan.low;
        if (got < 0 || there <= plan.begin) {
            failed[0] = at.extent;
            failed[1] = at.done;
            return got < 0 ? errno : -1;
        }
        at = pass_direct(&list, &plan, there);
        aside += plan.high - plan.low;
        if (aside > last)
            aside = scratch;
    }
    return 0;
}
