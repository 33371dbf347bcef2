/* Reads random extents of a file by rings, and direct ones by calls, too, and compares them with its bytes; a test runs
 * it under sanitizers.
 *
 *     uring_program FILE DIRECT THREADS ROUNDS      prints the number of requests that it checked
 *
 * Byte i of the file is content(i).  Each thread has a ring of its own.  Some lists end behind the file, and some have a
 * descriptor that is not open: their error is compared, too. */
#define _GNU_SOURCE
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>

#include "read_direct.h"
#include "uring.h"

enum { MOST = 60, BLOCK = 4096, GAP = 64 };

static const char *path;
static int direct, rounds;
static int64_t size;

static uint8_t content(int64_t i) { return (uint8_t)((uint64_t)i * 2654435761u >> 13); }

static int64_t below(uint64_t *state, int64_t limit)
{
    *state ^= *state << 13;
    *state ^= *state >> 7;
    *state ^= *state << 17;
    return (int64_t)(*state % (uint64_t)limit);
}

static void check(int good, const char *problem)
{
    if (!good) {
        fprintf(stderr, "%s\n", problem);
        exit(1);
    }
}

/* Read a list by direct calls, with memory aside for one request or for a few in turn. */
static int64_t read_by_calls(const struct extent_list *list, int64_t request, uint64_t *state, int64_t *failed)
{
    int64_t room = direct_room(request, BLOCK) + below(state, 12) * BLOCK;
    void *scratch = aligned_alloc(BLOCK, (size_t)room);
    check(scratch != NULL, "no memory");
    int64_t result = read_direct(list->count, list->descriptors, list->offsets, list->lengths, list->addresses, request,
                                 BLOCK, scratch, room, failed);
    free(scratch);
    return result;
}

/* One list: extents in the order of the file, some of them neighbours, some of them twice, to memory of their own. */
static void read_list(struct uring *ring, int fd, uint64_t *state)
{
    int64_t count = 1 + below(state, MOST), at = 0, room = 0, failed[4] = {0, 0, 0, 0};
    int32_t descriptors[MOST];
    int64_t offsets[MOST], lengths[MOST];
    uint64_t addresses[MOST], targets[MOST];
    int64_t bad = below(state, 8) == 0 ? below(state, count) : -1; /* this one cannot be read */
    int behind = bad >= 0 && below(state, 2), shifted = below(state, 2) ? (int)below(state, BLOCK) : 0;
    if (behind)
        bad = count - 1;
    for (int64_t i = 0; i < count; i++) {
        int64_t length = below(state, 4) ? below(state, size / MOST / 2) : 0;
        at += below(state, 3) ? below(state, size / MOST / 2) : 0;
        descriptors[i] = i == bad && !behind ? -1 : fd;
        offsets[i] = i == bad && behind ? size - 10 : at;
        lengths[i] = i == bad ? 30 : length;
        targets[i] = (uint64_t)(room + shifted);
        room += lengths[i] + (below(state, 2) ? GAP : 0);
        at += below(state, 5) ? length : 0;
    }
    uint8_t *memory = aligned_alloc(BLOCK, (size_t)((room + shifted + BLOCK) / BLOCK * BLOCK)); /* not larger */
    check(memory != NULL, "no memory");
    for (int64_t i = 0; i < count; i++)
        addresses[i] = (uint64_t)(uintptr_t)memory + targets[i];
    int64_t request = direct ? BLOCK * (1 + below(state, 8)) : 1 + below(state, 9000);
    struct extent_list list = {count, descriptors, offsets, lengths, addresses};
    int64_t result;
    if (direct && below(state, 2))
        result = read_by_calls(&list, request, state, failed);
    else if (direct)
        result = uring_read_direct(ring, count, descriptors, offsets, lengths, addresses, request, BLOCK, failed);
    else
        result = uring_read_extents(ring, count, descriptors, offsets, lengths, addresses, request, failed);
    if (bad < 0)
        check(result == 0, "a good list failed");
    else
        check(result == (behind ? -1 : EBADF) && failed[0] == bad && failed[1] == (behind ? 10 : 0), "another error");
    for (int64_t i = 0; i < (bad < 0 ? count : bad); i++)
        for (int64_t j = 0; j < lengths[i]; j++)
            check(memory[targets[i] + (uint64_t)j] == content(offsets[i] + j), "other bytes");
    free(memory);
}

