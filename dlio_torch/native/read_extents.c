/* Reads extents of files to where they belong in memory, and copies extents of memory, many in one call.
 *
 * Called through ctypes, without the interpreter lock.
 */

#define _GNU_SOURCE
#include "read_extents.h"

/* See read_extents; the third number of `failed` becomes whether the page cache is cold. */
int64_t dlio_read_extents(int64_t count, const int32_t *descriptors, const int64_t *offsets, const int64_t *lengths,
                          const uint64_t *addresses, int64_t request, int64_t *failed)
{
    int64_t result = read_extents(count, descriptors, offsets, lengths, addresses, request, failed);
    failed[2] = is_cold(failed[2], failed[3]);
    return result;
}

/* See copy_extents. */
void dlio_copy_extents(int64_t count, const uint64_t *from, const int64_t *lengths, const uint64_t *to)
{
    copy_extents(count, from, lengths, to);
}
