/* Shapes of records of one length: which parts of them are arrays, and which bytes lie between the arrays.
 *
 * Learned from records that were taken apart, so that later ones of the same length can be read to their addresses.
 */

#include <stdint.h>
#include <string.h>

enum { HEADER = 12, TRAILER = 4, FRAMING = HEADER + TRAILER }; /* length and its checksum; checksum of the data */
enum {
    FEATURES = 16,
    SHAPES = 8,
    PARTS = 2 * FEATURES + 3,
    KEPT = 4096, /* bytes of a shape that are compared */
    LARGE = 2048 /* bytes from which on an array is read to its destination */
};

enum part_kind { SAME, ARRAY, NUMBERS };

struct part {
    int kind;
    int feature; /* whose values it is */
    int64_t low, length;
};

/* The parts of a record from its first byte to the checksum of its data. */
struct shape {
    int64_t span;
    int64_t hits, misses;
    int64_t sizes[FEATURES];
    int count;
    struct part parts[PARTS];
    uint8_t kept[KEPT]; /* bytes of the parts that are the same */
};

struct state {
    int64_t used; /* shapes; they stay as they are, since requests under way go by them */
    struct shape shapes[SHAPES];
};

static struct shape *shape_of(struct state *state, int64_t span, const int64_t *sizes, int64_t features)
{
    for (int64_t i = 0; i < state->used; i++) {
        struct shape *shape = &state->shapes[i];
        if (shape->span == span && !memcmp(shape->sizes, sizes, (size_t)features * sizeof *sizes))
            return shape;
    }
    return NULL;
}

/* Remember how a record, which is sound and in memory, is made up; if it has large arrays. */
static void learn(struct state *state, const uint8_t *record, int64_t span, struct view *view, const struct list *lists,
                  int64_t features, const int64_t *sizes)
{
    if (state->used == SHAPES || shape_of(state, span, sizes, features) != NULL)
        return;
    struct part values[FEATURES];
    int count = 0, large = 0;
    for (int k = 0; k < features; k++) {
        struct field one, other;
        int64_t at = lists[k].low;
        if (next_values(view, &lists[k], &at, &one) != 1)
            continue;
        int alone = next_values(view, &lists[k], &at, &other) == 0 && (one.tag & 7) == WIRE_LENGTH;
        int is_array = lists[k].kind != KIND_INTEGERS && one.high - one.low >= LARGE;
        if (!alone)
            return;
        large += is_array;
        int place = count++;
        for (; place > 0 && values[place - 1].low > HEADER + one.low; place--)
            values[place] = values[place - 1];
        values[place] = (struct part){is_array ? ARRAY : NUMBERS, k, HEADER + one.low, one.high - one.low};
    }
    if (!large)
        return;
    struct shape *shape = &state->shapes[state->used];
    *shape = (struct shape){.span = span};
    memcpy(shape->sizes, sizes, (size_t)features * sizeof *sizes);
    int64_t done = 0, kept = 0;
    for (int k = 0; k <= count; k++) {
        int64_t next = k < count ? values[k].low : span - TRAILER;
        if (next < done || kept + next - done > KEPT)
            return;
        if (next > done) {
            memcpy(shape->kept + kept, record + done, (size_t)(next - done));
            kept += next - done;
            shape->parts[shape->count++] = (struct part){SAME, 0, done, next - done};
        }
        if (k < count) {
            shape->parts[shape->count++] = values[k];
            done = next + values[k].length;
        }
    }
    state->used++;
}
