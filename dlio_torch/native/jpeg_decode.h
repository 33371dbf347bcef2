/* Reading of JPEG files and decoding to RGB by libturbojpeg, where the machine has it.
 *
 * Nothing here takes a lock or calls Python; each thread opens a decoder of its own.  The functions are those of
 * TurboJPEG's version 2, which version 3 keeps.
 */

#ifndef DLIO_JPEG_DECODE_H
#define DLIO_JPEG_DECODE_H

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "jpeg_header.h"

static struct {
    void *(*open)(void);
    int (*close)(void *);
    int (*decode)(void *, const uint8_t *, unsigned long, uint8_t *, int, int, int, int, int);
} jpeg_calls;

static pthread_once_t jpeg_calls_once = PTHREAD_ONCE_INIT;

static void jpeg_open_library(void)
{
    void *library = dlopen("libturbojpeg.so.0", RTLD_NOW | RTLD_LOCAL);
    void *open = library ? dlsym(library, "tjInitDecompress") : NULL;
    void *close = library ? dlsym(library, "tjDestroy") : NULL;
    void *decode = library ? dlsym(library, "tjDecompress2") : NULL;
    if (open == NULL || close == NULL || decode == NULL)
        return;
    memcpy(&jpeg_calls.open, &open, sizeof open);
    memcpy(&jpeg_calls.close, &close, sizeof close);
    memcpy(&jpeg_calls.decode, &decode, sizeof decode);
}

static int jpeg_library_is_open(void)
{
    pthread_once(&jpeg_calls_once, jpeg_open_library);
    return jpeg_calls.decode != NULL;
}

/* A decoder for one thread at a time; NULL: no library, or no memory. */
static void *jpeg_decoder_open(void)
{
    return jpeg_library_is_open() ? jpeg_calls.open() : NULL;
}

static void jpeg_decoder_close(void *decoder)
{
    if (decoder != NULL)
        jpeg_calls.close(decoder);
}

/* Decode a plain image to the 3 * height * width bytes at `to`.  Returns 0; 1 where it is damaged in any way, however
 * slight: the pixels are then undefined. */
static int jpeg_decode(void *decoder, const uint8_t *data, size_t length, uint8_t *to, int height, int width)
{
    enum { RGB = 0, ACCURATE_DCT = 4096 };
    if (decoder == NULL)
        return 1;
    struct jpeg_header header = jpeg_read_header(data, length);
    if (header.sampling == JPEG_NOT_PLAIN || header.height != height || header.width != width)
        return 1;
    return jpeg_calls.decode(decoder, data, (unsigned long)length, to, width, 0, height, RGB, ACCURATE_DCT) != 0;
}

struct jpeg_file {
    uint8_t *data; /* the caller frees it */
    size_t length;
};

enum { JPEG_SLACK = 16 << 10 };

/* Read until the end of the file, or until `room` bytes are there; -1 and errno where it fails. */
static int jpeg_fill(int descriptor, struct jpeg_file *file, size_t room)
{
    while (file->length < room) {
        ssize_t got = read(descriptor, file->data + file->length, room - file->length);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return -1;
        if (got == 0)
            return 0;
        int is_whole = file->length == 0 && (size_t)got < room; /* one call is enough for a file that fits */
        file->length += (size_t)got;
        if (is_whole)
            return 0;
    }
    return 1;
}

static int jpeg_read_open_file(int descriptor, size_t expected, struct jpeg_file *file)
{
    struct stat status;
    if (expected == 0 && fstat(descriptor, &status) < 0)
        return -1;
    size_t room = (expected ? expected + expected / 2 : (size_t)status.st_size) + JPEG_SLACK;
    for (int result = 1; result > 0; room *= 2) {
        uint8_t *grown = realloc(file->data, room);
        if (grown == NULL) {
            errno = ENOMEM;
            return -1;
        }
        file->data = grown;
        if ((result = jpeg_fill(descriptor, file, room)) < 0)
            return -1;
    }
    return 0;
}

/* Read a whole file, by one call if it is not much larger than `expected`; 0: not known.  Returns 0 or an errno. */
static int jpeg_read_file(const char *path, size_t expected, struct jpeg_file *file)
{
    *file = (struct jpeg_file){NULL, 0};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return errno;
    int problem = jpeg_read_open_file(descriptor, expected, file) < 0 ? errno : 0;
    close(descriptor);
    if (problem) {
        free(file->data);
        file->data = NULL;
    }
    return problem;
}

#endif
