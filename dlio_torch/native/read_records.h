/* Reads records of TFRecord files: large requests, checksums, and the features of each Example put to their addresses.
 *
 * Records that follow each other become one request.  Where a record is as long as one before it, large arrays are read
 * straight to their addresses and what stands between them to scratch; if that is not what stood between them before,
 * the record is read again and taken apart.
 */

#include <errno.h>
#include <limits.h>
#include <stdint.h>
#include <string.h>
#include <sys/types.h>
#include <sys/uio.h>
#include <unistd.h>

#include "crc32c.h"
#include "example_proto.h"
#include "record_shapes.h"

#ifndef IOV_MAX
#define IOV_MAX 1024
#endif

enum { RECORDS = 4096 }; /* of a request */
enum { PIECE = 1 << 17 }; /* bytes, of a record that is larger than two of them */
enum { UNUSUAL = 1, CUT = 2 };

static uint32_t masked(uint32_t crc)
{
    return (crc >> 15 | crc << 17) + 0xA282EAD8u;
}

static uint32_t stored_crc(const uint8_t *at)
{
    uint32_t crc;
    memcpy(&crc, at, sizeof crc);
    return crc;
}

static int header_is_sound(const uint8_t *header, int verify)
{
    return !verify || masked(crc32c_extend(0, header, 8)) == stored_crc(header + 8);
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

struct wanted {
    int64_t count, features;
    const struct feature *feature;
    const int64_t *offsets, *spans;
    const uint64_t *to;   /* (count, features) */
    const int64_t *sizes; /* (count, features) */
    int descriptor, verify;
};

/* Read what `parts` take from byte `at` on, by requests of `request` bytes at most; 0, -errno, or CUT. */
static int64_t fill(int descriptor, struct iovec *parts, int count, int64_t at, int64_t request)
{
    while (count > 0) {
        int used = 0;
        int64_t left = request;
        size_t cut = 0;
        while (used < count && left > 0) {
            if ((int64_t)parts[used].iov_len > left) {
                cut = parts[used].iov_len - (size_t)left;
                parts[used].iov_len = (size_t)left;
            }
            left -= (int64_t)parts[used++].iov_len;
        }
        ssize_t got = used == 1 ? pread(descriptor, parts->iov_base, parts->iov_len, (off_t)at)
                                : preadv(descriptor, parts, used, (off_t)at);
        parts[used - 1].iov_len += cut;
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            return got < 0 ? -errno : CUT;
        at += got;
        while (count > 0 && (size_t)got >= parts->iov_len) {
            got -= (ssize_t)parts->iov_len;
            parts++;
            count--;
        }
        if (got > 0) {
            parts->iov_base = (char *)parts->iov_base + got;
            parts->iov_len -= (size_t)got;
        }
    }
    return 0;
}

/* Take apart a record that is whole in memory. */
static int take(const struct wanted *want, int64_t i, const uint8_t *record, struct state *state)
{
    uint64_t length;
    int64_t span = want->spans[i];
    memcpy(&length, record, sizeof length);
    if (length + FRAMING != (uint64_t)span || !header_is_sound(record, want->verify))
        return UNUSUAL;
    if (want->verify && masked(crc32c_extend(0, record + HEADER, length)) != stored_crc(record + span - TRAILER))
        return UNUSUAL;
    struct list lists[FEATURES];
    struct view view = {.data = record + HEADER, .last = (int64_t)length, .length = (int64_t)length};
    const int64_t *sizes = want->sizes + i * want->features;
    if (want->features > FEATURES || find_lists(&view, want->feature, (int)want->features, lists) < 0)
        return UNUSUAL;
    for (int64_t k = 0; k < want->features; k++)
        if (put_values(&view, &lists[k], (uint8_t *)(uintptr_t)want->to[i * want->features + k], sizes[k]) < 0)
            return UNUSUAL;
    learn(state, record, span, &view, lists, want->features, sizes);
    return 0;
}

/* Where a record that is read by its shape has come to: the next bytes that are to be the same, and the checksum. */
struct progress {
    const uint8_t *kept;
    uint32_t crc;
};

/* Compare a part, or put its numbers to their address, and add it to the checksum. */
static int finish_part(const struct wanted *want, int64_t i, const uint8_t *data, const struct shape *shape,
                       struct part part, struct progress *progress)
{
    int64_t skipped = part.low < HEADER ? HEADER - part.low : 0; /* the header has a checksum of its own */
    if (part.kind == SAME) {
        if (memcmp(data, progress->kept, (size_t)part.length))
            return UNUSUAL;
        progress->kept += part.length;
    } else if (part.kind == NUMBERS) {
        uint8_t *into = (uint8_t *)(uintptr_t)want->to[i * want->features + part.feature];
        int64_t bytes = shape->sizes[part.feature];
        if (want->feature[part.feature].kind != KIND_INTEGERS)
            memcpy(into, data, (size_t)bytes);
        else if (unpack(data, part.length, into, bytes) < 0)
            return UNUSUAL;
    }
    if (want->verify)
        progress->crc = crc32c_extend(progress->crc, data + skipped, (size_t)(part.length - skipped));
    return 0;
}

/* Finish a record whose arrays were read to their addresses, and the rest of it to `rest`. */
static int finish(const struct wanted *want, int64_t i, const uint8_t *rest, struct shape *shape)
{
    struct progress progress = {shape->kept, 0};
    for (int k = 0; k < shape->count; k++) {
        struct part part = shape->parts[k];
        const uint8_t *data = rest;
        if (part.kind == ARRAY)
            data = (const uint8_t *)(uintptr_t)want->to[i * want->features + part.feature];
        else
            rest += part.length;
        if (finish_part(want, i, data, shape, part, &progress))
            return UNUSUAL;
    }
    return want->verify && masked(progress.crc) != stored_crc(rest) ? UNUSUAL : 0;
}

static int add_part(struct iovec *parts, int used, void *to, int64_t length)
{
    if (used > 0 && (char *)parts[used - 1].iov_base + parts[used - 1].iov_len == (char *)to) {
        parts[used - 1].iov_len += (size_t)length;
        return used;
    }
    parts[used] = (struct iovec){to, (size_t)length};
    return used + 1;
}

/* Read a large record by its shape, its arrays in pieces: the checksum of a piece is computed while the piece is still in
 * the core's cache.  Returns 0, -errno, CUT, or UNUSUAL: it has another shape, or is damaged. */
static int64_t read_pieces(const struct wanted *want, int64_t i, uint8_t *scratch, int64_t request, struct shape *shape)
{
    struct progress progress = {shape->kept, 0};
    int64_t at = want->offsets[i], most = request < PIECE ? request : PIECE, result;
    for (int k = 0; k <= shape->count;) {
        struct part part = shape->parts[k];
        if (k < shape->count && part.kind == ARRAY) {
            uint8_t *data = (uint8_t *)(uintptr_t)want->to[i * want->features + part.feature];
            for (int64_t left = part.length; left > 0;) {
                int64_t bytes = left < most ? left : most;
                struct iovec piece = {data, (size_t)bytes};
                if ((result = fill(want->descriptor, &piece, 1, at, request)) != 0)
                    return result;
                progress.crc = crc32c_extend(progress.crc, data, (size_t)bytes);
                data += bytes;
                at += bytes;
                left -= bytes;
            }
            k++;
            continue;
        }
        int end = k;
        int64_t bytes = 0;
        for (; end < shape->count && shape->parts[end].kind != ARRAY; end++)
            bytes += shape->parts[end].length;
        struct iovec rest = {scratch, (size_t)(bytes + (end == shape->count ? TRAILER : 0))};
        if ((result = fill(want->descriptor, &rest, 1, at, request)) != 0)
            return result;
        at += bytes;
        const uint8_t *data = scratch;
        for (; k < end; data += shape->parts[k++].length)
            if (finish_part(want, i, data, shape, shape->parts[k], &progress))
                return UNUSUAL;
        if (end == shape->count)
            return masked(progress.crc) != stored_crc(data) ? UNUSUAL : 0;
    }
    return UNUSUAL;
}

/* Read `want->count` records.  Scratch holds `request` bytes or the longest record, and that record once more.
 * Returns 0; else -errno, CUT where the file ends too early, or UNUSUAL where a record is damaged or not for this
 * code, and in `failed` the number of the record: those before it are done. */
static int64_t read_all(const struct wanted *want, int64_t request, uint8_t *scratch, int64_t scratch_bytes,
                        struct state *state, int64_t *failed)
{
    static __thread struct iovec parts[IOV_MAX];
    static __thread struct shape *shapes[RECORDS];
    static __thread uint8_t *rests[RECORDS];
    for (int64_t first = 0, last; first < want->count; first = last) {
        int used = 0;
        int64_t bytes = 0;
        uint8_t *rest = scratch;
        for (last = first; last < want->count && last - first < RECORDS; last++) {
            int64_t span = want->spans[last];
            if (last > first && (want->offsets[last] != want->offsets[last - 1] + want->spans[last - 1] ||
                                 bytes + span > request || used + PARTS > IOV_MAX))
                break;
            bytes += span;
            struct shape *shape = shape_of(state, span, want->sizes + last * want->features, want->features);
            if (shape != NULL && shape->misses > 8 + shape->hits)
                shape = NULL;
            if (shape != NULL && want->verify && span > 2 * PIECE) {
                if (last > first)
                    break;
                *failed = first;
                int64_t result = read_pieces(want, first, scratch, request, shape);
                if (result != 0 && result != UNUSUAL)
                    return result;
                if (result == 0) {
                    shape->hits++;
                    last++;
                    break;
                }
                shape->misses++;
                shape = NULL;
            }
            shapes[last - first] = shape;
            rests[last - first] = rest;
            for (int k = 0; shape != NULL && k < shape->count; k++) {
                struct part part = shape->parts[k];
                int is_array = part.kind == ARRAY;
                void *to = is_array ? (void *)(uintptr_t)want->to[last * want->features + part.feature] : rest;
                used = add_part(parts, used, to, part.length);
                rest += is_array ? 0 : part.length;
            }
            int64_t end = shape != NULL ? TRAILER : span;
            used = add_part(parts, used, rest, end);
            rest += end;
        }
        if (used == 0) /* a large one, which is done */
            continue;
        *failed = first;
        int64_t result = fill(want->descriptor, parts, used, want->offsets[first], request);
        if (result != 0 && last > first + 1)
            result = 0, shapes[0] = NULL, used = 0; /* one after another, to find the one that fails */
        else if (result != 0)
            return result;
        else
            used = 1;
        for (int64_t i = first; i < last; i++) {
            struct shape *shape = used ? shapes[i - first] : NULL;
            uint8_t *record = rests[i - first];
            *failed = i;
            if (shape != NULL && finish(want, i, record, shape) == 0) {
                shape->hits++;
                continue;
            }
            if (!used || shape != NULL) {
                if (shape != NULL)
                    shape->misses++;
                record = scratch + scratch_bytes - want->spans[i];
                struct iovec whole = {record, (size_t)want->spans[i]};
                result = fill(want->descriptor, &whole, 1, want->offsets[i], request);
                if (result != 0)
                    return result;
            }
            if (take(want, i, record, state) != 0)
                return UNUSUAL;
        }
    }
    return 0;
}
