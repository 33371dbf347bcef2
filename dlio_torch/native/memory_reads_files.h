/* The files that are answered from memory: mapped whole, found by device and inode. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#ifndef MADV_POPULATE_READ
#define MADV_POPULATE_READ 22
#endif

#define EXPORT __attribute__((visibility("default")))
/* A second exported name of a function; works whatever prototype the headers give the second name. */
#define ALIAS(new, old) __asm__(".globl " #new "\n.type " #new ",%function\n.set " #new "," #old "\n")
/* The function that a wrapper stands before. */
#define REAL(type, name)                                                                                             \
    static __typeof__(type) real;                                                                                                \
    if (real == NULL)                                                                                                \
    real = (__typeof__(type))dlsym(RTLD_NEXT, name)

enum { SLOTS = 1 << 17, MOST_FILES = SLOTS / 2, LINE = 4096 };

struct file {
    dev_t device;
    ino_t inode;
    const char *bytes; /* NULL: a free slot */
    size_t size;
};

static struct file files[SLOTS]; /* by device and inode, open addressing; only ever added to */
static int number_of_files;
static pid_t owner; /* a child of vfork shares these tables, and must leave them alone */
static pthread_mutex_t adding = PTHREAD_MUTEX_INITIALIZER;

#include "memory_reads_delay.h"

/* --- files ------------------------------------------------------------------------------------------ */

static struct file *slot_of(dev_t device, ino_t inode)
{
    uint64_t key = ((uint64_t)inode ^ ((uint64_t)device << 40)) * 0x9E3779B97F4A7C15u;
    for (unsigned i = (unsigned)(key >> 47);; i++) {
        struct file *file = &files[i % SLOTS];
        const char *bytes = __atomic_load_n(&file->bytes, __ATOMIC_ACQUIRE);
        if (bytes == NULL || (file->device == device && file->inode == inode))
            return file;
    }
}

/* Map a file; 0, or an error number. */
static int add(const char *path)
{
    REAL(int (*)(const char *, int, ...), "open");
    struct stat status;
    int error = 0;
    int fd = real(path, O_RDONLY | O_CLOEXEC);
    if (fd < 0)
        return errno;
    pthread_mutex_lock(&adding);
    if (fstat(fd, &status) != 0) {
        error = errno;
    } else if (S_ISREG(status.st_mode) && status.st_size > 0) {
        struct file *file = slot_of(status.st_dev, status.st_ino);
        if (file->bytes == NULL && number_of_files == MOST_FILES) {
            error = EMFILE;
        } else if (file->bytes == NULL) {
            void *bytes = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_SHARED | MAP_POPULATE, fd, 0);
            if (bytes == MAP_FAILED) {
                error = errno;
            } else {
                file->device = status.st_dev;
                file->inode = status.st_ino;
                file->size = (size_t)status.st_size;
                __atomic_store_n(&file->bytes, bytes, __ATOMIC_RELEASE);
                number_of_files++;
            }
        }
    }
    pthread_mutex_unlock(&adding);
    close(fd);
    return error;
}

/* The part of a read that the file holds. */
static size_t copy_part(const struct file *file, void *into, size_t count, int64_t from)
{
    if (from < 0 || (uint64_t)from >= file->size)
        return 0;
    size_t left = file->size - (size_t)from;
    count = count < left ? count : left;
    memcpy(into, file->bytes + from, count);
    return count;
}

/* Answer reads of this file from memory from its next open on, without a delay; 0, or an error number. */
EXPORT int dlio_memory_serve(const char *path)
{
    owner = getpid();
    delay = NULL;
    return add(path);
}

/* A fork copies no page tables of file mappings: without this, the child would fault in every page. */
static void forked(void)
{
    owner = getpid();
    for (int i = 0; number_of_files > 0 && i < SLOTS; i++)
        if (files[i].bytes != NULL)
            madvise((void *)files[i].bytes, files[i].size, MADV_POPULATE_READ);
}

static void before_fork(void)
{
    pthread_mutex_lock(&adding);
}

static void after_fork(void)
{
    pthread_mutex_unlock(&adding);
}

static void after_fork_in_child(void)
{
    after_fork();
    forked();
}

__attribute__((constructor)) static void loaded(void)
{
    char line[LINE];
    const char *listed = getenv("DLIO_TORCH_MEMORY_FILES");
    owner = getpid();
    map_delay(getenv("DLIO_TORCH_MEMORY_DELAY"));
    pthread_atfork(before_fork, after_fork, after_fork_in_child);
    FILE *list = listed == NULL ? NULL : fopen(listed, "re");
    while (list != NULL && fgets(line, sizeof line, list) != NULL) {
        line[strcspn(line, "\n")] = '\0';
        add(line);
    }
    if (list != NULL)
        fclose(list);
}
