/* Decodes stored chunks in one call through ctypes, without the interpreter lock; see decode_chunk.h. */

#include <pthread.h>

#include "decode_chunk.h"

static const char *const library_names[INFLATE_LIBRARIES] = {"libdeflate", "isa-l", "zlib-ng", "zlib"};

static pthread_key_t decoders_key;
static int has_decoders_key;

static void close_decoders(void *decoders)
{
    for (int library = 0; library <= INFLATE_LIBRARIES; library++)
        chunk_decoder_close((struct chunk_decoder *)decoders + library);
    free(decoders);
}

__attribute__((constructor)) static void prepare_decoders(void)
{
    has_decoders_key = pthread_key_create(&decoders_key, close_decoders) == 0;
}

/* The decoder of this thread for a library; it is closed when the thread ends. */
static struct chunk_decoder *decoder_of_thread(int library)
{
    struct chunk_decoder *decoders = has_decoders_key ? pthread_getspecific(decoders_key) : NULL;
    if (decoders == NULL) {
        decoders = has_decoders_key ? calloc(INFLATE_LIBRARIES + 1, sizeof *decoders) : NULL;
        if (decoders == NULL)
            return NULL;
        for (int each = 0; each <= INFLATE_LIBRARIES; each++)
            chunk_decoder_open(&decoders[each], each);
        pthread_setspecific(decoders_key, decoders);
    }
    return &decoders[library];
}

/* See decode_chunks; `library` is one of enum inflate_library, or INFLATE_LIBRARIES for the best. */
int64_t dlio_decode_chunks(int64_t library, const struct chunk_batch *batch, int64_t *failed)
{
    struct chunk_decoder *decoder =
        library >= 0 && library <= INFLATE_LIBRARIES ? decoder_of_thread((int)library) : NULL;
    *failed = 0;
    return decoder == NULL ? CHUNK_NO_MEMORY : decode_chunks(decoder, batch, failed);
}

/* Name of a library that the machine has; NULL: it has not, or there is no such number. */
const char *dlio_inflate_library(int64_t library)
{
    return inflate_library_is_open((int)library) ? library_names[library] : NULL;
}

/* See inflate_use_packages. */
void dlio_use_inflate_packages(const char *isal, const char *zlib_ng)
{
    inflate_use_packages(isal, zlib_ng);
}
