/* Turns elements of the other byte order around, in many extents of memory, in one call.
 *
 * Called through ctypes, without the interpreter lock.
 */

#include "swap_bytes.h"

/* Turn the elements of `sizes[i]` bytes, 1, 2, 4 or 8, in the `lengths[i]` bytes at each of `count` addresses. */
void dlio_swap_bytes(int64_t count, const uint64_t *addresses, const int64_t *lengths, const int64_t *sizes)
{
    for (int64_t i = 0; i < count; i++) {
        char *at = (char *)(uintptr_t)addresses[i];
        turn_elements(at, at, lengths[i], sizes[i]);
    }
}
