/* Reads extents of files to where they belong in memory, and copies extents of memory.
 *
 * Extents that follow each other in a file become one request, whatever their addresses, up to the size of a request.
 * Requests are first answered out of the page cache alone, up to the first byte that is not in it: the caller wants to
 * know whether there is one.
 */

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef IOV_MAX
#define IOV_MAX 1024
#endif

/* Fill `parts` with what one request takes, from byte `done` of extent `first` on; returns their number. */
static int gather(int64_t first, int64_t done, int64_t count, const int32_t *descriptors, const int64_t *offsets,
                  const int64_t *lengths, const uint64_t *addresses, int64_t request, struct iovec *parts)
{
    int used = 0;
    for (int64_t i = first; i < count && request > 0; i++, done = 0) {
        if (i > first && (descriptors[i] != descriptors[i - 1] || offsets[i] != offsets[i - 1] + lengths[i - 1]))
            break;
        int64_t left = lengths[i] - done;
        size_t taken = (size_t)(left < request ? left : request);
        char *to = (char *)(uintptr_t)addresses[i] + done;
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
 * a file ends too early, and in `failed` the number of the extent and the bytes of it that were read; its third number
 * becomes 1 where something was not in the page cache. */
static int64_t read_extents(int64_t count, const int32_t *descriptors, const int64_t *offsets, const int64_t *lengths,
                            const uint64_t *addresses, int64_t request, int64_t *failed)
{
    struct iovec parts[IOV_MAX];
    int64_t i = 0, done = 0; /* extent, and bytes of it that are read */
    int warm = 1;            /* all that was read so far was in the page cache */
    for (;;) {
        while (i < count && done == lengths[i]) {
            i++;
            done = 0;
        }
        if (i == count)
            return 0;
        int used = gather(i, done, count, descriptors, offsets, lengths, addresses, request, parts);
        off_t at = (off_t)(offsets[i] + done);
        ssize_t got = warm ? cached(descriptors[i], parts, used, at) : -1;
        if (warm && got <= 0) {
            warm = 0;
            failed[2] = 1;
        }
        if (got <= 0)
            got = used == 1 ? pread(descriptors[i], parts[0].iov_base, parts[0].iov_len, at)
                            : preadv(descriptors[i], parts, used, at);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            failed[0] = i;
            failed[1] = done;
            return got < 0 ? errno : -1;
        }
        while (got > 0) {
            int64_t left = lengths[i] - done;
            if (got < left) {
                done += got;
                break;
            }
            got -= left;
            i++;
            done = 0;
        }
    }
}

/* Copy `count` extents of memory, each of `lengths[i]` bytes. */
static inline void copy_extents(int64_t count, const uint64_t *from, const int64_t *lengths, const uint64_t *to)
{
    for (int64_t i = 0; i < count; i++)
        memcpy((void *)(uintptr_t)to[i], (const void *)(uintptr_t)from[i], (size_t)lengths[i]);
}
