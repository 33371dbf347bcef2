/* Decoding of stored chunks of HDF5 and Zarr arrays, and copies of their pieces to where samples are.
 *
 * No function here takes a lock or calls Python, so that threads of any kind may decode: each opens a decoder of its
 * own.  The memory of a chunk is read only within the bytes given, whatever is in it.
 */

#ifndef DLIO_DECODE_CHUNK_H
#define DLIO_DECODE_CHUNK_H

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "chunk_filters.h"
#include "crc32c.h"
#include "inflate_library.h"
#include "swap_bytes.h"

enum chunk_filter {
    CHUNK_DEFLATE = 1, /* numbers 1 to 3 are HDF5's */
    CHUNK_SHUFFLE = 2,
    CHUNK_FLETCHER32 = 3,
    CHUNK_TURNED = 4, /* elements of the other byte order; written as if by a filter */
    CHUNK_GZIP_FILE = 5,
    CHUNK_ZSTD = 6,
    CHUNK_CRC32C = 7,
};

enum chunk_result {
    CHUNK_SOUND = 0,
    CHUNK_DAMAGED = 1,        /* a stream cannot be decompressed */
    CHUNK_WRONG_CHECKSUM = 2,
    CHUNK_WRONG_SIZE = 3,     /* there are more or fewer bytes than the chunk has */
    CHUNK_UNSUPPORTED = 4,    /* not for this code: a library is missing, or a stream holds a stream */
    CHUNK_NO_MEMORY = 5,
};

enum { CHUNK_FILTERS = 16, CHUNK_SUM = 4 }; /* most filters; bytes of a checksum */

/* Chunks that lie in memory as stored, and the fragments of them that are wanted.  All fields have eight bytes. */
struct chunk_batch {
    int64_t filter_count;
    const int64_t *filters; /* of enum chunk_filter, in the order of writing */
    int64_t itemsize;       /* bytes of an element */
    int64_t size;           /* bytes of a decoded chunk */
    const uint8_t *fill;    /* an element of chunks of 0 stored bytes, which were never written; NULL: there are none */
    int64_t count;
    const uint64_t *stored; /* address of each chunk */
    const int64_t *lengths; /* stored bytes of each */
    const int64_t *skipped; /* bit i: it was stored without filter i */
    int64_t fragments;
    const int64_t *chunk;   /* of each fragment the number of its chunk, ascending, counted from `first_chunk` */
    const int64_t *source;  /* first byte in the decoded chunk */
    const int64_t *bytes;
    const int64_t *to; /* first byte in the destination */
    int64_t first_chunk;
    uint64_t base; /* address of the destination */
};

struct chunk_memory {
    uint8_t *data;
    size_t room;
};

/* What decoding needs; for one thread at a time. */
struct chunk_decoder {
    struct inflater inflater;
    struct chunk_memory steps[2], whole;
};

/* Take a library of enum inflate_library; INFLATE_LIBRARIES: the best that the machine has. */
static void chunk_decoder_open(struct chunk_decoder *decoder, int library)
{
    memset(decoder, 0, sizeof *decoder);
    inflater_open(&decoder->inflater, library == INFLATE_LIBRARIES ? inflate_best_library() : library);
}

static void chunk_decoder_close(struct chunk_decoder *decoder)
{
    inflater_close(&decoder->inflater);
    free(decoder->steps[0].data);
    free(decoder->steps[1].data);
    free(decoder->whole.data);
    memset(decoder, 0, sizeof *decoder);
}

static uint8_t *chunk_room(struct chunk_memory *memory, size_t bytes)
{
    if (memory->data == NULL || memory->room < bytes) {
        free(memory->data);
        memory->data = malloc(bytes ? bytes : 1);
        memory->room = memory->data != NULL ? bytes : 0;
    }
    return memory->data;
}

static int chunk_is_compressed(int64_t filter)
{
    return filter == CHUNK_DEFLATE || filter == CHUNK_GZIP_FILE || filter == CHUNK_ZSTD;
}