/* Neighbours in the file become one request up to its size, whatever their addresses. */
static void check_merging(void)
{
    static const int32_t descriptors[] = {3, 3, 3, 3, 4};
    static const int64_t offsets[] = {0, 1000, 2000, 5000, 6000}, lengths[] = {1000, 1000, 1000, 1000, 1000};
    static const uint64_t addresses[] = {30000, 10000, 11000, 0, 1000}; /* nothing is there: only planned */
    static const int64_t requests[] = {2500, 500, 1000, 1000}, parts[] = {2, 1, 1, 1};
    struct extent_list list = {5, descriptors, offsets, lengths, addresses};
    struct extent_cursor at = {0, 0};
    struct iovec planned[IOV_MAX];
    int i = 0;
    for (; skip_done(&list, &at); i++) {
        int64_t bytes = 0;
        int used = plan_extents(&list, at, 2500, planned);
        for (int j = 0; j < used; j++)
            bytes += (int64_t)planned[j].iov_len;
        check(i < 4 && bytes == requests[i] && used == parts[i], "other requests");
        pass_bytes(&list, &at, bytes);
    }
    check(i == 4, "another number of requests");
}

/* A call submits few direct requests, however many are free. */
static void check_pace(void)
{
    struct uring *ring;
    int32_t descriptors[MOST];
    int64_t offsets[MOST], lengths[MOST], failed[4] = {0, 0, 0, 0};
    uint64_t addresses[MOST];
    int fd = open(path, O_RDONLY | O_DIRECT);
    uint8_t *memory = aligned_alloc(BLOCK, MOST * BLOCK);
    check(fd >= 0 && memory != NULL && uring_open(MOST, &ring) == 0, "no file, memory or ring");
    for (int i = 0; i < MOST; i++) {
        descriptors[i] = fd;
        offsets[i] = 2 * i * BLOCK; /* no two become one request */
        lengths[i] = BLOCK;
        addresses[i] = (uint64_t)(uintptr_t)(memory + i * BLOCK);
    }
    check(uring_read_direct(ring, MOST, descriptors, offsets, lengths, addresses, BLOCK, BLOCK, failed) == 0, "no read");
    check(ring->calls >= MOST / DIRECT_AT_ONCE, "a call submitted more requests");
    uring_close(ring);
    free(memory);
    close(fd);
}

static void *run(void *number)
{
    uint64_t state = 88172645463325252u + (uint64_t)(uintptr_t)number;
    struct uring *ring;
    int fd = open(path, O_RDONLY | (direct ? O_DIRECT : 0));
    check(fd >= 0, "the file cannot be opened");
    check(uring_open(1 + (uint32_t)(uintptr_t)number * 5, &ring) == 0, "no ring");
    for (int i = 0; i < rounds; i++)
        read_list(ring, fd, &state);
    check(ring->flying == 0 && ring->queued == 0 && ring->free_count == ring->depth, "something is in flight");
    uring_close(ring);
    close(fd);
    return NULL;
}

int main(int argc, char **argv)
{
    pthread_t threads[16];
    int count = atoi(argv[3]);
    path = argv[1];
    direct = atoi(argv[2]);
    rounds = atoi(argv[4]);
    size = 600000 + 77;
    (void)argc;
    check_merging();
    uint8_t *bytes = malloc((size_t)size);
    for (int64_t i = 0; i < size; i++)
        bytes[i] = content(i);
    int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    check(write(fd, bytes, (size_t)size) == size && fsync(fd) == 0 && close(fd) == 0, "the file cannot be written");
    free(bytes);
    if (direct)
        check_pace();
    for (int i = 0; i < count; i++)
        check(pthread_create(&threads[i], NULL, run, (void *)(uintptr_t)i) == 0, "no thread");
    for (int i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
    printf("%d\n", count * rounds);
    return 0;
}
