/* Decompression of deflate and Zstandard streams by whichever library the machine has.
 *
 * Libraries are opened at run time and their functions declared here, so that building needs no headers of theirs.
 * The stream structures of zlib, zlib-ng and ISA-L are used up to the fields named here, which have not moved since
 * their first releases; the rest is room.
 */

#ifndef DLIO_INFLATE_LIBRARY_H
#define DLIO_INFLATE_LIBRARY_H

#include <dlfcn.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

enum inflate_result {
    INFLATE_SOUND = 0,
    INFLATE_DAMAGED = 1, /* the stream is damaged or cut, or its own checksum does not match */
    INFLATE_LONGER = 2,  /* it holds more bytes than expected */
    INFLATE_SHORTER = 3, /* it holds fewer */
    INFLATE_MISSING = 4, /* no library, or no memory for its state */
};

enum inflate_format { INFLATE_ZLIB, INFLATE_GZIP };

/* In the order of preference. */
enum inflate_library { INFLATE_BY_LIBDEFLATE, INFLATE_BY_ISAL, INFLATE_BY_ZLIB_NG, INFLATE_BY_ZLIB, INFLATE_LIBRARIES };

struct zlib_stream { /* of zlib; of zlib-ng up to data_type, where long has 64 bits */
    const uint8_t *next_in;
    unsigned avail_in;
    unsigned long total_in;
    uint8_t *next_out;
    unsigned avail_out;
    unsigned long total_out;
    const char *message;
    void *state, *allocate, *release, *opaque;
    int data_type;
    unsigned long adler, reserved;
};

struct isal_stream {
    uint8_t *next_out;
    uint32_t avail_out, total_out;
    const uint8_t *next_in;
    uint64_t read_in;
    uint32_t avail_in;
    int32_t read_in_length;
    uint8_t rest[256 << 10]; /* version 2.30 has 90 KiB in all */
};

static struct {
    int is_open[INFLATE_LIBRARIES];
    /* libdeflate */
    void *(*allocate)(void);
    void (*release)(void *);
    int (*expand[2])(void *, const void *, size_t, void *, size_t, size_t *, size_t *); /* by inflate_format */
    /* ISA-L */
    void (*isal_init)(struct isal_stream *);
    int (*isal_inflate)(struct isal_stream *);
    uint32_t (*isal_adler32)(uint32_t, const uint8_t *, uint64_t);
    /* zlib-ng, and zlib */
    int (*ng_init)(struct zlib_stream *, int);
    int (*zlib_init)(struct zlib_stream *, int, const char *, int);
    int (*zlib_reset[2])(struct zlib_stream *), (*zlib_inflate[2])(struct zlib_stream *, int),
        (*zlib_end[2])(struct zlib_stream *); /* [0] zlib-ng, [1] zlib */
    /* Zstandard */
    size_t (*zstd_expand)(void *, size_t, const void *, size_t);
    unsigned (*zstd_failed)(size_t);
} inflate_calls;

static pthread_once_t inflate_calls_once = PTHREAD_ONCE_INIT;

/* Paths of Python packages' files that hold ISA-L and zlib-ng, for machines without the libraries themselves; set before
 * anything is decompressed. */
static char inflate_packages[2][4096];

static void inflate_use_packages(const char *isal, const char *zlib_ng)
{
    strncpy(inflate_packages[0], isal, sizeof inflate_packages[0] - 1);
    strncpy(inflate_packages[1], zlib_ng, sizeof inflate_packages[1] - 1);
}

/* The library of the system; else the file of a package, "" for none. */
static void *inflate_open(const char *name, const char *package)
{
    void *library = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    return library == NULL && package[0] ? dlopen(package, RTLD_NOW | RTLD_LOCAL) : library;
}

/* Fill `call` with the address of a function; returns whether the library has it. */
static int inflate_find(void *library, const char *name, void *call)
{
    void *address = library != NULL ? dlsym(library, name) : NULL;
    memcpy(call, &address, sizeof address);
    return address != NULL;
}

