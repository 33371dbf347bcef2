/* Fills memory with the random numbers of NumPy's Philox generator, many samples in one call.
 *
 * Called through ctypes, without the interpreter lock.  Word w (64 bits) of a stream is word w % 4 of the block
 * cipher Philox4x64-10 of counter w / 4 + 1 under the stream's key (Salmon et al., "Parallel random numbers: as easy
 * as 1, 2, 3", SC'11; NumPy counts before it draws).  Any word can be made without those before it: what is to be
 * zero is never drawn, and four counters go through the rounds side by side, whose multiplications overlap.
 */

#ifndef __clang__ /* which vectorises these loops at any level */
#pragma GCC optimize("O3")
#endif

#include <stdint.h>
#include <string.h>

enum { WORDS = 0, FLOATS = 1, DOUBLES = 2 }; /* what becomes of the words */

#define LANES 4
#define LANE_WORDS 4
#define AT_ONCE (LANES * LANE_WORDS) /* words */
#define PART 512                     /* words that are converted while they are in the nearest cache */

__extension__ typedef unsigned __int128 wide;

/* Words of the counters `counter` to `counter + LANES - 1` of a stream. */
static inline void draw(uint64_t counter, uint64_t key0, uint64_t key1, uint64_t *restrict to)
{
    uint64_t a[LANES], b[LANES], c[LANES], d[LANES];
    for (int i = 0; i < LANES; i++) {
        a[i] = counter + (uint64_t)i;
        b[i] = c[i] = d[i] = 0;
    }
#pragma GCC unroll 10
    for (int round = 0; round < 10; round++) {
#pragma GCC unroll 4
        for (int i = 0; i < LANES; i++) {
            wide first = (wide)0xD2E7470EE14C6C93u * a[i], second = (wide)0xCA5A826395121157u * c[i];
            a[i] = (uint64_t)(second >> 64) ^ b[i] ^ key0;
            c[i] = (uint64_t)(first >> 64) ^ d[i] ^ key1;
            b[i] = (uint64_t)second;
            d[i] = (uint64_t)first;
        }
        key0 += 0x9E3779B97F4A7C15u;
        key1 += 0xBB67AE8584CAA73Bu;
    }
    for (int i = 0; i < LANES; i++) {
        to[LANE_WORDS * i] = a[i];
        to[LANE_WORDS * i + 1] = b[i];
        to[LANE_WORDS * i + 2] = c[i];
        to[LANE_WORDS * i + 3] = d[i];
    }
}

/* Numbers in [0, 1) of the upper 24 or 53 bits, as NumPy's Generator.random makes them. */
static void convert(int kind, uint64_t *words, int64_t count)
{
    if (kind == FLOATS) {
        for (int64_t i = 0; i < 2 * count; i++) {
            uint32_t half;
            memcpy(&half, (char *)words + 4 * i, 4);
            float made = (float)(int32_t)(half >> 8) * 0x1p-24f;
            memcpy((char *)words + 4 * i, &made, 4);
        }
    } else if (kind == DOUBLES) {
        for (int64_t i = 0; i < count; i++) {
            double made = (double)(int64_t)(words[i] >> 11) * 0x1p-53;
            memcpy(words + i, &made, 8);
        }
    }
}

/* Writes `bytes` (a multiple of four) of a stream, from its word `word` on, to `to`, which need not be aligned. */
static void fill_run(uint64_t key0, uint64_t key1, int64_t word, int64_t bytes, int kind, char *to)
{
    uint64_t words[PART];
    for (int64_t done = 0; done < bytes; done += 8 * PART, word += PART) {
        int64_t taken = bytes - done < 8 * PART ? bytes - done : 8 * PART;
        for (int64_t i = 0; 8 * i < taken; i += AT_ONCE)
            draw((uint64_t)(word + i) / LANE_WORDS + 1, key0, key1, words + i);
        convert(kind, words, (taken + 7) / 8);
        memcpy(to + done, words, (size_t)taken);
    }
}

/* Fill the memory from `to` on with the streams of `count` samples, one after another: of stream i, which has the
 * key (`seed`, `numbers[i]`), `sizes[i]` bytes from byte `start` on.  Of each `period` bytes of a stream, a multiple
 * of 32, the first `kept` are random numbers and the others are zero; `start` is a multiple of `period`. */
void dlio_fill_random(int64_t count, uint64_t seed, const uint64_t *numbers, const int64_t *sizes, int64_t start,
                      int64_t period, int64_t kept, int kind, char *to)
{
    for (int64_t i = 0; i < count; to += sizes[i++]) {
        if (kept >= period) {
            fill_run(seed, numbers[i], start / 8, sizes[i], kind, to);
            continue;
        }
        for (int64_t at = 0; at < sizes[i]; at += period) {
            int64_t left = sizes[i] - at, block = left < period ? left : period, random = kept < block ? kept : block;
            fill_run(seed, numbers[i], (start + at) / 8, random, kind, to + at);
            memset(to + at + random, 0, (size_t)(block - random));
        }
    }
}