/* Verify the checksum in the last bytes and leave it out of `length`. */
static int chunk_sum(int64_t filter, const uint8_t *data, size_t *length)
{
    if (*length < CHUNK_SUM)
        return CHUNK_WRONG_CHECKSUM;
    *length -= CHUNK_SUM;
    const uint8_t *sum = data + *length;
    if (filter == CHUNK_FLETCHER32)
        return fletcher_is_sound(data, *length) ? CHUNK_SOUND : CHUNK_WRONG_CHECKSUM;
    uint32_t stored = sum[0] | (uint32_t)sum[1] << 8 | (uint32_t)sum[2] << 16 | (uint32_t)sum[3] << 24;
    return crc32c_extend(0, data, *length) == stored ? CHUNK_SOUND : CHUNK_WRONG_CHECKSUM;
}

static int chunk_expand(struct chunk_decoder *decoder, int64_t filter, const uint8_t *data, size_t length,
                        uint8_t *out, size_t expected)
{
    int result = filter == CHUNK_ZSTD
                     ? expand_zstd(data, length, out, expected)
                     : inflate_exactly(&decoder->inflater, filter == CHUNK_GZIP_FILE ? INFLATE_GZIP : INFLATE_ZLIB,
                                       data, length, out, expected);
    static const int results[] = {CHUNK_SOUND, CHUNK_DAMAGED, CHUNK_WRONG_SIZE, CHUNK_WRONG_SIZE, CHUNK_UNSUPPORTED};
    return results[result];
}

/* Undo one filter that gives other bytes; `*length` becomes theirs.  `expected`: bytes that a stream must hold. */
static int chunk_step(struct chunk_decoder *decoder, const struct chunk_batch *batch, int64_t filter,
                      const uint8_t *data, size_t *length, uint8_t *out, size_t expected)
{
    if (chunk_is_compressed(filter)) {
        int result = chunk_expand(decoder, filter, data, *length, out, expected);
        *length = expected;
        return result;
    }
    if (filter == CHUNK_SHUFFLE)
        unshuffle(data, out, *length, (size_t)batch->itemsize);
    else if (!turn_elements(data, out, (int64_t)*length, batch->itemsize))
        return CHUNK_UNSUPPORTED;
    return CHUNK_SOUND;
}

/* The steps that give other bytes, of which the first one written gives the chunk. */
struct chunk_steps {
    int first;                      /* number of that filter; -1: none */
    size_t expected[CHUNK_FILTERS]; /* bytes that each compressed stream must hold */
    int is_compressed;
};

static int chunk_plan(const struct chunk_batch *batch, uint64_t skipped, struct chunk_steps *steps)
{
    size_t length = (size_t)batch->size;
    steps->first = -1;
    steps->is_compressed = 0;
    if (batch->filter_count > CHUNK_FILTERS || batch->itemsize < 1)
        return CHUNK_UNSUPPORTED;
    for (int i = 0; i < batch->filter_count; i++) {
        int64_t filter = batch->filters[i];
        if (skipped >> i & 1)
            continue;
        if (filter < CHUNK_DEFLATE || filter > CHUNK_CRC32C || (chunk_is_compressed(filter) && steps->is_compressed))
            return CHUNK_UNSUPPORTED;
        if (filter == CHUNK_FLETCHER32 || filter == CHUNK_CRC32C) {
            length += CHUNK_SUM;
            continue;
        }
        if (steps->first < 0)
            steps->first = i;
        steps->expected[i] = length;
        steps->is_compressed |= chunk_is_compressed(filter);
    }
    return CHUNK_SOUND;
}