static void inflate_open_libraries(void)
{
    void *library = inflate_open("libdeflate.so.0", "");
    inflate_calls.is_open[INFLATE_BY_LIBDEFLATE] =
        inflate_find(library, "libdeflate_alloc_decompressor", &inflate_calls.allocate) &&
        inflate_find(library, "libdeflate_free_decompressor", &inflate_calls.release) &&
        inflate_find(library, "libdeflate_zlib_decompress_ex", &inflate_calls.expand[INFLATE_ZLIB]) &&
        inflate_find(library, "libdeflate_gzip_decompress_ex", &inflate_calls.expand[INFLATE_GZIP]);
    library = inflate_open("libisal.so.2", inflate_packages[0]);
    inflate_calls.is_open[INFLATE_BY_ISAL] =
        inflate_find(library, "isal_inflate_init", &inflate_calls.isal_init) &&
        inflate_find(library, "isal_inflate_stateless", &inflate_calls.isal_inflate) &&
        inflate_find(library, "isal_adler32", &inflate_calls.isal_adler32);
    library = sizeof(long) == 8 ? inflate_open("libz-ng.so.2", inflate_packages[1]) : NULL;
    inflate_calls.is_open[INFLATE_BY_ZLIB_NG] =
        inflate_find(library, "zng_inflateInit2", &inflate_calls.ng_init) &&
        inflate_find(library, "zng_inflateReset", &inflate_calls.zlib_reset[0]) &&
        inflate_find(library, "zng_inflateEnd", &inflate_calls.zlib_end[0]) &&
        inflate_find(library, "zng_inflate", &inflate_calls.zlib_inflate[0]);
    library = inflate_open("libz.so.1", "");
    inflate_calls.is_open[INFLATE_BY_ZLIB] =
        inflate_find(library, "inflateInit2_", &inflate_calls.zlib_init) &&
        inflate_find(library, "inflateReset", &inflate_calls.zlib_reset[1]) &&
        inflate_find(library, "inflateEnd", &inflate_calls.zlib_end[1]) &&
        inflate_find(library, "inflate", &inflate_calls.zlib_inflate[1]);
    library = inflate_open("libzstd.so.1", "");
    if (!inflate_find(library, "ZSTD_isError", &inflate_calls.zstd_failed) ||
        !inflate_find(library, "ZSTD_decompress", &inflate_calls.zstd_expand))
        inflate_calls.zstd_expand = NULL;
}

static int inflate_library_is_open(int library)
{
    pthread_once(&inflate_calls_once, inflate_open_libraries);
    return library >= 0 && library < INFLATE_LIBRARIES && inflate_calls.is_open[library];
}

/* The preferred library that the machine has; INFLATE_LIBRARIES: none. */
static int inflate_best_library(void)
{
    int library = 0;
    while (library < INFLATE_LIBRARIES && !inflate_library_is_open(library))
        library++;
    return library;
}

/* State of one library; for one thread at a time. */
struct inflater {
    int library;
    void *state[2]; /* by inflate_format; libdeflate and ISA-L have one */
};

static void inflater_open(struct inflater *inflater, int library)
{
    *inflater = (struct inflater){.library = inflate_library_is_open(library) ? library : INFLATE_LIBRARIES};
}

static void inflater_close(struct inflater *inflater)
{
    for (int format = 0; format < 2; format++) {
        void *state = inflater->state[format];
        if (state != NULL && inflater->library == INFLATE_BY_LIBDEFLATE)
            inflate_calls.release(state);
        if (state != NULL && inflater->library >= INFLATE_BY_ZLIB_NG)
            inflate_calls.zlib_end[inflater->library - INFLATE_BY_ZLIB_NG](state);
        if (inflater->library != INFLATE_BY_LIBDEFLATE)
            free(state);
        inflater->state[format] = NULL;
    }
}

static int inflate_by_libdeflate(struct inflater *inflater, int format, const uint8_t *stored, size_t length,
                                 uint8_t *to, size_t size)
{
    size_t taken, given;
    if (inflater->state[0] == NULL && (inflater->state[0] = inflate_calls.allocate()) == NULL)
        return INFLATE_MISSING;
    int result = inflate_calls.expand[format](inflater->state[0], stored, length, to, size, &taken, &given);
    if (result != 0)
        return result == 3 ? INFLATE_LONGER : INFLATE_DAMAGED;
    return given == size ? INFLATE_SOUND : INFLATE_SHORTER;
}

