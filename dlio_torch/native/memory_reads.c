/* Answers read calls on some files from memory: what is left of reading is a copy, without a system call.
 *
 * Loaded by LD_PRELOAD.  The files are named by a call of dlio_memory_serve(), or for a program that such a
 * process executes by the file that DLIO_TORCH_MEMORY_FILES names, one path a line.  Each is mapped, whole
 * and with all its pages, before it is read.  A descriptor that is opened for reading on one of these files
 * (known by device and inode) is answered from the mapping; its position is kept here and not in the kernel.
 * Opening, closing and asking for a file's status remain system calls, and whatever else could use the
 * position of a descriptor (dup, fdopen, sendfile ...) gives the descriptor back to the kernel first.
 * A forked process goes on with the position of its parent, as its own.
 *
 * For tests and benchmarks a read can take the time of a simulated storage: memory_reads_delay.h.
 */

#define _GNU_SOURCE
#include "memory_reads_files.h"

/* --- descriptors ------------------------------------------------------------------------------------ */

enum { DESCRIPTORS = 1 << 16 };

struct descriptor {
    struct file *file; /* NULL: the kernel's */
    int64_t position;
};

static struct descriptor descriptors[DESCRIPTORS];

static inline struct descriptor *served(int fd)
{
    if ((unsigned)fd >= DESCRIPTORS || descriptors[fd].file == NULL)
        return NULL;
    return &descriptors[fd];
}

/* The recorder of calls asks the kernel for positions: where delays are simulated, the kernel knows them, too. */
static void move_to(int fd, struct descriptor *one, int64_t position)
{
    one->position = position;
    if (delay != NULL)
        syscall(SYS_lseek, fd, (off_t)position, SEEK_SET);
}

static void opened(int fd, int flags)
{
    struct stat status;
    int error = errno;
    if (fd < 0 || fd >= DESCRIPTORS || owner != getpid())
        return;
    descriptors[fd].file = NULL;
    if (number_of_files > 0 && (flags & O_ACCMODE) == O_RDONLY && !(flags & (O_PATH | O_DIRECTORY | O_DIRECT)) &&
        fstat(fd, &status) == 0) {
        struct file *file = slot_of(status.st_dev, status.st_ino);
        if (file->bytes != NULL && file->size == (size_t)status.st_size) {
            descriptors[fd].position = 0;
            descriptors[fd].file = file;
        }
    }
    errno = error;
}

static void closed(int fd)
{
    struct descriptor *one = served(fd);
    if (one != NULL && owner == getpid())
        one->file = NULL;
}

/* Leave a descriptor to the kernel from here on. */
static void give_back(int fd)
{
    REAL(off_t(*)(int, off_t, int), "lseek");
    struct descriptor *one = served(fd);
    if (one == NULL)
        return;
    int error = errno;
    real(fd, (off_t)one->position, SEEK_SET);
    closed(fd);
    errno = error;
}

static size_t copy(const struct file *file, void *into, size_t count, int64_t from)
{
    size_t done = copy_part(file, into, count, from);
    delayed(done);
    return done;
}

/* --- open, close ------------------------------------------------------------------------------------ */

#define MODE_OF(flags)                                                                                               \
    mode_t mode = 0;                                                                                                 \
    if ((flags & O_CREAT) || (flags & O_TMPFILE) == O_TMPFILE) {                                                     \
        va_list more;                                                                                                \
        va_start(more, flags);                                                                                       \
        mode = va_arg(more, mode_t);                                                                                 \
        va_end(more);                                                                                                \
    }

EXPORT int open(const char *path, int flags, ...)
{
    REAL(int (*)(const char *, int, ...), "open");
    MODE_OF(flags)
    int fd = real(path, flags, mode);
    opened(fd, flags);
    return fd;
}

EXPORT int openat(int at, const char *path, int flags, ...)
{
    REAL(int (*)(int, const char *, int, ...), "openat");
    MODE_OF(flags)
    int fd = real(at, path, flags, mode);
    opened(fd, flags);
    return fd;
}

EXPORT int __open_2(const char *path, int flags)
{
    return open(path, flags);
}

EXPORT int __openat_2(int at, const char *path, int flags)
{
    return openat(at, path, flags);
}

ALIAS(open64, open);
ALIAS(__open64_2, __open_2);
ALIAS(openat64, openat);
ALIAS(__openat64_2, __openat_2);

EXPORT int close(int fd)
{
    REAL(int (*)(int), "close");
    closed(fd); /* before: another thread may get the number at once */
    return real(fd);
}

EXPORT int close_range(unsigned first, unsigned last, int flags)
{
    REAL(int (*)(unsigned, unsigned, int), "close_range");
    for (unsigned fd = first; fd <= last && fd < DESCRIPTORS; fd++)
        closed((int)fd);
    if (real == NULL) {
        errno = ENOSYS;
        return -1;
    }
    return real(first, last, flags);
}

/* --- read, lseek ------------------------------------------------------------------------------------ */

