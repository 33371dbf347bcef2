/* Finds and reads records of TFRecord files, many in one call.
 *
 * Called through ctypes, without the interpreter lock.
 */

#define _GNU_SOURCE
#include "read_records.h"

enum { AHEAD = 1 << 16 }; /* bytes that a scan reads of small records */

/* --- where records begin ---------------------------------------------------------------------------------------- */

/* Fill `offsets` from entry `*count` on, whose value is the first byte of the next record, until the file's `size`
 * or `capacity` entries are reached.  Returns 0; -errno; or UNUSUAL, where the record at the last entry is damaged. */
int64_t dlio_scan_records(int descriptor, int64_t size, int verify, int64_t *offsets, int64_t capacity, int64_t *count)
{
    static __thread uint8_t window[AHEAD];
    int64_t first = 0, last = 0, record = 0; /* of the window; bytes of the record before */
    while (offsets[*count] < size && *count + 1 < capacity) {
        int64_t at = offsets[*count];
        if (at < first || at + HEADER > last) {
            size_t wanted = record < AHEAD / 8 ? AHEAD : HEADER;
            first = last = at;
            while (last - at < HEADER && last < size) { /* once, unless the system gives less than it could */
                ssize_t got = pread(descriptor, window + (last - at), wanted - (size_t)(last - at), (off_t)last);
                if (got < 0)
                    return -errno;
                if (got == 0)
                    break;
                last += got;
            }
        }
        uint64_t length;
        const uint8_t *header = window + (at - first);
        if (at + HEADER > last || !header_is_sound(header, verify))
            return UNUSUAL;
        memcpy(&length, header, sizeof length);
        if (size - at < FRAMING || length > (uint64_t)(size - at - FRAMING))
            return UNUSUAL;
        record = (int64_t)length + FRAMING;
        offsets[++*count] = at + record;
    }
    return 0;
}

/* Bytes in memory of each feature of each record, int64 of (count, features), by looks at their heads.  Returns 0, or
 * UNUSUAL and in `failed` the number of the record. */
int64_t dlio_measure_records(int64_t count, int descriptor, const int64_t *offsets, const int64_t *spans,
                             const struct feature *wanted, int64_t features, int64_t *sizes, int64_t *failed)
{
    uint8_t window[512];
    struct list lists[FEATURES];
    for (int64_t i = 0; i < count; i++) {
        struct view view = {.length = spans[i] - FRAMING,
                            .window = window,
                            .room = sizeof window,
                            .origin = offsets[i] + HEADER,
                            .descriptor = descriptor};
        *failed = i;
        if (features > FEATURES || find_lists(&view, wanted, (int)features, lists) < 0)
            return UNUSUAL;
        for (int64_t k = 0; k < features; k++)
            if ((sizes[i * features + k] = measure(&view, &lists[k])) < 0)
                return UNUSUAL;
    }
    return 0;
}

/* --- reading ---------------------------------------------------------------------------------------------------- */

/* See read_all; `to` and `sizes` are of (count, features), `state` is zeros at first and this thread's own. */
int64_t dlio_read_records(int64_t count, int descriptor, const int64_t *offsets, const int64_t *spans,
                          const struct feature *wanted, int64_t features, const uint64_t *to, const int64_t *sizes,
                          int verify, int64_t request, uint8_t *scratch, int64_t scratch_bytes, void *state,
                          int64_t *failed)
{
    struct wanted want = {count, features, wanted, offsets, spans, to, sizes, descriptor, verify};
    return read_all(&want, request, scratch, scratch_bytes, state, failed);
}

/* Bytes of `state`. */
int64_t dlio_records_state_bytes(void)
{
    return sizeof(struct state);
}

/* The checksum of some bytes, for callers that compare it. */
uint32_t dlio_crc32c(const void *data, int64_t length)
{
    return crc32c_extend(0, data, (size_t)length);
}
