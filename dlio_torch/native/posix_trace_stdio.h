/* Wrappers of glibc's buffered streams.  Their own reads and writes do not pass through the wrappers of read and
 * write; a record says what a call on a stream moved between its buffer and the kernel, in all.
 *
 * Read: the difference of the file's position before and after.  Written: what was waiting in the buffer before,
 * and what the call put in, less what waits afterwards.  Calls that the buffer can serve cost a comparison. */

#include <stdio.h>
#undef fread_unlocked
#undef fwrite_unlocked

enum { STREAMS = 1024 };
static FILE *_Atomic streams[STREAMS]; /* open ones, by descriptor, for what flushes all of them */

static inline int64_t waiting(const FILE *stream)
{
    return stream->_IO_write_ptr > stream->_IO_write_base ? stream->_IO_write_ptr - stream->_IO_write_base : 0;
}

static inline int64_t readable(const FILE *stream)
{
    return stream->_IO_read_end > stream->_IO_read_ptr ? stream->_IO_read_end - stream->_IO_read_ptr : 0;
}

static inline int64_t writable(const FILE *stream)
{
    return stream->_IO_write_end > stream->_IO_write_ptr ? stream->_IO_write_end - stream->_IO_write_ptr : 0;
}

/* State of a stream before a call that may move bytes. */
struct moving {
    FILE *held; /* locked meanwhile, so that no other thread moves the position */
    struct path *path;
    int64_t position, waiting, readable, start;
};

static void release(struct moving *moving)
{
    if (moving->held != NULL)
        funlockfile(moving->held);
}

static struct moving look(FILE *stream, int locked)
{
    struct moving now = {.held = locked ? stream : NULL};
    if (locked)
        flockfile(stream);
    now.path = stream->_fileno >= 0 ? file_of(stream->_fileno) : NULL;
    now.position = stream->_fileno >= 0 ? position_of(stream->_fileno) : -1;
    now.waiting = waiting(stream);
    now.readable = readable(stream);
    now.start = now_ns();
    return now;
}

/* A `put` below 0: the call failed and does not say how much of it was taken. */
static void wrote(FILE *stream, const struct moving *before, unsigned op, int64_t put)
{
    int64_t end = now_ns(), position = position_of(stream->_fileno);
    int64_t moved = put >= 0 ? before->waiting + put - waiting(stream) : position - before->position;
    if (stream->_fileno < 0 || moved <= 0)
        return;
    count_written(moved);
    if (before->path != NULL)
        record(before->path, op, before->start, end, position >= moved ? position - moved : -1, moved);
}

/* `got`: bytes that the call delivered, for streams that have no position. */
static void has_read(FILE *stream, const struct moving *before, unsigned op, int64_t got)
{
    int64_t end = now_ns(), flushed = before->waiting - waiting(stream);
    if (stream->_fileno < 0)
        return;
    if (before->position < 0) {
        count_read(got + readable(stream) - before->readable);
        return;
    }
    int64_t position = position_of(stream->_fileno);
    if (flushed > 0) { /* a stream for both directions first writes what was waiting */
        count_written(flushed);
        if (before->path != NULL)
            record(before->path, OP_fwrite, before->start, end, before->position, flushed);
    }
    int64_t moved = position - before->position - (flushed > 0 ? flushed : 0);
    count_read(moved);
    if (before->path != NULL && moved > 0)
        record(before->path, op, before->start, end, position - moved, moved);
}

