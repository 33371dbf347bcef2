/* How the read core reads a part: `read_part` is the only function that the pool of threads calls. */

#include "core_tasks.h"

static void free_buffer(struct buffer *buffer)
{
    if (buffer->data != NULL)
        munmap(buffer->data, (size_t)buffer->bytes);
    *buffer = (struct buffer){NULL, 0};
}

static int has_room(struct buffer *buffer, int64_t bytes)
{
    if (buffer->bytes >= bytes)
        return 1;
    bytes += buffer->bytes > 0 ? bytes / 4 : 0; /* parts differ by little */
    free_buffer(buffer);
    int64_t unit = bytes < HUGE_PAGE ? 4096 : HUGE_PAGE, size = (bytes + unit - 1) / unit * unit;
    void *data = direct_memory((size_t)size);
    if (data == NULL)
        return 0;
    *buffer = (struct buffer){data, size};
    return 1;
}

static int has_targets(struct reader *reader, int64_t count)
{
    if (reader->targets >= count)
        return 1;
    uint64_t *grown = realloc(reader->to, (size_t)count * sizeof *grown);
    if (grown == NULL)
        return 0;
    reader->to = grown;
    reader->targets = count;
    return 1;
}

/* Whether this thread has a ring.  A system that gives some threads rings may refuse others: they read by calls. */
static int has_ring(struct reader *reader, const struct settings *settings)
{
    if (reader->ring == NULL && !reader->ring_refused)
        reader->ring_refused = uring_open((uint32_t)settings->depth, &reader->ring) != 0;
    return reader->ring != NULL;
}

/* As fill_extents, by the ring of this thread. */
static int64_t fill_by_ring(struct reader *reader, const struct settings *settings, int64_t count, int64_t request,
                            int64_t *failed)
{
    if (settings->block == 0)
        return uring_read_extents(reader->ring, count, reader->descriptors, reader->offsets, reader->lengths,
                                  reader->to, request, failed);
    return uring_read_direct(reader->ring, count, reader->descriptors, reader->offsets, reader->lengths, reader->to,
                             request, settings->block, failed);
}

/* Fill `count` extents of the reader's arrays: where a request to the system is made. */
static int64_t fill_extents(struct reader *reader, const struct settings *settings, int64_t count, int64_t *failed)
{
    int64_t block = settings->block, request = settings->request;
    if (block > 0)
        request = request < block ? block : request / block * block;
    if (settings->depth > 0 && has_ring(reader, settings))
        return fill_by_ring(reader, settings, count, request, failed);
    if (block == 0)
        return read_extents(count, reader->descriptors, reader->offsets, reader->lengths, reader->to, request, failed);
    if (!has_room(&reader->aside, direct_room(request, block) + ASIDE_TURNS))
        return ENOMEM;
    return read_direct(count, reader->descriptors, reader->offsets, reader->lengths, reader->to, request, block,
                       reader->aside.data, reader->aside.bytes, failed);
}

static int64_t read_extents_part(struct reader *reader, const struct settings *settings, const struct portion *part,
                                 int64_t *failed)
{
    const struct task *task = part->task;
    int64_t count = part->high - part->low;
    if (!has_targets(reader, count))
        return ENOMEM;
    for (int64_t i = 0; i < count; i++) {
        int64_t item = part->low + i, skip = i == 0 ? part->skip : 0;
        int64_t end = i == count - 1 ? part->last : task->lengths[item];
        reader->offsets[i] = task->offsets[item] + skip;
        reader->lengths[i] = end - skip;
        reader->to[i] = part->base + task->to[item] + (uint64_t)skip;
    }
    if (task->kind == TASK_COPIES) {
        copy_extents(count, (const uint64_t *)reader->offsets, reader->lengths, reader->to);
        return 0;
    }
    memcpy(reader->descriptors, task->descriptors + part->low, (size_t)count * sizeof *task->descriptors);
    int64_t result = fill_extents(reader, settings, count, failed);
    if (result != 0) {
        failed[1] += failed[0] == 0 ? part->skip : 0;
        failed[0] += part->low;
    }
    for (int64_t i = 0; i < count && result == 0 && task->sizes != NULL; i++)
        turn_elements((void *)(uintptr_t)reader->to[i], (void *)(uintptr_t)reader->to[i], reader->lengths[i],
                      task->sizes[part->low + i]);
    return result;
}

/* What this thread has learned of the records of a layout; NULL: there is no memory. */
static struct state *learned_of(struct reader *reader, int64_t layout)
{
    for (int i = 0; i < LEARNED; i++)
        if (reader->learned[i] != NULL && reader->layouts[i] == layout)
            return reader->learned[i];
    int64_t slot = reader->next++ % LEARNED;
    free(reader->learned[slot]);
    reader->learned[slot] = calloc(1, sizeof(struct state));
    reader->layouts[slot] = layout;
    return reader->learned[slot];
}

