/* Reads extents of files past the page cache (O_DIRECT) to where they belong in memory.
 *
 * Requests are whole blocks to aligned memory.  An extent whose address is as far from a block's border as it
 * is in the file goes straight there, but for its first and last block; other extents are read aside and copied.
 */

#include <errno.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

static int64_t smaller(int64_t a, int64_t b) { return a < b ? a : b; }

/* Copy bytes `from` to `to` of a file, which lie at `memory` from byte `begin` of the file on. */
static void deliver(char *address, int64_t offset, int64_t length, const char *memory, int64_t begin, int64_t from,
                    int64_t to)
{
    int64_t low = offset > from ? offset : from, high = smaller(offset + length, to);
    if (low < high)
        memcpy(address + (low - offset), memory + (low - begin), (size_t)(high - low));
}

/* As read_extents; `block` is a power of two, `request` a multiple of it, and `scratch` has room for a request
 * and two blocks and begins on a block.  Extents are in the order of files and of bytes in each. */
static int64_t read_direct(int64_t count, const int32_t *descriptors, const int64_t *offsets, const int64_t *lengths,
                           const uint64_t *addresses, int64_t request, int64_t block, void *scratch, int64_t *failed)
{
    char *aside = scratch;
    int64_t i = 0, done = 0; /* extent, and bytes of it that are there */
    for (;;) {
        while (i < count && done == lengths[i]) {
            i++;
            done = 0;
        }
        if (i == count)
            return 0;
        int64_t at = offsets[i] + done, low = at & ~(block - 1), limit = low + request;
        int64_t end = smaller(offsets[i] + lengths[i], limit), last = i;
        char *to = (char *)(uintptr_t)addresses[i] + done;
        int together = 1; /* the extents follow each other in memory as in the file */
        while (end < limit && last + 1 < count && descriptors[last + 1] == descriptors[i] &&
               offsets[last + 1] >= low && offsets[last + 1] <= ((end + block - 1) & ~(block - 1))) {
            last++;
            if (offsets[last] != end || (char *)(uintptr_t)addresses[last] != to + (end - at))
                together = 0;
            int64_t next = smaller(offsets[last] + lengths[last], limit);
            end = next > end ? next : end;
        }
        int64_t high = (end + block - 1) & ~(block - 1);
        int64_t inner = (at + block - 1) & ~(block - 1), outer = end & ~(block - 1);
        int straight = together && outer > inner && (((uintptr_t)to + (uintptr_t)(inner - at)) & (uintptr_t)(block - 1)) == 0;
        struct iovec parts[3];
        int used = 0;
        if (straight) {
            if (low < inner)
                parts[used++] = (struct iovec){aside, (size_t)block};
            parts[used++] = (struct iovec){to + (inner - at), (size_t)(outer - inner)};
            if (outer < high)
                parts[used++] = (struct iovec){aside + block, (size_t)block};
        } else {
            parts[used++] = (struct iovec){aside, (size_t)(high - low)};
        }
        ssize_t got = used == 1 ? pread(descriptors[i], parts[0].iov_base, parts[0].iov_len, (off_t)low)
                                : preadv(descriptors[i], parts, used, (off_t)low);
        if (got < 0 && errno == EINTR)
            continue;
        int64_t there = smaller(end, low + (got > 0 ? got : 0)); /* bytes of the file up to here have come */
        if (got < 0 || there <= at) {
            failed[0] = i;
            failed[1] = done;
            return got < 0 ? errno : -1;
        }
        if (straight) {
            if (low < inner)
                deliver(to, at, end - at, aside, low, at, smaller(there, inner));
            if (there > outer)
                deliver(to, at, end - at, aside + block, outer, outer, there);
        } else {
            for (int64_t j = i; j <= last; j++)
                deliver((char *)(uintptr_t)addresses[j], offsets[j], lengths[j], aside, low, j == i ? at : low, there);
        }
        while (i <= last && offsets[i] + lengths[i] <= there)
            i++;
        done = i <= last && there > offsets[i] ? there - offsets[i] : 0;
    }
}