/* `fits`: the buffer serves the call. */
#define STREAM_READ(type, name, op, parameters, arguments, fits, got, locked)                                         \
    type name parameters                                                                                            \
    {                                                                                                               \
        REAL_OF(type(*) parameters, #name);                                                                         \
        if ((fits) || !enter())                                                                                     \
            return real arguments;                                                                                  \
        struct moving moving __attribute__((cleanup(release))) = look(stream, locked);                              \
        type result = real arguments;                                                                               \
        has_read(stream, &moving, op, got);                                                                         \
        return result;                                                                                              \
    }

#define STREAM_WRITE(type, name, op, parameters, arguments, fits, put, locked)                                        \
    type name parameters                                                                                            \
    {                                                                                                               \
        REAL_OF(type(*) parameters, #name);                                                                         \
        if ((fits) || !enter())                                                                                     \
            return real arguments;                                                                                  \
        struct moving moving __attribute__((cleanup(release))) = look(stream, locked);                              \
        type result = real arguments;                                                                               \
        wrote(stream, &moving, op, put);                                                                            \
        return result;                                                                                              \
    }

/* --- reads ---------------------------------------------------------------------------------------------------- */

static inline int has(const FILE *stream, size_t size, size_t count)
{
    return (uint64_t)readable(stream) >= (uint64_t)size * count;
}

/* Whether a line, or `most` bytes, lie in the buffer. */
static inline int has_line(const FILE *stream, int64_t most, int delimiter)
{
    int64_t size = readable(stream);
    return size >= most || (size > 0 && memchr(stream->_IO_read_ptr, delimiter, (size_t)size) != NULL);
}

#define READ_PARAMETERS (void *buffer, size_t size, size_t count, FILE *stream)
#define READ_ARGUMENTS (buffer, size, count, stream)
STREAM_READ(size_t, fread, OP_fread, READ_PARAMETERS, READ_ARGUMENTS, has(stream, size, count), (int64_t)(result * size), 1)
STREAM_READ(size_t, fread_unlocked, OP_fread, READ_PARAMETERS, READ_ARGUMENTS, has(stream, size, count),
            (int64_t)(result * size), 0)
STREAM_READ(size_t, __fread_chk, OP_fread, (void *buffer, size_t room, size_t size, size_t count, FILE *stream),
            (buffer, room, size, count, stream), has(stream, size, count), (int64_t)(result * size), 1)
STREAM_READ(size_t, __fread_unlocked_chk, OP_fread, (void *buffer, size_t room, size_t size, size_t count, FILE *stream),
            (buffer, room, size, count, stream), has(stream, size, count), (int64_t)(result * size), 0)

#define LINE_SIZE (result ? (int64_t)strlen(result) : 0)
STREAM_READ(char *, fgets, OP_fgets, (char *buffer, int size, FILE *stream), (buffer, size, stream),
            has_line(stream, size - 1, '\n'), LINE_SIZE, 1)
STREAM_READ(char *, fgets_unlocked, OP_fgets, (char *buffer, int size, FILE *stream), (buffer, size, stream),
            has_line(stream, size - 1, '\n'), LINE_SIZE, 0)
STREAM_READ(char *, __fgets_chk, OP_fgets, (char *buffer, size_t room, int size, FILE *stream),
            (buffer, room, size, stream), has_line(stream, size - 1, '\n'), LINE_SIZE, 1)
STREAM_READ(char *, __fgets_unlocked_chk, OP_fgets, (char *buffer, size_t room, int size, FILE *stream),
            (buffer, room, size, stream), has_line(stream, size - 1, '\n'), LINE_SIZE, 0)
STREAM_READ(ssize_t, getline, OP_getline, (char **line, size_t *room, FILE *stream), (line, room, stream),
            has_line(stream, INT64_MAX, '\n'), result, 1)
STREAM_READ(ssize_t, getdelim, OP_getline, (char **line, size_t *room, int delimiter, FILE *stream),
            (line, room, delimiter, stream), has_line(stream, INT64_MAX, delimiter), result, 1)
ALIAS(__getdelim, getdelim);

STREAM_READ(int, fgetc, OP_fread, (FILE *stream), (stream), readable(stream) > 0, result != EOF, 1)
STREAM_READ(int, fgetc_unlocked, OP_fread, (FILE *stream), (stream), readable(stream) > 0, result != EOF, 0)
/* Functions that the macros getc_unlocked and putc_unlocked call. */
STREAM_READ(int, __uflow, OP_fread, (FILE *stream), (stream), readable(stream) > 0, result != EOF, 0)
STREAM_READ(int, __underflow, OP_fread, (FILE *stream), (stream), readable(stream) > 0, 0, 0)
#undef getc
#undef getc_unlocked
ALIAS(getc, fgetc);
ALIAS(_IO_getc, fgetc);
ALIAS(getc_unlocked, fgetc_unlocked);

/* Headers redirect these names to one another, so each function is given the name that it exports. */
#define SCANNER(symbol, list_symbol, function, list_function)                                                         \
    int list_function(FILE *stream, const char *format, va_list words) __asm__(list_symbol);                        \
    int list_function(FILE *stream, const char *format, va_list words)                                              \
    {                                                                                                               \
        REAL_OF(int (*)(FILE *, const char *, va_list), list_symbol);                                               \
        if (!enter())                                                                                               \
            return real(stream, format, words);                                                                     \
        struct moving moving __attribute__((cleanup(release))) = look(stream, 1);                                   \
        int result = real(stream, format, words);                                                                   \
        has_read(stream, &moving, OP_fread, 0);                                                                     \
        return result;                                                                                              \
    }                                                                                                               \
    int function(FILE *stream, const char *format, ...) __asm__(symbol);                                            \
    int function(FILE *stream, const char *format, ...)                                                             \
    {                                                                                                               \
        va_list words;                                                                                              \
        va_start(words, format);                                                                                    \
        int result = list_function(stream, format, words);                                                          \
        va_end(words);                                                                                              \
        return result;                                                                                              \
    }
SCANNER("fscanf", "vfscanf", scan_gnu, scan_gnu_list)
SCANNER("__isoc99_fscanf", "__isoc99_vfscanf", scan_c99, scan_c99_list)
SCANNER("__isoc23_fscanf", "__isoc23_vfscanf", scan_c23, scan_c23_list)

/* --- writes --------------------------------------------------------------------------------------------------- */

#define WRITE_PARAMETERS (const void *buffer, size_t size, size_t count, FILE *stream)
#define WRITE_FITS ((uint64_t)writable(stream) >= (uint64_t)size * count)
#define WRITE_PUT (result == count || size == 0 ? (int64_t)(size * count) : -1)
STREAM_WRITE(size_t, fwrite, OP_fwrite, WRITE_PARAMETERS, READ_ARGUMENTS, WRITE_FITS, WRITE_PUT, 1)
STREAM_WRITE(size_t, fwrite_unlocked, OP_fwrite, WRITE_PARAMETERS, READ_ARGUMENTS, WRITE_FITS, WRITE_PUT, 0)

#define TEXT_PUT (result >= 0 ? (int64_t)strlen(text) : -1)
STREAM_WRITE(int, fputs, OP_fputs, (const char *text, FILE *stream), (text, stream), 0, TEXT_PUT, 1)
STREAM_WRITE(int, fputs_unlocked, OP_fputs, (const char *text, FILE *stream), (text, stream), 0, TEXT_PUT, 0)
#define BYTE_PUT (result != EOF ? 1 : -1)
STREAM_WRITE(int, fputc, OP_fputs, (int byte, FILE *stream), (byte, stream), writable(stream) > 0, BYTE_PUT, 1)
STREAM_WRITE(int, fputc_unlocked, OP_fputs, (int byte, FILE *stream), (byte, stream), writable(stream) > 0, BYTE_PUT, 0)
STREAM_WRITE(int, __overflow, OP_fputs, (FILE *stream, int byte), (stream, byte), writable(stream) > 0,
             byte == EOF ? 0 : BYTE_PUT, 0)
#undef putc
#undef putc_unlocked
ALIAS(putc, fputc);
ALIAS(_IO_putc, fputc);
ALIAS(putc_unlocked, fputc_unlocked);

#define PRINT_PUT (result >= 0 ? result : -1)
STREAM_WRITE(int, vfprintf, OP_fprintf, (FILE *stream, const char *format, va_list words), (stream, format, words), 0,
             PRINT_PUT, 1)
STREAM_WRITE(int, __vfprintf_chk, OP_fprintf, (FILE *stream, int flag, const char *format, va_list words),
             (stream, flag, format, words), 0, PRINT_PUT, 1)

int fprintf(FILE *stream, const char *format, ...)
{
    va_list words;
    va_start(words, format);
    int result = vfprintf(stream, format, words);
    va_end(words);
    return result;
}

int __fprintf_chk(FILE *stream, int flag, const char *format, ...)
{
    va_list words;
    va_start(words, format);
    int result = __vfprintf_chk(stream, flag, format, words);
    va_end(words);
    return result;
}

int printf(const char *format, ...)
{
    va_list words;
    va_start(words, format);
    int result = vfprintf(stdout, format, words);
    va_end(words);
    return result;
}

int __printf_chk(int flag, const char *format, ...)
{
    va_list words;
    va_start(words, format);
    int result = __vfprintf_chk(stdout, flag, format, words);
    va_end(words);
    return result;
}

int vprintf(const char *format, va_list words)
{
    return vfprintf(stdout, format, words);
}

int puts(const char *text)
{
    REAL(puts);
    if (!enter())
        return real(text);
    struct moving moving __attribute__((cleanup(release))) = look(stdout, 1);
    int result = real(text);
    wrote(stdout, &moving, OP_fputs, result >= 0 ? (int64_t)strlen(text) + 1 : -1);
    return result;
}

int putchar(int byte)
{
    return fputc(byte, stdout);
}

/* --- seeks and flushes ---------------------------------------------------------------------------------------- */

static int flush_stream(FILE *stream, int as_call)
{
    REAL_OF(int (*)(FILE *), "fflush");
    struct moving moving __attribute__((cleanup(release))) = look(stream, 1);
    int result = real(stream);
    wrote(stream, &moving, OP_fwrite, result == 0 ? 0 : -1);
    if (as_call && moving.path != NULL)
        record(moving.path, OP_fflush, moving.start, now_ns(), -1, -1);
    return result;
}

/* Write what waits, as the call that follows would do it, but seen. */
static void flush_waiting(FILE *stream)
{
    if (waiting(stream) > 0)
        flush_stream(stream, 0);
}

static void flush_all(void)
{
    for (int fd = 0; fd < STREAMS; fd++) {
        FILE *stream = atomic_load(&streams[fd]);
        if (stream == NULL || ftrylockfile(stream) != 0)
            continue;
        flush_waiting(stream);
        funlockfile(stream);
    }
    if (ftrylockfile(stdout) == 0) {
        flush_waiting(stdout);
        funlockfile(stdout);
    }
}

int fflush(FILE *stream)
{
    REAL(fflush);
    if (!enter())
        return real(stream);
    if (stream != NULL && waiting(stream) > 0)
        return flush_stream(stream, 1);
    if (stream == NULL)
        flush_all();
    return real(stream);
}
ALIAS(fflush_unlocked, fflush);
ALIAS(_IO_fflush, fflush);

/* A seek writes what was waiting, and may read the block in which the new position lies. */
static void sought(FILE *stream, const struct moving *before, const char *base, const char *limit)
{
    int64_t end = now_ns();
    if (stream->_fileno < 0)
        return;
    int64_t position = position_of(stream->_fileno), flushed = before->waiting - waiting(stream);
    int64_t read = position != before->position + flushed || base != stream->_IO_read_base || limit != stream->_IO_read_end
                       ? stream->_IO_read_end - stream->_IO_read_base
                       : 0;
    count_written(flushed);
    count_read(read);
    if (before->path == NULL)
        return;
    if (flushed > 0)
        record(before->path, OP_fwrite, before->start, end, before->position, flushed);
    record(before->path, OP_fseek, before->start, end, position - readable(stream), -1);
    if (read > 0)
        record(before->path, OP_fread, before->start, end, position - read, read);
}

#define STREAM_SEEK(type, name, parameters, arguments)                                                                \
    type name parameters                                                                                            \
    {                                                                                                               \
        REAL_OF(type(*) parameters, #name);                                                                         \
        if (!enter())                                                                                               \
            return real arguments;                                                                                  \
        struct moving moving __attribute__((cleanup(release))) = look(stream, 1);                                   \
        const char *base = stream->_IO_read_base, *limit = stream->_IO_read_end;                                    \
        type result = real arguments;                                                                               \
        sought(stream, &moving, base, limit);                                                                       \
        return result;                                                                                              \
    }

STREAM_SEEK(int, fseek, (FILE *stream, long offset, int whence), (stream, offset, whence))
STREAM_SEEK(int, fseeko, (FILE *stream, off_t offset, int whence), (stream, offset, whence))
STREAM_SEEK(int, fsetpos, (FILE *stream, const fpos_t *position), (stream, position))
ALIAS(fseeko64, fseeko);
ALIAS(fsetpos64, fsetpos);

void rewind(FILE *stream)
{
    REAL(rewind);
    if (!enter()) {
        real(stream);
        return;
    }
    struct moving moving __attribute__((cleanup(release))) = look(stream, 1);
    const char *base = stream->_IO_read_base, *limit = stream->_IO_read_end;
    real(stream);
    sought(stream, &moving, base, limit);
}

/* --- open, close ------------------------------------------------------------------------------------------------ */

static void remember_stream(FILE *stream)
{
    if (stream != NULL && stream->_fileno >= 0 && stream->_fileno < STREAMS)
        atomic_store(&streams[stream->_fileno], stream);
}

static void forget_stream(const FILE *stream)
{
    if (stream->_fileno >= 0 && stream->_fileno < STREAMS)
        atomic_store(&streams[stream->_fileno], NULL);
}

FILE *fopen(const char *name, const char *mode)
{
    REAL(fopen);
    if (!enter())
        return real(name, mode);
    int64_t start = now_ns();
    FILE *stream = real(name, mode);
    opened(OP_fopen, AT_FDCWD, name, 0, stream ? stream->_fileno : -1, start, now_ns());
    remember_stream(stream);
    return stream;
}
ALIAS(fopen64, fopen);

FILE *fdopen(int fd, const char *mode)
{
    REAL(fdopen);
    FILE *stream = real(fd, mode);
    if (enter())
        remember_stream(stream);
    return stream;
}

FILE *freopen(const char *name, const char *mode, FILE *stream)
{
    REAL(freopen);
    if (!enter())
        return real(name, mode, stream);
    flush_waiting(stream);
    forget_stream(stream);
    int fd = stream->_fileno;
    struct path *path = fd >= 0 ? take_descriptor(fd) : NULL;
    int64_t start = now_ns();
    FILE *fresh = real(name, mode, stream);
    int64_t end = now_ns();
    if (name == NULL && fresh != NULL)
        set_descriptor(fresh->_fileno, path);
    else if (name != NULL)
        opened(OP_freopen, AT_FDCWD, name, 0, fresh ? fresh->_fileno : -1, start, end);
    remember_stream(fresh);
    return fresh;
}
ALIAS(freopen64, freopen);

int fclose(FILE *stream)
{
    REAL(fclose);
    if (!enter())
        return real(stream);
    flush_waiting(stream);
    int fd = stream->_fileno;
    forget_stream(stream);
    struct path *path = fd >= 0 ? take_descriptor(fd) : NULL;
    int64_t start = now_ns();
    int result = real(stream);
    if (path != NULL)
        record(path, OP_fclose, start, now_ns(), -1, -1);
    return result;
}
ALIAS(_IO_fclose, fclose);

int fcloseall(void)
{
    REAL(fcloseall);
    if (enter()) {
        flush_all();
        for (int fd = 0; fd < STREAMS; fd++)
            if (atomic_exchange(&streams[fd], NULL) != NULL)
                take_descriptor(fd);
    }
    return real();
}
