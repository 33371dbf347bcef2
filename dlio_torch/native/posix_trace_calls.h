/* Wrappers of the calls on descriptors. */

#include <sys/sendfile.h>
#include <sys/uio.h>

static int64_t position_of(int fd)
{
    long position = raw(SYS_lseek, fd, 0, SEEK_CUR, 0);
    return raw_failed(position) ? -1 : position;
}

/* Offset at which a read or write without an offset began.  The position is asked for, not tracked: it is shared with
 * copies of the descriptor in this and other processes, and moved by calls that are not seen. */
static int64_t begin_of(int fd, int64_t moved)
{
    int64_t position = position_of(fd);
    return position < 0 ? -1 : moved > 0 ? position - moved : position;
}

/* --- open, close -------------------------------------------------------------------------------------- */

/* Note what a new descriptor stands for, and record the call that made it, or that made none. */
static void opened(unsigned op, int directory, const char *name, int flags, int fd, int64_t start, int64_t end)
{
    struct stat status;
    int error = errno;
    struct path *path = NULL;
    if (fd < 0 && error == EFAULT)
        return; /* a path that the kernel could not read */
    if (fd >= 0 && (flags & O_TMPFILE) == O_TMPFILE) {
        set_descriptor(fd, NULL);
        take_descriptor(fd);
        path = file_of(fd); /* the name that was given is the folder's */
    } else {
        path = file_opened(directory, name, fd);
        if (fd >= 0) {
            watch_import(name);
            if (path != NULL && (raw(SYS_fstat, fd, &status, 0, 0) != 0 || !is_file(status.st_mode)))
                path = NULL;
            set_descriptor(fd, path);
        }
    }
    if (path != NULL)
        record(path, fd >= 0 ? op : OP_failed_open, start, end, -1, -1);
    errno = error;
}

