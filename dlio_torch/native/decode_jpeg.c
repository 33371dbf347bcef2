/* Reads and decodes JPEG images through ctypes, without the interpreter lock; see jpeg_decode.h. */

#include "jpeg_decode.h"

static pthread_key_t decoder_key;
static int has_decoder_key;

__attribute__((constructor)) static void prepare_decoder(void)
{
    has_decoder_key = pthread_key_create(&decoder_key, jpeg_decoder_close) == 0;
}

/* The decoder of this thread, which is closed when the thread ends. */
static void *decoder_of_thread(void)
{
    void *decoder = has_decoder_key ? pthread_getspecific(decoder_key) : NULL;
    if (decoder == NULL && has_decoder_key && (decoder = jpeg_decoder_open()) != NULL)
        pthread_setspecific(decoder_key, decoder);
    return decoder;
}

/* Whether the machine has libturbojpeg. */
int64_t dlio_has_jpeg_library(void)
{
    return jpeg_library_is_open();
}

/* Sampling (see enum jpeg_sampling), height and width of an image in memory. */
void dlio_jpeg_header(const uint8_t *data, int64_t length, int64_t *found)
{
    struct jpeg_header header = jpeg_read_header(data, (size_t)length);
    found[0] = header.sampling;
    found[1] = header.height;
    found[2] = header.width;
}

/* Read a file and its header; `found` becomes sampling, height, width, address and bytes, which the caller frees by
 * dlio_free_jpeg.  Returns 0 or an errno. */
int64_t dlio_read_jpeg(const char *path, int64_t expected, int64_t *found)
{
    struct jpeg_file file;
    int problem = jpeg_read_file(path, expected > 0 ? (size_t)expected : 0, &file);
    if (problem)
        return problem;
    dlio_jpeg_header(file.data, (int64_t)file.length, found);
    found[3] = (int64_t)(uintptr_t)file.data;
    found[4] = (int64_t)file.length;
    return 0;
}

void dlio_free_jpeg(void *data)
{
    free(data);
}

/* See jpeg_decode. */
int64_t dlio_decode_jpeg(const uint8_t *data, int64_t length, uint8_t *to, int64_t height, int64_t width)
{
    return jpeg_decode(decoder_of_thread(), data, (size_t)length, to, (int)height, (int)width);
}
