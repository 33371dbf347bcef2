/* Size and sampling of a JPEG image, from the marker segments before its first scan (ITU-T T.81, annex B).
 *
 * Only what every reader of such files takes alike counts as plain: a baseline image of 8 bits, grey or YCbCr, with
 * usual sampling, and with no segment that some readers refuse.
 */

#ifndef DLIO_JPEG_HEADER_H
#define DLIO_JPEG_HEADER_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

enum jpeg_sampling { JPEG_444 = 0, JPEG_422 = 1, JPEG_420 = 2, JPEG_GREY = 3, JPEG_NOT_PLAIN = -1 };

struct jpeg_header {
    int sampling; /* of enum jpeg_sampling; the other fields are set unless it is JPEG_NOT_PLAIN */
    int height, width;
};

enum {
    JPEG_SOF0 = 0xC0,
    JPEG_DHT = 0xC4,
    JPEG_SOI = 0xD8,
    JPEG_SOS = 0xDA,
    JPEG_DQT = 0xDB,
    JPEG_DRI = 0xDD,
    JPEG_APP0 = 0xE0,
    JPEG_APP2 = 0xE2,
    JPEG_APP14 = 0xEE,
    JPEG_APP15 = 0xEF,
    JPEG_COM = 0xFE,
    JPEG_MOST_PIXELS = 1 << 26, /* readers have limits for more */
};

static int jpeg_number(const uint8_t *at)
{
    return at[0] << 8 | at[1];
}

static int jpeg_begins(const uint8_t *data, int length, const char *name, int name_length)
{
    return length >= name_length && memcmp(data, name, (size_t)name_length) == 0;
}

/* Whether a segment of an application is as readers expect it, as far as they look at it. */
static int jpeg_application_is_usual(int marker, const uint8_t *data, int length)
{
    if (marker == JPEG_APP0 && jpeg_begins(data, length, "JFIF", 4))
        return length >= 14;
    if (marker == JPEG_APP2 && jpeg_begins(data, length, "MPF", 4)) /* several images */
        return 0;
    if (marker == JPEG_APP2 && jpeg_begins(data, length, "ICC_PROFILE", 12))
        return length >= 14;
    if (marker == JPEG_APP14 && jpeg_begins(data, length, "Adobe", 5))
        return length >= 12 && data[11] <= 1; /* 1: YCbCr; 0: grey, or RGB, which its components tell */
    return 1;
}

/* Take size and sampling from the frame header, whose components 1 to 3 are YCbCr. */
static void jpeg_take_frame(const uint8_t *data, int length, struct jpeg_header *header)
{
    if (length < 9 || data[0] != 8 || (data[5] != 1 && data[5] != 3) || length != 6 + 3 * data[5])
        return;
    header->height = jpeg_number(data + 1);
    header->width = jpeg_number(data + 3);
    if (header->height < 1 || header->width < 1 || (int64_t)header->height * header->width > JPEG_MOST_PIXELS)
        return;
    int first = data[7];
    int sampling = first == 0x11 ? JPEG_444 : first == 0x21 ? JPEG_422 : first == 0x22 ? JPEG_420 : JPEG_NOT_PLAIN;
    if (data[5] == 1) { /* no other component to which its sampling could be related */
        header->sampling = sampling != JPEG_NOT_PLAIN ? JPEG_GREY : JPEG_NOT_PLAIN;
        return;
    }
    if (data[6] != 1 || data[9] != 2 || data[12] != 3 || data[10] != 0x11 || data[13] != 0x11)
        return;
    header->sampling = sampling;
}

static int jpeg_is_usual_table(int marker)
{
    return marker == JPEG_DHT || marker == JPEG_DQT || marker == JPEG_DRI || marker == JPEG_COM;
}

/* Read the header of an image in memory. */
static struct jpeg_header jpeg_read_header(const uint8_t *data, size_t length)
{
    struct jpeg_header header = {.sampling = JPEG_NOT_PLAIN}, other = header;
    int has_frame = 0, is_rgb = 0;
    if (length < 4 || data[0] != 0xFF || data[1] != JPEG_SOI)
        return other;
    for (size_t at = 2; at + 4 <= length && data[at] == 0xFF;) {
        int marker = data[at + 1], size = jpeg_number(data + at + 2) - 2;
        const uint8_t *content = data + at + 4;
        if (size < 0 || (size_t)size > length - at - 4)
            return other;
        if (marker == JPEG_SOS)
            return has_frame && !(is_rgb && header.sampling != JPEG_GREY) ? header : other;
        if (marker == JPEG_SOF0 && !has_frame++)
            jpeg_take_frame(content, size, &header);
        else if (marker >= JPEG_APP0 && marker <= JPEG_APP15 && jpeg_application_is_usual(marker, content, size))
            is_rgb |= marker == JPEG_APP14 && jpeg_begins(content, size, "Adobe", 5) && content[11] == 0;
        else if (!jpeg_is_usual_table(marker))
            return other;
        at += 4 + (size_t)size;
    }
    return other;
}

#endif