static int64_t read_records_part(struct reader *reader, const struct settings *settings, const struct portion *part,
                                 int64_t *failed)
{
    const struct task *task = part->task;
    const struct record_file *file = task->file;
    int64_t count = part->high - part->low, arrays = file->features, longest = 0;
    for (int64_t i = part->low; i < part->high; i++)
        longest = task->lengths[i] > longest ? task->lengths[i] : longest;
    int64_t room = (settings->request > longest ? settings->request : longest) + longest;
    struct state *state = learned_of(reader, file->layout);
    if (state == NULL || !has_targets(reader, count * arrays) || !has_room(&reader->scratch, room))
        return ENOMEM;
    for (int64_t i = 0; i < count * arrays; i++)
        reader->to[i] = part->base + task->to[part->low * arrays + i];
    struct wanted want = {count,
                          arrays,
                          file->wanted,
                          task->offsets + part->low,
                          task->lengths + part->low,
                          reader->to,
                          task->sizes + part->low * arrays,
                          (int)file->descriptor,
                          (int)file->verify};
    int64_t result = read_all(&want, settings->request, reader->scratch.data, reader->scratch.bytes, state, failed);
    failed[0] += part->low;
    return result < 0 ? -result : result > 0 ? UNSUPPORTED : 0;
}

/* Numbers of the chunks of a part, counted from its first one, in the order of their bytes in the file. */
static void order_chunks(struct reader *reader, const int64_t *offsets, int64_t count)
{
    for (int64_t i = 0; i < count; i++) { /* which are in this order, or almost */
        int64_t place = i;
        for (; place > 0 && offsets[reader->numbers[place - 1]] > offsets[i]; place--)
            reader->numbers[place] = reader->numbers[place - 1];
        reader->numbers[place] = i;
    }
}

/* Read the chunks of a part as they are stored; their addresses go to `reader->to`, in the order of the part. */
static int64_t read_stored(struct reader *reader, const struct settings *settings, const struct portion *part,
                           int64_t *failed)
{
    const struct task *task = part->task;
    const struct chunk_file *file = task->file;
    const int64_t *lengths = task->lengths + part->low;
    int64_t count = part->high - part->low, bytes = 0;
    for (int64_t i = 0; i < count; i++)
        bytes += lengths[i];
    if (!has_targets(reader, 2 * count) || !has_room(&reader->scratch, bytes + 1))
        return ENOMEM;
    order_chunks(reader, task->offsets + part->low, count);
    uint64_t address = (uint64_t)(uintptr_t)reader->scratch.data;
    for (int64_t i = 0; i < count; i++) {
        int64_t number = reader->numbers[i];
        reader->descriptors[i] = (int32_t)file->descriptor;
        reader->offsets[i] = task->offsets[part->low + number];
        reader->lengths[i] = lengths[number];
        reader->to[i] = reader->to[count + number] = address;
        address += (uint64_t)lengths[number];
    }
    int64_t result = fill_extents(reader, settings, count, failed);
    failed[0] = part->low + (result != 0 ? reader->numbers[failed[0]] : 0);
    return result;
}

/* The first of ascending numbers that is not below `number`. */
static int64_t first_from(const int64_t *numbers, int64_t count, int64_t number)
{
    int64_t low = 0;
    while (low < count) {
        int64_t middle = low + (count - low) / 2;
        if (numbers[middle] < number)
            low = middle + 1;
        else
            count = middle;
    }
    return low;
}

static int64_t read_chunks_part(struct reader *reader, const struct settings *settings, const struct portion *part,
                                int64_t *failed)
{
    int64_t result = read_stored(reader, settings, part, failed);
    if (result != 0)
        return result;
    if (!reader->has_decoder)
        chunk_decoder_open(&reader->decoder, INFLATE_LIBRARIES);
    reader->has_decoder = 1;
    struct chunk_batch batch = ((const struct chunk_file *)part->task->file)->batch;
    int64_t begin = first_from(batch.chunk, batch.fragments, part->low);
    batch.fragments = first_from(batch.chunk, batch.fragments, part->high) - begin;
    batch.chunk += begin;
    batch.source += begin;
    batch.bytes += begin;
    batch.to += begin;
    batch.count = part->high - part->low;
    batch.stored = reader->to + batch.count;
    batch.lengths += part->low;
    batch.skipped += part->low;
    batch.first_chunk = part->low;
    batch.base = part->base;
    int64_t number = 0;
    int decoded = decode_chunks(&reader->decoder, &batch, &number);
    failed[0] = part->low + number;
    return decoded == CHUNK_SOUND ? 0 : decoded == CHUNK_NO_MEMORY ? ENOMEM : UNSUPPORTED;
}

/* Read a part to its memory.  Returns 0, or an errno, TOO_SHORT or UNSUPPORTED; in `failed` the number of the item and
 * the bytes of it that were read, and in its third and fourth number the requests that were not in the page cache, and
 * all of them. */
static int64_t read_part(struct reader *reader, const struct settings *settings, const struct portion *part,
                         int64_t *failed)
{
    if (part->high == part->low)
        return 0;
    switch (part->task->kind) {
    case TASK_RECORDS:
        return read_records_part(reader, settings, part, failed);
    case TASK_CHUNKS:
        return read_chunks_part(reader, settings, part, failed);
    default:
        return read_extents_part(reader, settings, part, failed);
    }
}

static void free_reader(struct reader *reader)
{
    for (int i = 0; i < LEARNED; i++)
        free(reader->learned[i]);
    if (reader->has_decoder)
        chunk_decoder_close(&reader->decoder);
    uring_close(reader->ring);
    free(reader->to);
    free_buffer(&reader->scratch);
    free_buffer(&reader->aside);
    free(reader);
}
