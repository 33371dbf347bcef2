/* Wrappers of calls on names and attributes.  A call that was given a file that does not exist is recorded,
 * too: file systems pay for it. */

#include <dirent.h>

/* A path that the kernel could not read must not be read here either. */
static inline int is_bad_address(int result)
{
    return result == -1 && errno == EFAULT;
}

static inline int is_empty(const char *name)
{
    __asm__("" : "+r"(name)); /* headers promise that it is never NULL; newer kernels accept it */
    return name == NULL || *name == 0;
}

/* The file is the first path; of a rename the old name. */
#define ON_PATH(symbol, op, parameters, arguments, directory, name, offset)                                          \
    int symbol parameters                                                                                           \
    {                                                                                                               \
        REAL_OF(int(*) parameters, #symbol);                                                                        \
        if (!enter())                                                                                               \
            return real arguments;                                                                                  \
        int64_t start = now_ns();                                                                                   \
        int result = real arguments;                                                                                \
        int64_t end = now_ns();                                                                                     \
        struct path *path = is_bad_address(result) ? NULL : file_named(directory, name);                            \
        if (path != NULL)                                                                                           \
            record(path, op, start, end, offset, -1);                                                               \
        return result;                                                                                              \
    }

#define ON_DESCRIPTOR(symbol, op, parameters, arguments)                                                             \
    int symbol parameters                                                                                           \
    {                                                                                                               \
        REAL_OF(int(*) parameters, #symbol);                                                                        \
        struct path *path = enter() ? file_of(fd) : NULL;                                                           \
        if (path == NULL)                                                                                           \
            return real arguments;                                                                                  \
        int64_t start = now_ns();                                                                                   \
        int result = real arguments;                                                                                \
        record(path, op, start, now_ns(), -1, -1);                                                                  \
        return result;                                                                                              \
    }

/* A path relative to a descriptor; an empty one means the descriptor itself. */
#define ON_PATH_AT(symbol, op, parameters, arguments)                                                                \
    int symbol parameters                                                                                           \
    {                                                                                                               \
        REAL_OF(int(*) parameters, #symbol);                                                                        \
        if (!enter())                                                                                               \
            return real arguments;                                                                                  \
        int64_t start = now_ns();                                                                                   \
        int result = real arguments;                                                                                \
        int64_t end = now_ns();                                                                                     \
        struct path *path = is_bad_address(result) ? NULL : is_empty(name) ? file_of(fd) : file_named(fd, name);    \
        if (path != NULL)                                                                                           \
            record(path, op, start, end, -1, -1);                                                                   \
        return result;                                                                                              \
    }

ON_PATH(stat, OP_stat, (const char *restrict name, struct stat *restrict status), (name, status), AT_FDCWD, name, -1)
ON_PATH(lstat, OP_lstat, (const char *restrict name, struct stat *restrict status), (name, status), AT_FDCWD, name, -1)
ON_DESCRIPTOR(fstat, OP_fstat, (int fd, struct stat *status), (fd, status))
ON_PATH_AT(fstatat, OP_fstatat,
           (int fd, const char *restrict name, struct stat *restrict status, int flags), (fd, name, status, flags))
ON_PATH_AT(statx, OP_statx, (int fd, const char *restrict name, int flags, unsigned mask, struct statx *restrict status),
           (fd, name, flags, mask, status))
ALIAS(stat64, stat);
ALIAS(lstat64, lstat);
ALIAS(fstat64, fstat);
ALIAS(fstatat64, fstatat);
/* Calls of programs that were linked with a C library before 2.33. */
ON_PATH(__xstat, OP_stat, (int version, const char *name, struct stat *status), (version, name, status), AT_FDCWD, name, -1)
ON_PATH(__lxstat, OP_lstat, (int version, const char *name, struct stat *status), (version, name, status), AT_FDCWD, name, -1)
ON_DESCRIPTOR(__fxstat, OP_fstat, (int version, int fd, struct stat *status), (version, fd, status))
ON_PATH_AT(__fxstatat, OP_fstatat, (int version, int fd, const char *name, struct stat *status, int flags),
           (version, fd, name, status, flags))
ALIAS(__xstat64, __xstat);
ALIAS(__lxstat64, __lxstat);
ALIAS(__fxstat64, __fxstat);
ALIAS(__fxstatat64, __fxstatat);

ON_PATH(access, OP_access, (const char *name, int mode), (name, mode), AT_FDCWD, name, -1)
ON_PATH(faccessat, OP_access, (int at, const char *name, int mode, int flags), (at, name, mode, flags), at, name, -1)
ON_PATH(truncate, OP_truncate, (const char *name, off_t size), (name, size), AT_FDCWD, name, size)
ON_PATH(rename, OP_rename, (const char *name, const char *new_name), (name, new_name), AT_FDCWD, name, -1)
ON_PATH(renameat, OP_rename, (int at, const char *name, int new_at, const char *new_name),
        (at, name, new_at, new_name), at, name, -1)
ON_PATH(renameat2, OP_rename, (int at, const char *name, int new_at, const char *new_name, unsigned flags),
        (at, name, new_at, new_name, flags), at, name, -1)
ON_PATH(unlink, OP_unlink, (const char *name), (name), AT_FDCWD, name, -1)
ON_PATH(unlinkat, OP_unlink, (int at, const char *name, int flags), (at, name, flags), at, name, -1)
ON_PATH(remove, OP_unlink, (const char *name), (name), AT_FDCWD, name, -1)
ON_PATH(rmdir, OP_rmdir, (const char *name), (name), AT_FDCWD, name, -1)
ON_PATH(mkdir, OP_mkdir, (const char *name, mode_t mode), (name, mode), AT_FDCWD, name, -1)
ON_PATH(mkdirat, OP_mkdir, (int at, const char *name, mode_t mode), (at, name, mode), at, name, -1)
ON_PATH(link, OP_link, (const char *name, const char *new_name), (name, new_name), AT_FDCWD, name, -1)
ON_PATH(linkat, OP_link, (int at, const char *name, int new_at, const char *new_name, int flags),
        (at, name, new_at, new_name, flags), at, name, -1)
ON_PATH(symlink, OP_symlink, (const char *target, const char *name), (target, name), AT_FDCWD, name, -1)
ON_PATH(symlinkat, OP_symlink, (const char *target, int at, const char *name), (target, at, name), at, name, -1)
ALIAS(truncate64, truncate);

DIR *opendir(const char *name)
{
    REAL(opendir);
    if (!enter())
        return real(name);
    int64_t start = now_ns();
    DIR *folder = real(name);
    int64_t end = now_ns();
    struct path *path = folder == NULL && errno == EFAULT ? NULL : file_named(AT_FDCWD, name);
    if (path != NULL)
        record(path, folder != NULL ? OP_opendir : OP_failed_open, start, end, -1, -1);
    return folder;
}

int closedir(DIR *folder)
{
    REAL(closedir);
    __asm__("" : "+r"(folder));
    if (folder != NULL && enter())
        take_descriptor(dirfd(folder));
    return real(folder);
}
