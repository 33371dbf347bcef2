/* Reads extents of files to where they belong in memory, and copies extents of memory.
 *
 * Extents that follow each other in a file become one request, whatever their addresses, up to the size of a request.
 * Requests are first answered out of the page cache alone, up to the first byte that is not in it: the caller wants to
 * know whether the cache is cold.
 */

#include "extent_list.h"

#include <errno.h>
#include <sys/types.h>
#include <unistd.h>

enum { MISSES = 4 }; /* in a row: what follows is not in the page cache either */

/* Reads the cached beginning of a request; -1: its first byte is not cached, or the system does not tell. */
static ssize_t cached(int descriptor, const struct iovec *parts, int used, off_t at)
{
#ifdef RWF_NOWAIT
    return preadv2(descriptor, parts, used, at, RWF_NOWAIT);
#else
    return -1;
#endif
}

/* Read `count` extents, each of `lengths[i]` bytes from byte `offsets[i]` of `descriptors[i]` on to
 * `addresses[i]`, in this order, by requests of `request` bytes at most.  Returns 0; else the errno, or -1 where
 * a file ends too early, and in `failed` the number of the extent and the bytes of it that were read; its third and
 * fourth number are the requests that were not in the page cache, and all of them. */
static int64_t read_extents(int64_t count, const int32_t *descriptors, const int64_t *offsets, const int64_t *lengths,
                            const uint64_t *addresses, int64_t request, int64_t *failed)
{
    struct extent_list list = {count, descriptors, offsets, lengths, addresses};
    struct extent_cursor at = {0, 0};
    struct iovec parts[IOV_MAX];
    int64_t in_a_row = 0; /* requests that were not in the page cache */
    while (skip_done(&list, &at)) {
        int used = plan_extents(&list, at, request, parts), descriptor = descriptors[at.extent];
        off_t offset = (off_t)file_offset(&list, at);
        ssize_t got = in_a_row < MISSES ? cached(descriptor, parts, used, offset) : -1;
        int missed = got <= 0;
        in_a_row = missed ? in_a_row + 1 : 0;
        failed[2] += missed;
        failed[3]++;
        if (missed)
            got = used == 1 ? pread(descriptor, parts[0].iov_base, parts[0].iov_len, offset)
                            : preadv(descriptor, parts, used, offset);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            failed[0] = at.extent;
            failed[1] = at.done;
            return got < 0 ? errno : -1;
        }
        pass_bytes(&list, &at, got);
    }
    return 0;
}

/* Copy `count` extents of memory, each of `lengths[i]` bytes. */
static inline void copy_extents(int64_t count, const uint64_t *from, const int64_t *lengths, const uint64_t *to)
{
    for (int64_t i = 0; i < count; i++)
        memcpy((void *)(uintptr_t)to[i], (const void *)(uintptr_t)from[i], (size_t)lengths[i]);
}