/* Decode one chunk of `length` stored bytes to the `batch->size` bytes at `to`. */
static int decode_chunk(struct chunk_decoder *decoder, const struct chunk_batch *batch, uint64_t skipped,
                        const uint8_t *stored, size_t length, uint8_t *to)
{
    struct chunk_steps steps;
    int result = chunk_plan(batch, skipped, &steps), turn = 0;
    size_t room = (size_t)batch->size + CHUNK_SUM * CHUNK_FILTERS;
    room = room < length ? length : room;
    const uint8_t *data = stored;
    for (int i = (int)batch->filter_count - 1; i >= 0 && result == CHUNK_SOUND; i--) {
        int64_t filter = batch->filters[i];
        if (skipped >> i & 1)
            continue;
        if (filter == CHUNK_FLETCHER32 || filter == CHUNK_CRC32C) {
            result = chunk_sum(filter, data, &length);
            continue;
        }
        size_t given = chunk_is_compressed(filter) ? steps.expected[i] : length;
        uint8_t *out = i == steps.first && given == (size_t)batch->size ? to : chunk_room(&decoder->steps[turn], room);
        turn = !turn;
        result = out == NULL ? CHUNK_NO_MEMORY
                             : chunk_step(decoder, batch, filter, data, &length, out, steps.expected[i]);
        data = out;
    }
    if (result != CHUNK_SOUND)
        return result;
    if (length != (size_t)batch->size)
        return CHUNK_WRONG_SIZE;
    if (data != to)
        memcpy(to, data, length);
    return CHUNK_SOUND;
}

/* Repeat the element of chunks that were never written. */
static void fill_fragment(const struct chunk_batch *batch, uint8_t *to, size_t bytes)
{
    size_t done = bytes < (size_t)batch->itemsize ? bytes : (size_t)batch->itemsize;
    memcpy(to, batch->fill, done);
    while (done < bytes) {
        size_t more = bytes - done < done ? bytes - done : done;
        memcpy(to + done, to, more);
        done += more;
    }
}

/* Decode chunk `i`, and copy its fragments from `low` to before `high`. */
static int decode_fragments(struct chunk_decoder *decoder, const struct chunk_batch *batch, int64_t i, int64_t low,
                            int64_t high)
{
    const uint8_t *stored = (const uint8_t *)(uintptr_t)batch->stored[i], *data = stored;
    uint8_t *destination = (uint8_t *)(uintptr_t)batch->base;
    size_t length = (size_t)batch->lengths[i];
    int is_unwritten = length == 0 && batch->fill != NULL;
    if (!is_unwritten && high == low + 1 && batch->source[low] == 0 && batch->bytes[low] == batch->size)
        return decode_chunk(decoder, batch, (uint64_t)batch->skipped[i], stored, length, destination + batch->to[low]);
    if (!is_unwritten && batch->filter_count > 0) {
        uint8_t *whole = chunk_room(&decoder->whole, (size_t)batch->size);
        int result = whole == NULL ? CHUNK_NO_MEMORY
                                   : decode_chunk(decoder, batch, (uint64_t)batch->skipped[i], stored, length, whole);
        if (result != CHUNK_SOUND)
            return result;
        data = whole;
    } else if (!is_unwritten && length != (size_t)batch->size) {
        return CHUNK_WRONG_SIZE;
    }
    for (int64_t k = low; k < high; k++)
        if (is_unwritten)
            fill_fragment(batch, destination + batch->to[k], (size_t)batch->bytes[k]);
        else
            memcpy(destination + batch->to[k], data + batch->source[k], (size_t)batch->bytes[k]);
    return CHUNK_SOUND;
}

/* Decode all chunks of a batch and copy their fragments.  Returns one of enum chunk_result; where it is not
 * CHUNK_SOUND, `*failed` becomes the number of the chunk (0 for the first): those before it are done. */
static int decode_chunks(struct chunk_decoder *decoder, const struct chunk_batch *batch, int64_t *failed)
{
    int64_t low = 0;
    for (int64_t i = 0; i < batch->count; i++) {
        int64_t high = low;
        while (high < batch->fragments && batch->chunk[high] - batch->first_chunk == i)
            high++;
        int result = decode_fragments(decoder, batch, i, low, high);
        if (result != CHUNK_SOUND) {
            *failed = i;
            return result;
        }
        low = high;
    }
    return CHUNK_SOUND;
}

#endif
