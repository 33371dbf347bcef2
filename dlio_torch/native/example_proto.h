/* Finds the features of a tf.train.Example where it lies: in memory, or in a file through a small window.
 *
 * Whatever is unusual is given up (-1), never guessed: the caller has another decoder for that.
 */

#include <stdint.h>
#include <string.h>
#include <unistd.h>

enum { KIND_BYTES = 1, KIND_FLOATS = 2, KIND_INTEGERS = 3 }; /* fields of message Feature */
enum { WIRE_VARINT = 0, WIRE_FIXED64 = 1, WIRE_LENGTH = 2, WIRE_FIXED32 = 5 };
#define TAG_FIRST 0x0A /* field 1 and field 2, each a length and so many bytes */
#define TAG_SECOND 0x12

/* One message. */
struct view {
    const uint8_t *data; /* byte `first` of it */
    int64_t first, last; /* what is in memory */
    int64_t length;
    uint8_t *window; /* where more of it is read to; NULL: it is all in memory */
    int64_t room;    /* bytes of the window */
    int64_t origin;  /* its first byte in the file */
    int descriptor;
};

struct feature {
    int64_t name, name_bytes; /* address and length */
    int64_t kind;
};

/* Extent of the list of a feature; kind 0: there is no such feature. */
struct list {
    int64_t kind, low, high;
};

struct field {
    uint64_t tag;
    int64_t low, high; /* of its value */
};

static int view_load(struct view *view, int64_t at)
{
    if (view->window == NULL || at < 0 || at >= view->length)
        return -1;
    int64_t wanted = view->length - at < view->room ? view->length - at : view->room;
    ssize_t got = pread(view->descriptor, view->window, (size_t)wanted, (off_t)(view->origin + at));
    if (got <= 0)
        return -1;
    view->data = view->window;
    view->first = at;
    view->last = at + got;
    return 0;
}

static inline int view_byte(struct view *view, int64_t at)
{
    if ((at < view->first || at >= view->last) && view_load(view, at) < 0)
        return -1;
    return view->data[at - view->first];
}

/* The varint at `*at`, which moves behind it. */
static int view_number(struct view *view, int64_t *at, int64_t end, uint64_t *value)
{
    *value = 0;
    for (int shift = 0; *at < end && shift < 70; shift += 7) {
        int byte = view_byte(view, (*at)++);
        if (byte < 0)
            return -1;
        if (shift < 64)
            *value |= (uint64_t)(byte & 0x7F) << shift;
        if (byte < 0x80)
            return 0;
    }
    return -1;
}

/* The field at `*at`, which moves behind it: 1, or 0 at the end. */
static int view_field(struct view *view, int64_t *at, int64_t end, struct field *field)
{
    if (*at >= end)
        return 0;
    uint64_t length;
    if (view_number(view, at, end, &field->tag) < 0 || field->tag < 8)
        return -1;
    switch (field->tag & 7) {
    case WIRE_LENGTH:
        if (view_number(view, at, end, &length) < 0 || length > (uint64_t)(end - *at))
            return -1;
        break;
    case WIRE_VARINT: {
        int64_t behind = *at;
        uint64_t value;
        if (view_number(view, &behind, end, &value) < 0)
            return -1;
        length = (uint64_t)(behind - *at);
        break;
    }
    case WIRE_FIXED64:
    case WIRE_FIXED32:
        length = (field->tag & 7) == WIRE_FIXED64 ? 8 : 4;
        if (length > (uint64_t)(end - *at))
            return -1;
        break;
    default:
        return -1;
    }
    field->low = *at;
    field->high = *at += (int64_t)length;
    return 1;
}

static int view_equals(struct view *view, const struct field *field, const struct feature *feature)
{
    if (field->high - field->low != feature->name_bytes)
        return 0;
    const uint8_t *name = (const uint8_t *)(uintptr_t)feature->name;
    for (int64_t i = 0; i < feature->name_bytes; i++)
        if (view_byte(view, field->low + i) != name[i])
            return 0;
    return 1;
}