static int inflate_by_isal(struct inflater *inflater, int format, const uint8_t *stored, size_t length, uint8_t *to,
                           size_t size)
{
    if (inflater->state[0] == NULL && (inflater->state[0] = malloc(sizeof(struct isal_stream))) == NULL)
        return INFLATE_MISSING;
    /* Its own reading of headers differs between versions; a zlib header is two bytes, its checksum four. */
    if (format != INFLATE_ZLIB || length > UINT32_MAX || size > UINT32_MAX)
        return INFLATE_MISSING;
    if (length < 6 || (stored[0] & 0xF) != 8 || stored[0] >> 4 > 7 || stored[1] & 0x20 ||
        (stored[0] << 8 | stored[1]) % 31)
        return INFLATE_DAMAGED;
    struct isal_stream *stream = inflater->state[0];
    inflate_calls.isal_init(stream);
    stream->next_in = stored + 2;
    stream->avail_in = (uint32_t)(length - 2);
    stream->next_out = to;
    stream->avail_out = (uint32_t)size;
    int result = inflate_calls.isal_inflate(stream);
    if (result != 0)
        return result == 2 ? INFLATE_LONGER : INFLATE_DAMAGED;
    if (stream->total_out != size)
        return INFLATE_SHORTER;
    const uint8_t *sum = stream->next_in;
    if (stored + length - sum < 4)
        return INFLATE_DAMAGED;
    uint32_t expected = (uint32_t)sum[0] << 24 | (uint32_t)sum[1] << 16 | (uint32_t)sum[2] << 8 | sum[3];
    return inflate_calls.isal_adler32(1, to, size) == expected ? INFLATE_SOUND : INFLATE_DAMAGED;
}

static struct zlib_stream *zlib_stream_of(struct inflater *inflater, int format)
{
    int kind = inflater->library - INFLATE_BY_ZLIB_NG, bits = format == INFLATE_GZIP ? 31 : 15;
    struct zlib_stream *stream = inflater->state[format];
    if (stream != NULL)
        return inflate_calls.zlib_reset[kind](stream) == 0 ? stream : NULL;
    stream = calloc(1, sizeof *stream);
    if (stream == NULL)
        return NULL;
    int result = kind == 0 ? inflate_calls.ng_init(stream, bits)
                           : inflate_calls.zlib_init(stream, bits, "1.2.3", (int)sizeof *stream);
    if (result != 0) {
        free(stream);
        return NULL;
    }
    return inflater->state[format] = stream;
}

static int inflate_by_zlib(struct inflater *inflater, int format, const uint8_t *stored, size_t length, uint8_t *to,
                           size_t size)
{
    enum { FINISH = 4, STREAM_END = 1, DATA_ERROR = -3 };
    uint8_t more;
    struct zlib_stream *stream = zlib_stream_of(inflater, format);
    if (stream == NULL || length > UINT32_MAX || size > UINT32_MAX)
        return INFLATE_MISSING;
    stream->next_in = stored;
    stream->avail_in = (unsigned)length;
    stream->next_out = size ? to : &more;
    stream->avail_out = (unsigned)size;
    int result = inflate_calls.zlib_inflate[inflater->library - INFLATE_BY_ZLIB_NG](stream, FINISH);
    if (result == STREAM_END)
        return stream->avail_out == 0 ? INFLATE_SOUND : INFLATE_SHORTER;
    if (result == DATA_ERROR || stream->avail_out > 0 || stream->avail_in == 0)
        return INFLATE_DAMAGED;
    return INFLATE_LONGER;
}

/* Decompress a stream that must hold exactly `size` bytes; bytes behind the stream are ignored, as zlib's users do. */
static int inflate_exactly(struct inflater *inflater, int format, const uint8_t *stored, size_t length, uint8_t *to,
                           size_t size)
{
    switch (inflater->library) {
    case INFLATE_BY_LIBDEFLATE:
        return inflate_by_libdeflate(inflater, format, stored, length, to, size);
    case INFLATE_BY_ISAL:
        return inflate_by_isal(inflater, format, stored, length, to, size);
    case INFLATE_BY_ZLIB_NG:
    case INFLATE_BY_ZLIB:
        return inflate_by_zlib(inflater, format, stored, length, to, size);
    }
    return INFLATE_MISSING;
}

/* Same for frames of Zstandard, which hold nothing else. */
static int expand_zstd(const uint8_t *stored, size_t length, uint8_t *to, size_t size)
{
    pthread_once(&inflate_calls_once, inflate_open_libraries);
    if (inflate_calls.zstd_expand == NULL)
        return INFLATE_MISSING;
    size_t given = length > 0 ? inflate_calls.zstd_expand(to, size, stored, length) : 0;
    if (length == 0 || inflate_calls.zstd_failed(given))
        return INFLATE_DAMAGED;
    return given == size ? INFLATE_SOUND : INFLATE_SHORTER;
}

#endif
