/* Runs the decoders of the package over cases in a file, in memory of exactly the bytes that they may touch, for the
 * compiler's sanitizers; and compares CRC-32C with its definition.
 *
 * A case is, in int64: filters, itemsize, size, skipped, stored bytes, whether it is sound; then the filters' numbers,
 * the stored bytes and, of a sound case, the content.
 */

#include <stdio.h>

#include "decode_chunk.h"

static int64_t number(FILE *file)
{
    int64_t value = 0;
    if (fread(&value, sizeof value, 1, file) != 1)
        exit(3);
    return value;
}

static uint8_t *bytes(FILE *file, int64_t count)
{
    uint8_t *memory = malloc((size_t)count);
    if (count > 0 && fread(memory, 1, (size_t)count, file) != (size_t)count)
        exit(3);
    return memory;
}

static int run_case(FILE *file, int64_t filters, int library)
{
    int64_t itemsize = number(file), size = number(file), skipped = number(file), length = number(file);
    int64_t is_sound = number(file), zero = 0, failed = 0;
    int64_t *codes = (int64_t *)(void *)bytes(file, 8 * filters);
    uint8_t *stored = bytes(file, length), *content = is_sound ? bytes(file, size) : NULL;
    uint8_t *to = malloc((size_t)size);
    uint64_t address = (uint64_t)(uintptr_t)stored;
    struct chunk_batch batch = {.filter_count = filters, .filters = codes, .itemsize = itemsize, .size = size, .count = 1,
                                .stored = &address, .lengths = &length, .skipped = &skipped, .fragments = 1,
                                .chunk = &zero, .source = &zero, .bytes = &size, .to = &zero,
                                .base = (uint64_t)(uintptr_t)to};
    struct chunk_decoder decoder;
    chunk_decoder_open(&decoder, library);
    int result = decode_chunks(&decoder, &batch, &failed);
    chunk_decoder_close(&decoder);
    int wrong = is_sound && result != CHUNK_UNSUPPORTED && (result != CHUNK_SOUND || memcmp(to, content, (size_t)size));
    free(codes);
    free(stored);
    free(content);
    free(to);
    return wrong;
}

static uint32_t defined_crc(const uint8_t *data, size_t length)
{
    uint32_t crc = ~0u;
    for (size_t i = 0; i < length; i++) {
        crc ^= data[i];
        for (int bit = 0; bit < 8; bit++)
            crc = crc & 1 ? crc >> 1 ^ CRC32C_POLYNOMIAL : crc >> 1;
    }
    return ~crc;
}

/* Every way of computing it, for data that begins and ends anywhere, whole and in two parts. */
static int compare_crcs(void)
{
    int wrong = 0, has_instruction = crc32c_in_hardware, has_folding = crc32c_folds;
    for (size_t length = 0; length < 7000; length += length < 600 ? 7 : 331) {
        uint8_t *data = malloc(length + 1);
        for (size_t i = 0; i <= length; i++)
            data[i] = (uint8_t)(i * 2654435761u >> 11);
        uint32_t expected = defined_crc(data + 1, length);
        for (int way = 0; way < 3; way++) {
            crc32c_in_hardware = has_instruction && way > 0;
            crc32c_folds = has_folding && way > 1;
            uint32_t first = crc32c_extend(0, data + 1, length / 3);
            wrong += crc32c_extend(0, data + 1, length) != expected;
            wrong += crc32c_extend(first, data + 1 + length / 3, length - length / 3) != expected;
        }
        free(data);
    }
    return wrong;
}

int main(int argc, char **argv)
{
    int wrong = compare_crcs(), cases = 0;
    if (wrong)
        printf("%d checksums are wrong\n", wrong);
    for (int library = 0; library < INFLATE_LIBRARIES; library++) {
        FILE *file = fopen(argv[argc - 1], "rb");
        int64_t filters;
        if (file == NULL)
            return 3;
        while (fread(&filters, sizeof filters, 1, file) == 1) {
            cases++;
            if (run_case(file, filters, library)) {
                printf("case %d by library %d is wrong\n", cases, library);
                wrong++;
            }
        }
        fclose(file);
    }
    printf("%d cases\n", cases);
    return wrong != 0;
}