/* The lists of the wanted features out of one entry of the map: the last of a name counts. */
static int find_in_entry(struct view *view, const struct field *entry, const struct feature *features, int count,
                         struct list *found)
{
    struct field field, name = {0, 0, 0}, value = {0, 0, 0};
    int64_t at = entry->low;
    int more;
    while ((more = view_field(view, &at, entry->high, &field)) > 0) {
        if (field.tag == TAG_FIRST)
            name = field;
        else if (field.tag == TAG_SECOND)
            value = field;
    }
    if (more < 0)
        return -1;
    int wanted = 0;
    while (wanted < count && !view_equals(view, &name, &features[wanted]))
        wanted++;
    if (wanted == count)
        return 0;
    at = value.low;
    while ((more = view_field(view, &at, value.high, &field)) > 0)
        if ((field.tag & 7) == WIRE_LENGTH && field.tag >> 3 >= KIND_BYTES && field.tag >> 3 <= KIND_INTEGERS)
            found[wanted] = (struct list){(int64_t)(field.tag >> 3), field.low, field.high};
    return more;
}

/* The list of each wanted feature, all of the expected kind. */
static int find_lists(struct view *view, const struct feature *features, int count, struct list *found)
{
    memset(found, 0, (size_t)count * sizeof *found);
    struct field outer, entry;
    int64_t at = 0;
    int more;
    while ((more = view_field(view, &at, view->length, &outer)) > 0) {
        if (outer.tag != TAG_FIRST)
            continue;
        int64_t inside = outer.low;
        while ((more = view_field(view, &inside, outer.high, &entry)) > 0)
            if (entry.tag == TAG_FIRST && find_in_entry(view, &entry, features, count, found) < 0)
                return -1;
        if (more < 0)
            return -1;
    }
    for (int i = 0; i < count; i++)
        if (found[i].kind != features[i].kind)
            return -1;
    return more;
}

/* The next field with values in a list: 1, or 0 at its end. */
static int next_values(struct view *view, const struct list *list, int64_t *at, struct field *values)
{
    int more;
    while ((more = view_field(view, at, list->high, values)) > 0)
        if (values->tag >> 3 == 1)
            return 1;
    return more;
}

/* Bytes that a list takes in memory. */
static int64_t measure(struct view *view, const struct list *list)
{
    struct field values;
    int64_t at = list->low, bytes = 0;
    int more, fields = 0;
    while ((more = next_values(view, list, &at, &values)) > 0) {
        fields++;
        if (list->kind != KIND_INTEGERS)
            bytes += values.high - values.low;
        else
            for (int64_t i = values.low; i < values.high; i++) {
                int byte = view_byte(view, i);
                if (byte < 0)
                    return -1;
                bytes += byte < 0x80 ? 8 : 0;
            }
    }
    return more < 0 || (list->kind == KIND_BYTES && fields != 1) ? -1 : bytes;
}

/* Varints one after another, as numbers of 64 bits; they must be exactly `bytes` of them. */
static int unpack(const uint8_t *data, int64_t length, uint8_t *to, int64_t bytes)
{
    struct view view = {.data = data, .last = length, .length = length};
    int64_t at = 0;
    for (; at < length && bytes >= 8; to += 8, bytes -= 8) {
        uint64_t value;
        if (view_number(&view, &at, length, &value) < 0)
            return -1;
        memcpy(to, &value, 8);
    }
    return at == length && bytes == 0 ? 0 : -1;
}

/* Put the values of a list, which is all in memory, to `to`: they must be exactly `bytes`. */
static int put_values(struct view *view, const struct list *list, uint8_t *to, int64_t bytes)
{
    struct field values;
    int64_t at = list->low;
    int more;
    if (measure(view, list) != bytes)
        return -1;
    while ((more = next_values(view, list, &at, &values)) > 0) {
        const uint8_t *data = view->data + values.low;
        int64_t length = values.high - values.low;
        if (list->kind == KIND_INTEGERS) {
            int64_t made = 0;
            for (int64_t i = 0; i < length; i++)
                made += data[i] < 0x80 ? 8 : 0;
            if (unpack(data, length, to, made) < 0)
                return -1;
            to += made;
        } else {
            memcpy(to, data, (size_t)length);
            to += length;
        }
    }
    return more;
}