#define OPENER(name, parameters, arguments, directory, path, flags)                                                  \
    int name parameters                                                                                             \
    {                                                                                                               \
        REAL_OF(int(*) parameters, #name);                                                                          \
        if (!enter())                                                                                               \
            return real arguments;                                                                                  \
        int64_t start = now_ns();                                                                                   \
        int fd = real arguments;                                                                                    \
        opened(OP_open, directory, path, flags, fd, start, now_ns());                                               \
        return fd;                                                                                                  \
    }

static int takes_mode(int flags)
{
    return (flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE;
}

#define OPENER_WITH_MODE(name, parameters, arguments, directory, path)                                               \
    int name parameters                                                                                             \
    {                                                                                                               \
        REAL_OF(int(*) parameters, #name);                                                                          \
        mode_t mode = 0;                                                                                            \
        if (takes_mode(flags)) {                                                                                    \
            va_list more;                                                                                           \
            va_start(more, flags);                                                                                  \
            mode = va_arg(more, mode_t);                                                                            \
            va_end(more);                                                                                           \
        }                                                                                                           \
        if (!enter())                                                                                               \
            return real arguments;                                                                                  \
        int64_t start = now_ns();                                                                                   \
        int fd = real arguments;                                                                                    \
        opened(OP_open, directory, path, flags, fd, start, now_ns());                                               \
        return fd;                                                                                                  \
    }

OPENER_WITH_MODE(open, (const char *path, int flags, ...), (path, flags, mode), AT_FDCWD, path)
OPENER_WITH_MODE(openat, (int at, const char *path, int flags, ...), (at, path, flags, mode), at, path)
OPENER(creat, (const char *path, mode_t mode), (path, mode), AT_FDCWD, path, O_CREAT)
OPENER(__open_2, (const char *path, int flags), (path, flags), AT_FDCWD, path, flags)
OPENER(__openat_2, (int at, const char *path, int flags), (at, path, flags), at, path, flags)
ALIAS(open64, open);
ALIAS(__open, open);
ALIAS(__open64, open);
ALIAS(openat64, openat);
ALIAS(creat64, creat);
ALIAS(__open64_2, __open_2);
ALIAS(__openat64_2, __openat_2);

/* The name is filled in by the call. */
#define TEMPORARY(name, parameters, arguments)                                                                       \
    int name parameters                                                                                             \
    {                                                                                                               \
        REAL_OF(int(*) parameters, #name);                                                                          \
        if (!enter())                                                                                               \
            return real arguments;                                                                                  \
        int64_t start = now_ns();                                                                                   \
        int fd = real arguments;                                                                                    \
        if (fd >= 0)                                                                                                \
            opened(OP_open, AT_FDCWD, pattern, O_RDWR, fd, start, now_ns());                                        \
        return fd;                                                                                                  \
    }

TEMPORARY(mkstemp, (char *pattern), (pattern))
TEMPORARY(mkostemp, (char *pattern, int flags), (pattern, flags))
TEMPORARY(mkstemps, (char *pattern, int tail), (pattern, tail))
TEMPORARY(mkostemps, (char *pattern, int tail, int flags), (pattern, tail, flags))
ALIAS(mkstemp64, mkstemp);
ALIAS(mkostemp64, mkostemp);
ALIAS(mkstemps64, mkstemps);
ALIAS(mkostemps64, mkostemps);

int close(int fd)
{
    REAL(close);
    if (!enter())
        return real(fd);
    /* Forgotten before it is closed: afterwards another thread may get the number for another file. */
    struct path *path = take_descriptor(fd);
    if (path == NULL)
        return real(fd);
    int64_t start = now_ns();
    int result = real(fd);
    record(path, OP_close, start, now_ns(), -1, -1);
    return result;
}
ALIAS(__close, close);

int close_range(unsigned first, unsigned last, int flags)
{
    REAL(close_range);
    if (enter() && !(flags & 4 /* CLOSE_RANGE_CLOEXEC: nothing is closed yet */))
        forget_descriptors(first, last);
    return real(first, last, flags);
}

void closefrom(int first)
{
    REAL(closefrom);
    if (enter())
        forget_descriptors(first < 0 ? 0 : (unsigned)first, ~0u);
    real(first);
}

int dup(int fd)
{
    REAL(dup);
    int copy = real(fd);
    if (copy >= 0 && enter())
        copy_descriptor(fd, copy);
    return copy;
}

int dup2(int fd, int wanted)
{
    REAL(dup2);
    int copy = real(fd, wanted);
    if (copy >= 0 && enter())
        copy_descriptor(fd, copy);
    return copy;
}
ALIAS(__dup2, dup2);

int dup3(int fd, int wanted, int flags)
{
    REAL(dup3);
    int copy = real(fd, wanted, flags);
    if (copy >= 0 && enter())
        copy_descriptor(fd, copy);
    return copy;
}

int fcntl(int fd, int command, ...)
{
    REAL_OF(int (*)(int, int, void *), "fcntl");
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    int result = real(fd, command, argument);
    if ((command == F_DUPFD || command == F_DUPFD_CLOEXEC) && result >= 0 && enter())
        copy_descriptor(fd, result);
    return result;
}
ALIAS(fcntl64, fcntl);
ALIAS(__fcntl, fcntl);

/* --- reads and writes ----------------------------------------------------------------------------------- */

/* `counter`: count_read or count_written; `offset`: where the call began. */
#define MOVER(type, symbol, op, parameters, arguments, counter, offset)                                              \
    type symbol parameters                                                                                          \
    {                                                                                                               \
        REAL_OF(type(*) parameters, #symbol);                                                                       \
        if (unlikely(!enter()))                                                                                     \
            return real arguments;                                                                                  \
        struct path *path = file_of(fd);                                                                            \
        if (path == NULL) {                                                                                         \
            type result = real arguments;                                                                           \
            counter(result);                                                                                        \
            return result;                                                                                          \
        }                                                                                                           \
        int64_t start = now_ns();                                                                                   \
        type result = real arguments;                                                                               \
        int64_t end = now_ns();                                                                                     \
        counter(result);                                                                                            \
        int64_t at_byte = offset;                                                                                   \
        if (unlikely(at_byte < 0 && result >= 0))                                                                   \
            set_descriptor(fd, NULL); /* a pipe by now: the file was closed by a call that was not seen */           \
        else                                                                                                        \
            record(path, op, start, end, at_byte, result);                                                          \
        return result;                                                                                              \
    }

MOVER(ssize_t, read, OP_read, (int fd, void *buffer, size_t size), (fd, buffer, size), count_read, begin_of(fd, result))
MOVER(ssize_t, pread, OP_pread, (int fd, void *buffer, size_t size, off_t at), (fd, buffer, size, at), count_read, at)
MOVER(ssize_t, readv, OP_readv, (int fd, const struct iovec *parts, int count), (fd, parts, count), count_read,
      begin_of(fd, result))
MOVER(ssize_t, preadv, OP_preadv, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at),
      count_read, at)
MOVER(ssize_t, preadv2, OP_preadv2, (int fd, const struct iovec *parts, int count, off_t at, int flags),
      (fd, parts, count, at, flags), count_read, at == -1 ? begin_of(fd, result) : at)
MOVER(ssize_t, __read_chk, OP_read, (int fd, void *buffer, size_t size, size_t room), (fd, buffer, size, room),
      count_read, begin_of(fd, result))
MOVER(ssize_t, __pread_chk, OP_pread, (int fd, void *buffer, size_t size, off_t at, size_t room),
      (fd, buffer, size, at, room), count_read, at)
ALIAS(__read, read);
ALIAS(pread64, pread);
ALIAS(__pread64, pread);
ALIAS(preadv64, preadv);
ALIAS(preadv64v2, preadv2);
ALIAS(__pread64_chk, __pread_chk);

/* Offset at which a write with an offset put its bytes: Linux appends if the file was opened so, and ignores it. */
static int64_t landed_at(int fd, int64_t at, int flags, int64_t moved)
{
    enum { APPEND = 0x10, NO_APPEND = 0x20 }; /* RWF_APPEND, RWF_NOAPPEND */
    struct stat status;
    if (moved <= 0 || (flags & NO_APPEND))
        return at;
    if (!(flags & APPEND) && !(raw(SYS_fcntl, fd, F_GETFL, 0, 0) & O_APPEND))
        return at;
    return raw(SYS_fstat, fd, &status, 0, 0) == 0 ? status.st_size - moved : -1;
}

MOVER(ssize_t, write, OP_write, (int fd, const void *buffer, size_t size), (fd, buffer, size), count_written,
      begin_of(fd, result))
MOVER(ssize_t, pwrite, OP_pwrite, (int fd, const void *buffer, size_t size, off_t at), (fd, buffer, size, at),
      count_written, landed_at(fd, at, 0, result))
MOVER(ssize_t, writev, OP_writev, (int fd, const struct iovec *parts, int count), (fd, parts, count), count_written,
      begin_of(fd, result))
MOVER(ssize_t, pwritev, OP_pwritev, (int fd, const struct iovec *parts, int count, off_t at), (fd, parts, count, at),
      count_written, landed_at(fd, at, 0, result))
MOVER(ssize_t, pwritev2, OP_pwritev2, (int fd, const struct iovec *parts, int count, off_t at, int flags),
      (fd, parts, count, at, flags), count_written, at == -1 ? begin_of(fd, result) : landed_at(fd, at, flags, result))
ALIAS(__write, write);
ALIAS(pwrite64, pwrite);
ALIAS(__pwrite64, pwrite);
ALIAS(pwritev64, pwritev);
ALIAS(pwritev64v2, pwritev2);

/* Records a copy within the kernel: a row for the source file and one for the target file. */
static void copied(unsigned op, struct path *from, struct path *to, int64_t start, int64_t end, int64_t read_at,
                   int64_t written_at, int64_t moved)
{
    if (from != NULL)
        record(from, op, start, end, read_at, moved);
    if (to != NULL)
        record(to, OP_write, start, end, written_at, moved);
}

/* Offset at which one side of the copy began: `offset` is the caller's, moved on by the call, or NULL. */
static int64_t copied_at(const struct path *path, int fd, const off64_t *offset, int64_t moved)
{
    return path == NULL || moved < 0 ? -1 : offset == NULL ? begin_of(fd, moved) : *offset - moved;
}

ssize_t sendfile(int out, int in, off_t *offset, size_t size)
{
    REAL(sendfile);
    if (!enter())
        return real(out, in, offset, size);
    struct path *from = file_of(in), *to = file_of(out);
    int64_t start = now_ns();
    ssize_t moved = real(out, in, offset, size);
    int64_t end = now_ns();
    count_read(moved);
    count_written(moved);
    copied(OP_sendfile, from, to, start, end, copied_at(from, in, offset, moved), copied_at(to, out, NULL, moved), moved);
    return moved;
}
ALIAS(sendfile64, sendfile);

ssize_t copy_file_range(int in, off64_t *read_offset, int out, off64_t *write_offset, size_t size, unsigned flags)
{
    REAL(copy_file_range);
    if (!enter())
        return real(in, read_offset, out, write_offset, size, flags);
    struct path *from = file_of(in), *to = file_of(out);
    int64_t start = now_ns();
    ssize_t moved = real(in, read_offset, out, write_offset, size, flags);
    int64_t end = now_ns();
    count_read(moved);
    count_written(moved);
    copied(OP_copy_file_range, from, to, start, end, copied_at(from, in, read_offset, moved),
           copied_at(to, out, write_offset, moved), moved);
    return moved;
}

/* From a file to a pipe or from a pipe to a file; the kernel counts these bytes for nobody. */
ssize_t splice(int in, off64_t *read_offset, int out, off64_t *write_offset, size_t size, unsigned flags)
{
    REAL(splice);
    struct path *from = NULL, *to = NULL;
    if (enter()) {
        from = file_of(in);
        to = file_of(out);
    }
    if (from == NULL && to == NULL)
        return real(in, read_offset, out, write_offset, size, flags);
    int64_t start = now_ns();
    ssize_t moved = real(in, read_offset, out, write_offset, size, flags);
    int64_t end = now_ns();
    copied(OP_splice, from, to, start, end, copied_at(from, in, read_offset, moved),
           copied_at(to, out, write_offset, moved), moved);
    return moved;
}

/* --- other calls on descriptors --------------------------------------------------------------------------- */

/* A call that moves nothing; `offset` may use `result`. */
#define OTHER(type, symbol, op, parameters, arguments, at, moved)                                                    \
    type symbol parameters                                                                                          \
    {                                                                                                               \
        REAL_OF(type(*) parameters, #symbol);                                                                       \
        struct path *path = enter() ? file_of(fd) : NULL;                                                           \
        if (path == NULL)                                                                                           \
            return real arguments;                                                                                  \
        int64_t start = now_ns();                                                                                   \
        type result = real arguments;                                                                               \
        record(path, op, start, now_ns(), at, moved);                                                               \
        return result;                                                                                              \
    }

OTHER(off_t, lseek, OP_lseek, (int fd, off_t offset, int whence), (fd, offset, whence), result, -1)
OTHER(int, fsync, OP_fsync, (int fd), (fd), -1, -1)
OTHER(int, fdatasync, OP_fdatasync, (int fd), (fd), -1, -1)
OTHER(int, sync_file_range, OP_sync_file_range, (int fd, off64_t at, off64_t size, unsigned flags),
      (fd, at, size, flags), at, -1)
OTHER(int, ftruncate, OP_ftruncate, (int fd, off_t size), (fd, size), size, -1)
OTHER(int, fallocate, OP_fallocate, (int fd, int mode, off_t at, off_t size), (fd, mode, at, size), at, -1)
OTHER(int, posix_fallocate, OP_fallocate, (int fd, off_t at, off_t size), (fd, at, size), at, -1)
OTHER(int, posix_fadvise, OP_posix_fadvise, (int fd, off_t at, off_t size, int advice), (fd, at, size, advice), at, -1)
ALIAS(lseek64, lseek);
ALIAS(__lseek, lseek);
ALIAS(ftruncate64, ftruncate);
ALIAS(fallocate64, fallocate);
ALIAS(posix_fallocate64, posix_fallocate);
ALIAS(posix_fadvise64, posix_fadvise);

/* --- maps --------------------------------------------------------------------------------------------------- */

void *mmap(void *wanted, size_t size, int protection, int flags, int fd, off_t offset)
{
    REAL(mmap);
    struct path *path = fd >= 0 && !(flags & MAP_ANONYMOUS) && enter() ? file_of(fd) : NULL;
    if (path == NULL)
        return real(wanted, size, protection, flags, fd, offset);
    int64_t start = now_ns();
    void *address = real(wanted, size, protection, flags, fd, offset);
    int64_t end = now_ns();
    int done = address != MAP_FAILED;
    if (done) {
        COUNT(mapped, (int64_t)size);
        remember_map(address, path);
    }
    record(path, OP_mmap, start, end, offset, done ? (int64_t)size : -1);
    return address;
}
ALIAS(mmap64, mmap);

int munmap(void *address, size_t size)
{
    REAL(munmap);
    struct map *map = find_map(address);
    if (map == NULL || !enter())
        return real(address, size);
    struct path *path = map->path;
    forget_map(map);
    int64_t start = now_ns();
    int result = real(address, size);
    record(path, OP_munmap, start, now_ns(), -1, result == 0 ? (int64_t)size : -1);
    return result;
}

void *mremap(void *address, size_t size, size_t wanted_size, int flags, ...)
{
    REAL_OF(void *(*)(void *, size_t, size_t, int, void *), "mremap");
    va_list more;
    va_start(more, flags);
    void *wanted = va_arg(more, void *);
    va_end(more);
    struct map *map = find_map(address);
    if (map == NULL || !enter())
        return real(address, size, wanted_size, flags, wanted);
    struct path *path = map->path;
    int64_t start = now_ns();
    void *moved = real(address, size, wanted_size, flags, wanted);
    int64_t end = now_ns();
    if (moved != MAP_FAILED && moved != address) {
        forget_map(map);
        remember_map(moved, path);
    }
    record(path, OP_mremap, start, end, -1, moved == MAP_FAILED ? -1 : (int64_t)wanted_size);
    return moved;
}

int msync(void *address, size_t size, int flags)
{
    REAL(msync);
    struct map *map = find_map(address);
    if (map == NULL || !enter())
        return real(address, size, flags);
    struct path *path = map->path;
    int64_t start = now_ns();
    int result = real(address, size, flags);
    record(path, OP_msync, start, now_ns(), -1, -1);
    return result;
}
