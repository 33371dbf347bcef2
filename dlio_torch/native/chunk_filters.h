/* Filters of chunks that need no library: HDF5's checksum, its shuffle filter, and the order of bytes. */

#ifndef DLIO_CHUNK_FILTERS_H
#define DLIO_CHUNK_FILTERS_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__SSE2__)
#include <emmintrin.h>
#endif

/* --- Fletcher's checksum ---------------------------------------------------------------------------------------- */

typedef uint16_t fletcher_words __attribute__((vector_size(16)));
typedef uint32_t fletcher_sums __attribute__((vector_size(32)));

enum {
    FLETCHER_LANES = 8,
    FLETCHER_ROUNDS = 360, /* so that no lane of the second sums exceeds 32 bits: 65535 * 360 * 361 / 2 */
    FLETCHER_MODULUS = 65535,
};

/* Sums over `rounds` times eight big-endian numbers: lane by lane, and each lane's sums of sums. */
static void fletcher_round(const uint8_t *data, int rounds, uint64_t *first, uint64_t *second)
{
    fletcher_sums plain = {0}, rising = {0};
    for (int i = 0; i < rounds; i++) {
        fletcher_words words;
        memcpy(&words, data + 16 * (size_t)i, sizeof words);
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
        words = words << 8 | words >> 8;
#endif
        plain += __builtin_convertvector(words, fletcher_sums);
        rising += plain;
    }
    /* Number j of lane k counts (rounds - j) * 8 - k times; `rising` has counted it (rounds - j) times. */
    uint64_t total = 0, weighted = 0;
    for (int k = 0; k < FLETCHER_LANES; k++) {
        total += plain[k];
        weighted += (uint64_t)FLETCHER_LANES * rising[k] - (uint64_t)k * plain[k];
    }
    *second += *first * (uint64_t)(FLETCHER_LANES * rounds) + weighted;
    *first += total;
    *first %= FLETCHER_MODULUS;
    *second %= FLETCHER_MODULUS;
}

/* Fletcher's checksum over big-endian 16-bit numbers, as HDF5's H5_checksum_fletcher32, each half modulo 65535. */
static uint32_t fletcher32(const uint8_t *data, size_t length)
{
    uint64_t first = 0, second = 0;
    while (length >= 16) {
        int rounds = length / 16 < FLETCHER_ROUNDS ? (int)(length / 16) : FLETCHER_ROUNDS;
        fletcher_round(data, rounds, &first, &second);
        data += 16 * (size_t)rounds;
        length -= 16 * (size_t)rounds;
    }
    for (; length >= 2; data += 2, length -= 2) {
        first += (uint64_t)data[0] << 8 | data[1];
        second += first;
    }
    if (length) {
        first += (uint64_t)data[0] << 8;
        second += first;
    }
    return (uint32_t)(second % FLETCHER_MODULUS) << 16 | (uint32_t)(first % FLETCHER_MODULUS);
}

static int fletcher_equals(const uint8_t *stored, uint32_t sum)
{
    uint32_t first = (uint32_t)stored[1] << 8 | stored[0], second = (uint32_t)stored[3] << 8 | stored[2];
    return first % FLETCHER_MODULUS == (sum & 0xFFFF) && second % FLETCHER_MODULUS == sum >> 16;
}

/* Whether the four bytes behind the data are its checksum. */
static int fletcher_is_sound(const uint8_t *data, size_t length)
{
    uint32_t sum = fletcher32(data, length);
    const uint8_t *stored = data + length;
    /* HDF5 up to 1.6.2 stored the bytes of each half in the other order on little-endian machines. */
    const uint8_t other[4] = {stored[1], stored[0], stored[3], stored[2]};
    return fletcher_equals(stored, sum) || fletcher_equals(other, sum);
}

/* --- shuffle ---------------------------------------------------------------------------------------------------- */

enum { SHUFFLE_BLOCK = 512 }; /* elements whose bytes stay in the first-level cache */

#if defined(__SSE2__)
/* Elements of 2, 4, 8 or 16 bytes, sixteen at a time; returns how many are done.  Each round interleaves the first half
 * of the registers with the second half. */
__attribute__((always_inline)) static inline size_t unshuffle_registers(const uint8_t *from, uint8_t *to, size_t count,
                                                                        const int size)
{
    size_t done = 0;
    for (; done + 16 <= count; done += 16) {
        __m128i planes[16], mixed[16];
#pragma GCC unroll 16
        for (int byte = 0; byte < size; byte++)
            planes[byte] = _mm_loadu_si128((const __m128i *)(const void *)(from + (size_t)byte * count + done));
        for (int width = 1; width < size; width *= 2) {
#pragma GCC unroll 8
            for (int k = 0; k < size / 2; k++) {
                mixed[2 * k] = _mm_unpacklo_epi8(planes[k], planes[k + size / 2]);
                mixed[2 * k + 1] = _mm_unpackhi_epi8(planes[k], planes[k + size / 2]);
            }
            memcpy(planes, mixed, (size_t)size * sizeof *planes);
        }
#pragma GCC unroll 16
        for (int k = 0; k < size; k++)
            _mm_storeu_si128((__m128i *)(void *)(to + done * (size_t)size + 16 * (size_t)k), planes[k]);
    }
    return done;
}
#endif

static size_t unshuffle_fast(const uint8_t *from, uint8_t *to, size_t count, size_t size)
{
#if defined(__SSE2__)
    switch (size) {
    case 2:
        return unshuffle_registers(from, to, count, 2);
    case 4:
        return unshuffle_registers(from, to, count, 4);
    case 8:
        return unshuffle_registers(from, to, count, 8);
    case 16:
        return unshuffle_registers(from, to, count, 16);
    }
#endif
    (void)from, (void)to, (void)count, (void)size;
    return 0;
}

/* Undo HDF5's shuffle filter: byte j of element i stands at j * count + i; a rest of less than an element is as it is.
 * The memories do not overlap. */
static void unshuffle(const uint8_t *from, uint8_t *to, size_t length, size_t size)
{
    size_t count = length / size;
    for (size_t low = unshuffle_fast(from, to, count, size); low < count; low += SHUFFLE_BLOCK) {
        size_t high = count - low < SHUFFLE_BLOCK ? count : low + SHUFFLE_BLOCK;
        for (size_t byte = 0; byte < size; byte++)
            for (size_t i = low; i < high; i++)
                to[i * size + byte] = from[byte * count + i];
    }
    memcpy(to + count * size, from + count * size, length - count * size);
}

#endif
