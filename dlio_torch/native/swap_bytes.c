/* Turns elements of the other byte order around, in many extents of memory, in one call.
 *
 * Called through ctypes, without the interpreter lock.
 */

#include "swap_bytes.h"

/* See swap_bytes. */
void dlio_swap_bytes(int64_t count, const uint64_t *addresses, const int64_t *lengths, const int64_t *sizes)
{
    swap_bytes(count, addresses, lengths, sizes);
}
