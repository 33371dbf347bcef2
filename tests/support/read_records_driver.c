/* Reads records of TFRecord files, sound and damaged ones, to memory of exactly their bytes, for the compiler's
 * sanitizers: `driver ROWS FILE...`.  A record has features a (30 floats a row, as bytes), n (3 integers) and w (700
 * floats).  Prints the number of records that were read. */

#define _GNU_SOURCE
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>

#include "read_records.c"

enum { COUNT = 64, WANTED = 3 };

static int64_t read_file(const char *path, int verify, int64_t request, const int64_t *sizes)
{
    struct feature wanted[WANTED] = {{(int64_t)(uintptr_t) "a", 1, KIND_BYTES},
                                     {(int64_t)(uintptr_t) "n", 1, KIND_INTEGERS},
                                     {(int64_t)(uintptr_t) "w", 1, KIND_FLOATS}};
    int descriptor = open(path, O_RDONLY | O_CLOEXEC);
    struct stat status;
    if (descriptor < 0 || fstat(descriptor, &status) != 0)
        exit(1);
    int64_t offsets[COUNT + 1] = {0}, spans[COUNT], measured[COUNT * WANTED], count = 0, longest = 0, failed = 0;
    dlio_scan_records(descriptor, status.st_size, verify, offsets, COUNT + 1, &count);
    uint64_t to[COUNT * WANTED];
    int64_t all[COUNT * WANTED];
    for (int64_t i = 0; i < count; i++) {
        spans[i] = offsets[i + 1] - offsets[i];
        longest = spans[i] > longest ? spans[i] : longest;
    }
    for (int64_t k = 0; k < count * WANTED; k++) {
        all[k] = sizes[k % WANTED];
        to[k] = (uint64_t)(uintptr_t)malloc((size_t)all[k]);
    }
    dlio_measure_records(count, descriptor, offsets, spans, wanted, WANTED, measured, &failed);
    int64_t room = (request > longest ? request : longest) + longest;
    uint8_t *scratch = malloc((size_t)room + 1);
    void *state = calloc(1, (size_t)dlio_records_state_bytes());
    int64_t result = dlio_read_records(count, descriptor, offsets, spans, wanted, WANTED, to, all, verify, request,
                                       scratch, room, state, &failed);
    for (int64_t k = 0; k < count * WANTED; k++)
        free((void *)(uintptr_t)to[k]);
    free(scratch);
    free(state);
    close(descriptor);
    return result == 0 ? count : failed;
}

int main(int argc, char **argv)
{
    int64_t sizes[WANTED] = {atoll(argv[1]) * 30 * 4, 3 * 8, 700 * 4}, requests[] = {4096, 100000, 1 << 20}, read = 0;
    for (int i = 2; i < argc; i++)
        for (int verify = 0; verify < 2; verify++)
            for (int k = 0; k < 3; k++)
                read += read_file(argv[i], verify, requests[k], sizes);
    printf("%lld\n", (long long)read);
    return 0;
}
