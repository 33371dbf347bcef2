/* CRC-32C (Castagnoli): by the processor's instruction where there is one, three blocks at a time, else by tables.
 *
 * One instruction takes eight bytes and has a latency of three cycles, so three independent sums run in parallel.  Two
 * sums are combined by multiplying the first with x to the power of the bits that follow, which is a table here.
 */

#include <stddef.h>
#include <stdint.h>
#include <string.h>
#if defined(__x86_64__)
#include <cpuid.h>
#endif

#define CRC32C_POLYNOMIAL 0x82F63B78u /* its bits reversed */
#define CRC32C_BLOCK 1024             /* bytes of one of the three */

static uint32_t crc32c_table[8][256];
static uint32_t crc32c_behind[4][256]; /* a sum, moved over CRC32C_BLOCK bytes of zeros; one table for each byte */
static int crc32c_in_hardware;

__attribute__((constructor)) static void crc32c_prepare(void)
{
    for (uint32_t byte = 0; byte < 256; byte++) {
        uint32_t crc = byte;
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ CRC32C_POLYNOMIAL : crc >> 1;
        crc32c_table[0][byte] = crc;
    }
    for (int byte = 0; byte < 256; byte++)
        for (int more = 1; more < 8; more++) {
            uint32_t crc = crc32c_table[more - 1][byte];
            crc32c_table[more][byte] = crc >> 8 ^ crc32c_table[0][crc & 0xFF];
        }
    for (int place = 0; place < 4; place++)
        for (uint32_t byte = 0; byte < 256; byte++) {
            uint32_t crc = byte << 8 * place;
            for (int zero = 0; zero < CRC32C_BLOCK; zero++)
                crc = crc >> 8 ^ crc32c_table[0][crc & 0xFF];
            crc32c_behind[place][byte] = crc;
        }
#if defined(__x86_64__)
    unsigned ax, bx, cx = 0, dx;
    crc32c_in_hardware = __get_cpuid(1, &ax, &bx, &cx, &dx) && cx & 1u << 20; /* SSE 4.2 */
#endif
}

static uint64_t crc32c_word(const uint8_t *data)
{
    uint64_t word;
    memcpy(&word, data, sizeof word);
    return word;
}

static uint32_t crc32c_by_tables(uint32_t crc, const uint8_t *data, size_t length)
{
#if __BYTE_ORDER__ == __ORDER_LITTLE_ENDIAN__
    for (; length >= 8; data += 8, length -= 8) {
        uint64_t word = crc32c_word(data) ^ crc;
        crc = 0;
        for (int i = 0; i < 8; i++)
            crc ^= crc32c_table[7 - i][word >> 8 * i & 0xFF];
    }
#endif
    while (length-- > 0)
        crc = crc >> 8 ^ crc32c_table[0][(crc ^ *data++) & 0xFF];
    return crc;
}

#if defined(__x86_64__)
static uint64_t crc32c_moved(uint64_t crc)
{
    return crc32c_behind[0][crc & 0xFF] ^ crc32c_behind[1][crc >> 8 & 0xFF] ^ crc32c_behind[2][crc >> 16 & 0xFF] ^
           crc32c_behind[3][crc >> 24 & 0xFF];
}

/* As assembly: compilers offer the instruction as a function under different conditions. */
static inline uint64_t crc32c_step(uint64_t sum, uint64_t word)
{
    __asm__("crc32q %1, %0" : "+r"(sum) : "r"(word));
    return sum;
}

static inline uint32_t crc32c_step_byte(uint32_t sum, uint8_t byte)
{
    __asm__("crc32b %1, %0" : "+r"(sum) : "q"(byte));
    return sum;
}

static uint32_t crc32c_by_processor(uint32_t crc, const uint8_t *data, size_t length)
{
    uint64_t sum = crc;
    for (; length >= 3 * CRC32C_BLOCK; data += 3 * CRC32C_BLOCK, length -= 3 * CRC32C_BLOCK) {
        uint64_t second = 0, third = 0;
        for (size_t i = 0; i < CRC32C_BLOCK; i += 8) {
            sum = crc32c_step(sum, crc32c_word(data + i));
            second = crc32c_step(second, crc32c_word(data + CRC32C_BLOCK + i));
            third = crc32c_step(third, crc32c_word(data + 2 * CRC32C_BLOCK + i));
        }
        sum = crc32c_moved(crc32c_moved(sum) ^ second) ^ third;
    }
    for (; length >= 8; data += 8, length -= 8)
        sum = crc32c_step(sum, crc32c_word(data));
    while (length-- > 0)
        sum = crc32c_step_byte((uint32_t)sum, *data++);
    return (uint32_t)sum;
}
#endif

/* The sum of what `crc` is the sum of, and of `length` more bytes. */
static uint32_t crc32c_extend(uint32_t crc, const void *data, size_t length)
{
#if defined(__x86_64__)
    if (crc32c_in_hardware)
        return ~crc32c_by_processor(~crc, data, length);
#endif
    return ~crc32c_by_tables(~crc, data, length);
}
