/* Turns elements of the other byte order around, in many extents of memory.
 *
 * Extents need not be aligned: elements go through registers.
 */

#include <stdint.h>
#include <string.h>

#define TURN(bits, turned)                                                                                            \
    static void turn##bits(char *at, int64_t count)                                                                   \
    {                                                                                                                 \
        for (int64_t i = 0; i < count; i++) {                                                                         \
            uint##bits##_t x;                                                                                         \
            memcpy(&x, at + i * (int64_t)sizeof x, sizeof x);                                                         \
            x = turned;                                                                                               \
            memcpy(at + i * (int64_t)sizeof x, &x, sizeof x);                                                         \
        }                                                                                                             \
    }

TURN(16, (uint16_t)(x << 8 | x >> 8))
TURN(32, __builtin_bswap32(x))
TURN(64, __builtin_bswap64(x))

/* Turn the elements of `sizes[i]` bytes, 1, 2, 4 or 8, in the `lengths[i]` bytes at each of `count` addresses. */
static void swap_bytes(int64_t count, const uint64_t *addresses, const int64_t *lengths, const int64_t *sizes)
{
    for (int64_t i = 0; i < count; i++) {
        char *at = (char *)(uintptr_t)addresses[i];
        if (sizes[i] == 2)
            turn16(at, lengths[i] / 2);
        else if (sizes[i] == 4)
            turn32(at, lengths[i] / 4);
        else if (sizes[i] == 8)
            turn64(at, lengths[i] / 8);
    }
}