EXPORT ssize_t read(int fd, void *into, size_t count)
{
    struct descriptor *one = served(fd);
    if (one != NULL) {
        size_t done = copy(one->file, into, count, one->position);
        move_to(fd, one, one->position + (int64_t)done);
        return (ssize_t)done;
    }
    REAL(ssize_t(*)(int, void *, size_t), "read");
    return real(fd, into, count);
}

EXPORT ssize_t pread(int fd, void *into, size_t count, off_t from)
{
    struct descriptor *one = served(fd);
    if (one != NULL && from >= 0)
        return (ssize_t)copy(one->file, into, count, from);
    REAL(ssize_t(*)(int, void *, size_t, off_t), "pread");
    return real(fd, into, count, from);
}

EXPORT ssize_t __read_chk(int fd, void *into, size_t count, size_t room)
{
    if (count > room)
        abort();
    return read(fd, into, count);
}

EXPORT ssize_t __pread_chk(int fd, void *into, size_t count, off_t from, size_t room)
{
    if (count > room)
        abort();
    return pread(fd, into, count, from);
}

ALIAS(pread64, pread);
ALIAS(__pread64_chk, __pread_chk);

static ssize_t copy_pieces(const struct file *file, const struct iovec *pieces, int count, int64_t from)
{
    size_t done = 0;
    for (int i = 0; i < count; i++) {
        size_t got = copy_part(file, pieces[i].iov_base, pieces[i].iov_len, from + (int64_t)done);
        done += got;
        if (got < pieces[i].iov_len)
            break;
    }
    delayed(done); /* one request */
    return (ssize_t)done;
}

EXPORT ssize_t readv(int fd, const struct iovec *pieces, int count)
{
    struct descriptor *one = served(fd);
    if (one != NULL) {
        ssize_t done = copy_pieces(one->file, pieces, count, one->position);
        move_to(fd, one, one->position + done);
        return done;
    }
    REAL(ssize_t(*)(int, const struct iovec *, int), "readv");
    return real(fd, pieces, count);
}

EXPORT ssize_t preadv(int fd, const struct iovec *pieces, int count, off_t from)
{
    struct descriptor *one = served(fd);
    if (one != NULL && from >= 0)
        return copy_pieces(one->file, pieces, count, from);
    REAL(ssize_t(*)(int, const struct iovec *, int, off_t), "preadv");
    return real(fd, pieces, count, from);
}

ALIAS(preadv64, preadv);

EXPORT off_t lseek(int fd, off_t offset, int whence)
{
    struct descriptor *one = served(fd);
    if (one != NULL && (whence == SEEK_SET || whence == SEEK_CUR || whence == SEEK_END)) {
        int64_t base = whence == SEEK_SET ? 0 : whence == SEEK_CUR ? one->position : (int64_t)one->file->size;
        if (base + offset < 0) {
            errno = EINVAL;
            return -1;
        }
        move_to(fd, one, base + offset);
        return one->position;
    }
    give_back(fd);
    REAL(off_t(*)(int, off_t, int), "lseek");
    return real(fd, offset, whence);
}

ALIAS(lseek64, lseek);

/* --- what uses the kernel's position ------------------------------------------------------------------ */

EXPORT int dup2(int fd, int to)
{
    REAL(int (*)(int, int), "dup2");
    give_back(fd);
    if (fd != to)
        closed(to);
    return real(fd, to);
}

EXPORT int dup3(int fd, int to, int flags)
{
    REAL(int (*)(int, int, int), "dup3");
    give_back(fd);
    if (fd != to)
        closed(to);
    return real(fd, to, flags);
}

EXPORT int fcntl(int fd, int command, ...)
{
    REAL(int (*)(int, int, void *), "fcntl");
    va_list more;
    va_start(more, command);
    void *argument = va_arg(more, void *);
    va_end(more);
    if (command == F_DUPFD || command == F_DUPFD_CLOEXEC)
        give_back(fd);
    return real(fd, command, argument);
}

ALIAS(fcntl64, fcntl);

/* The call itself, once the kernel knows the position. */
#define GIVING_BACK(type, name, parameters, arguments)                                                               \
    EXPORT type name parameters                                                                                      \
    {                                                                                                                \
        REAL(type(*) parameters, #name);                                                                             \
        give_back(fd);                                                                                               \
        return real arguments;                                                                                       \
    }

GIVING_BACK(int, dup, (int fd), (fd))
GIVING_BACK(FILE *, fdopen, (int fd, const char *mode), (fd, mode))
GIVING_BACK(ssize_t, preadv2, (int fd, const struct iovec *pieces, int count, off_t from, int flags),
            (fd, pieces, count, from, flags))
GIVING_BACK(ssize_t, sendfile, (int to, int fd, off_t *from, size_t count), (to, fd, from, count))
GIVING_BACK(ssize_t, copy_file_range, (int fd, off64_t *from, int to, off64_t *at, size_t count, unsigned flags),
            (fd, from, to, at, count, flags))
GIVING_BACK(ssize_t, splice, (int fd, off64_t *from, int to, off64_t *at, size_t count, unsigned flags),
            (fd, from, to, at, count, flags))
ALIAS(preadv64v2, preadv2);
ALIAS(sendfile64, sendfile);
