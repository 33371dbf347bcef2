/* Elements of the other byte order are turned around, from memory to memory or in place. */

#ifndef DLIO_SWAP_BYTES_H
#define DLIO_SWAP_BYTES_H

#include <stdint.h>
#include <string.h>

/* Elements go through registers, because memory need not be aligned. */
#define TURN(bits, turned)                                                                                            \
    static void turn##bits(const char *from, char *to, int64_t count)                                                 \
    {                                                                                                                 \
        for (int64_t i = 0; i < count; i++) {                                                                         \
            uint##bits##_t x;                                                                                         \
            memcpy(&x, from + i * (int64_t)sizeof x, sizeof x);                                                       \
            x = turned;                                                                                               \
            memcpy(to + i * (int64_t)sizeof x, &x, sizeof x);                                                         \
        }                                                                                                             \
    }

TURN(16, (uint16_t)(x << 8 | x >> 8))
TURN(32, __builtin_bswap32(x))
TURN(64, __builtin_bswap64(x))

#undef TURN

/* Turn the elements of `size` bytes, 2, 4 or 8, in `length` bytes; returns whether that size is known.  `to` may be
 * `from`. */
static int turn_elements(const void *from, void *to, int64_t length, int64_t size)
{
    if (size == 2)
        turn16(from, to, length / 2);
    else if (size == 4)
        turn32(from, to, length / 4);
    else if (size == 8)
        turn64(from, to, length / 8);
    else
        return 0;
    return 1;
}

#endif
