/* Reads extents of files to where they belong in memory, and copies extents of memory, many in one call.
 *
 * Called through ctypes, without the interpreter lock.
 */

#define _GNU_SOURCE
#include "read_extents.h"

/* See read_extents. */
int64_t dlio_read_extents(int64_t count, const int32_t *descriptors, const int64_t *offsets, const int64_t *lengths,
                          const uint64_t *addresses, int64_t request, int64_t *failed)
{
    return read_extents(count, descriptors, offsets, lengths, addresses, request, failed);
}

/* See copy_extents. */
void dlio_copy_extents(int64_t count, const uint64_t *from, const int64_t *lengths, const uint64_t *to)
{
    copy_extents(count, from, lengths, to);
}
