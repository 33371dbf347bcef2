/* Reads extents of files past the page cache (O_DIRECT) to where they belong in memory, many in one call.
 *
 * Called through ctypes, without the interpreter lock.
 */

#define _GNU_SOURCE
#include "read_direct.h"

/* See read_direct. */
int64_t dlio_read_direct(int64_t count, const int32_t *descriptors, const int64_t *offsets, const int64_t *lengths,
                         const uint64_t *addresses, int64_t request, int64_t block, void *scratch, int64_t *failed)
{
    return read_direct(count, descriptors, offsets, lengths, addresses, request, block, scratch,
                       direct_room(request, block), failed);
}
