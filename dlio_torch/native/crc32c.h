/* CRC-32C (Castagnoli): by the processor's instructions where it has them, else by tables.
 *
 * The instruction for it takes eight bytes and has a latency of three cycles, so three independent sums run in
 * parallel.  Two sums are combined by multiplying the first with x to the power of the bits that follow, which is a
 * table here.  Where the processor multiplies polynomials in registers of 64 bytes, long data is first folded by that:
 * a block is replaced by its product with x to the power of the bits that follow, modulo the polynomial, added to a
 * later block.
 */

#ifndef DLIO_CRC32C_H
#define DLIO_CRC32C_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <cpuid.h>
#include <immintrin.h>
#elif defined(__aarch64__) && defined(__linux__)
#include <sys/auxv.h>
#endif

#if defined(__x86_64__) || (defined(__aarch64__) && defined(__linux__))
#define CRC32C_INSTRUCTIONS 1
#endif

#define CRC32C_POLYNOMIAL 0x82F63B78u /* its bits reversed */
#define CRC32C_BLOCK 1024             /* bytes of one of the three */
#define CRC32C_SHORT_BLOCK 128        /* of shorter data */
#define CRC32C_REGISTER 64            /* bytes of a register that is folded; four of them are a round */
#define CRC32C_ROUND (4 * CRC32C_REGISTER)

/* A sum, moved over the bytes of a block of zeros; one table for each byte. */
struct crc32c_shift {
    uint32_t table[4][256];
};

static uint32_t crc32c_table[8][256];
static struct crc32c_shift crc32c_behind, crc32c_shortly_behind;
static int crc32c_in_hardware, crc32c_folds;
static uint64_t crc32c_round_factors[2], crc32c_register_factors[2]; /* for the low and high half of 16 bytes */

static uint32_t crc32c_of_zeros(uint32_t crc, int bytes)
{
    while (bytes-- > 0)
        crc = crc >> 8 ^ crc32c_table[0][crc & 0xFF];
    return crc;
}

static void crc32c_fill_shift(struct crc32c_shift *shift, int bytes)
{
    uint32_t moved[32]; /* each bit; a byte's sum is that of its bits */
    for (int bit = 0; bit < 32; bit++)
        moved[bit] = crc32c_of_zeros(1u << bit, bytes);
    for (int place = 0; place < 4; place++)
        for (int byte = 0; byte < 256; byte++) {
            uint32_t sum = 0;
            for (int bit = 0; bit < 8; bit++)
                sum ^= byte >> bit & 1 ? moved[8 * place + bit] : 0;
            shift->table[place][byte] = sum;
        }
}

/* x to the power of `bits`, a multiple of 8, modulo the polynomial, as a factor of bits in reversed order: a product of
 * two reversed halves is one bit short. */
static uint64_t crc32c_factor(int bits)
{
    return (uint64_t)crc32c_of_zeros(0x80000000u, bits / 8) << 1;
}

static void crc32c_fill_factors(uint64_t *factors, int bytes)
{
    factors[0] = crc32c_factor(8 * bytes + 32);
    factors[1] = crc32c_factor(8 * bytes - 32);
}

/* Which instructions there are.  x86-64 is asked directly: not every compiler's library for that is initialised before
 * constructors run. */
static void crc32c_find_instructions(void)
{
#if defined(__x86_64__)
    unsigned a, b, c, d, states, upper;
    if (!__get_cpuid(1, &a, &b, &c, &d))
        return;
    crc32c_in_hardware = c >> 20 & 1;  /* SSE4.2 */
    if (!(c >> 27 & 1) || !(c >> 1 & 1)) /* XGETBV, PCLMULQDQ */
        return;
    __asm__ volatile("xgetbv" : "=a"(states), "=d"(upper) : "c"(0));
    if ((states & 0xE6) != 0xE6) /* the system keeps registers of 64 bytes */
        return;
    crc32c_folds = __get_cpuid_count(7, 0, &a, &b, &c, &d) && b >> 16 & 1 && c >> 10 & 1; /* AVX512F, VPCLMULQDQ */
#elif defined(CRC32C_INSTRUCTIONS)
    crc32c_in_hardware = (getauxval(AT_HWCAP) >> 7 & 1) != 0; /* HWCAP_CRC32 */
#endif
}

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
    crc32c_fill_shift(&crc32c_behind, CRC32C_BLOCK);
    crc32c_fill_shift(&crc32c_shortly_behind, CRC32C_SHORT_BLOCK);
    crc32c_fill_factors(crc32c_round_factors, CRC32C_ROUND);
    crc32c_fill_factors(crc32c_register_factors, CRC32C_REGISTER);
    crc32c_find_instructions();
}

static inline uint64_t crc32c_word(const uint8_t *data)
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

#if defined(CRC32C_INSTRUCTIONS)

/* Assembler, because compilers name the functions for these instructions differently. */
static inline uint32_t crc32c_add_word(uint32_t crc, uint64_t word)
{
#if defined(__x86_64__)
    uint64_t sum = crc;
    __asm__("crc32q %1, %0" : "+r"(sum) : "rm"(word));
    return (uint32_t)sum;
#else
    __asm__(".arch_extension crc\n\tcrc32cx %w0, %w0, %1" : "+r"(crc) : "r"(word));
    return crc;
#endif
}

static inline uint32_t crc32c_add_byte(uint32_t crc, uint8_t byte)
{
#if defined(__x86_64__)
    __asm__("crc32b %1, %0" : "+r"(crc) : "rm"(byte));
#else
    __asm__(".arch_extension crc\n\tcrc32cb %w0, %w0, %w1" : "+r"(crc) : "r"((uint32_t)byte));
#endif
    return crc;
}

static uint32_t crc32c_moved(const struct crc32c_shift *shift, uint32_t crc)
{
    return shift->table[0][crc & 0xFF] ^ shift->table[1][crc >> 8 & 0xFF] ^ shift->table[2][crc >> 16 & 0xFF] ^
           shift->table[3][crc >> 24];
}

/* Three blocks at once, as often as there are; `*length` becomes what is left. */
static inline uint32_t crc32c_by_threes(uint32_t sum, const uint8_t **data, size_t *length, size_t block,
                                        const struct crc32c_shift *shift)
{
    for (; *length >= 3 * block; *data += 3 * block, *length -= 3 * block) {
        const uint8_t *at = *data;
        uint32_t second = 0, third = 0;
        for (size_t i = 0; i < block; i += 8) {
            sum = crc32c_add_word(sum, crc32c_word(at + i));
            second = crc32c_add_word(second, crc32c_word(at + block + i));
            third = crc32c_add_word(third, crc32c_word(at + 2 * block + i));
        }
        sum = crc32c_moved(shift, crc32c_moved(shift, sum) ^ second) ^ third;
    }
    return sum;
}

static uint32_t crc32c_by_processor(uint32_t sum, const uint8_t *data, size_t length)
{
    sum = crc32c_by_threes(sum, &data, &length, CRC32C_BLOCK, &crc32c_behind);
    sum = crc32c_by_threes(sum, &data, &length, CRC32C_SHORT_BLOCK, &crc32c_shortly_behind);
    for (; length >= 8; data += 8, length -= 8)
        sum = crc32c_add_word(sum, crc32c_word(data));
    while (length-- > 0)
        sum = crc32c_add_byte(sum, *data++);
    return sum;
}

#endif

#if defined(__x86_64__)

#define CRC32C_FOLDING __attribute__((target("avx512f,vpclmulqdq,pclmul,sse4.2")))

CRC32C_FOLDING static inline __m512i crc32c_folded(__m512i x, __m512i factors, __m512i later)
{
    __m512i low = _mm512_clmulepi64_epi128(x, factors, 0x00), high = _mm512_clmulepi64_epi128(x, factors, 0x11);
    return _mm512_ternarylogic_epi64(low, high, later, 0x96); /* the sum of the three */
}

CRC32C_FOLDING static inline __m512i crc32c_factors(const uint64_t *factors)
{
    return _mm512_broadcast_i32x4(_mm_loadu_si128((const __m128i *)(const void *)factors));
}

/* The sum of all whole rounds, of which there is one at least. */
CRC32C_FOLDING static uint32_t crc32c_by_folding(uint32_t sum, const uint8_t **data, size_t *length)
{
    const uint8_t *at = *data;
    __m512i factors = crc32c_factors(crc32c_round_factors);
    __m512i x0 = _mm512_loadu_si512(at), x1 = _mm512_loadu_si512(at + CRC32C_REGISTER);
    __m512i x2 = _mm512_loadu_si512(at + 2 * CRC32C_REGISTER), x3 = _mm512_loadu_si512(at + 3 * CRC32C_REGISTER);
    x0 = _mm512_xor_si512(x0, _mm512_zextsi128_si512(_mm_cvtsi32_si128((int)sum)));
    size_t left = *length - CRC32C_ROUND;
    for (at += CRC32C_ROUND; left >= CRC32C_ROUND; at += CRC32C_ROUND, left -= CRC32C_ROUND) {
        x0 = crc32c_folded(x0, factors, _mm512_loadu_si512(at));
        x1 = crc32c_folded(x1, factors, _mm512_loadu_si512(at + CRC32C_REGISTER));
        x2 = crc32c_folded(x2, factors, _mm512_loadu_si512(at + 2 * CRC32C_REGISTER));
        x3 = crc32c_folded(x3, factors, _mm512_loadu_si512(at + 3 * CRC32C_REGISTER));
    }
    factors = crc32c_factors(crc32c_register_factors);
    x1 = crc32c_folded(x0, factors, x1);
    x2 = crc32c_folded(x1, factors, x2);
    x3 = crc32c_folded(x2, factors, x3);
    uint8_t rest[CRC32C_REGISTER];
    _mm512_storeu_si512(rest, x3);
    *data = at;
    *length = left;
    return crc32c_by_processor(0, rest, sizeof rest);
}

#endif

/* The sum of what `crc` is the sum of, and of `length` more bytes. */
static uint32_t crc32c_extend(uint32_t crc, const void *data, size_t length)
{
    const uint8_t *at = data;
    crc = ~crc;
#if defined(__x86_64__)
    if (crc32c_folds && length >= 2 * CRC32C_ROUND)
        crc = crc32c_by_folding(crc, &at, &length);
#endif
#if defined(CRC32C_INSTRUCTIONS)
    if (crc32c_in_hardware)
        return ~crc32c_by_processor(crc, at, length);
#endif
    return ~crc32c_by_tables(crc, at, length);
}

#endif
