/* Which file a descriptor stands for, and whether it is one to record.
 *
 * Names are kept in an arena of bounded size; when it is full, those of open files move into a new one and
 * the rest is forgotten (a name that comes again is announced again).  An arena that was given up is never
 * unmapped, only emptied, so that a thread that held on to a name for long finds no name, not a crash. */

#include <sys/sysmacros.h>

enum { ARENA = 32 << 20, BUCKETS = 1 << 16, PATH_ROOM = 2 * PATH_MAX, DESCRIPTORS = 1024, TABLES = 1024, MAPS = 4096 };

struct path {
    _Atomic uint32_t epoch; /* process in whose table of names it is... */
    uint32_t id;            /* ...under this number */
    uint32_t hash, next, size;
    char text[];
};

static struct arena {
    char *base;
    uint32_t *buckets;
    size_t used;
} arena, former;

/* A descriptor's entry is NULL: not known, IGNORED: nothing to record, or a path. */
typedef struct path *_Atomic entry;
#define IGNORED ((struct path *)1)
static entry *_Atomic tables[TABLES];

/* Maps of recorded files by address, so that msync and munmap can name the file. */
static struct map {
    void *_Atomic address;
    struct path *path;
} maps[MAPS];
static _Atomic uint32_t maps_used;

static char path_text[PATH_ROOM + PATH_MAX]; /* where paths are put together, under the lock... */
static char other_text[PATH_MAX];            /* ...and a second one that is only looked at */

/* --- names -------------------------------------------------------------------------------------------- */

static int make_arena_locked(struct arena *made)
{
    long base = raw6(SYS_mmap, 0, ARENA + BUCKETS * sizeof(uint32_t), PROT_READ | PROT_WRITE,
                     MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (raw_failed(base))
        return 0;
    *made = (struct arena){(char *)base, (uint32_t *)((char *)base + ARENA), 8};
    return 1;
}

static struct path *find_in_arena_locked(const char *text, size_t size, uint32_t hash)
{
    for (uint32_t at = arena.buckets[hash % BUCKETS]; at; at = ((struct path *)(arena.base + at))->next) {
        struct path *path = (struct path *)(arena.base + at);
        if (path->hash == hash && path->size == size && memcmp(path->text, text, size) == 0)
            return path;
    }
    return NULL;
}

static struct path *add_to_arena_locked(const char *text, size_t size, uint32_t hash)
{
    struct path *path = (struct path *)(arena.base + arena.used);
    path->hash = hash;
    path->size = (uint32_t)size;
    memcpy(path->text, text, size);
    path->text[size] = 0;
    path->next = arena.buckets[hash % BUCKETS];
    uint32_t at = (uint32_t)arena.used;
    arena.used += (sizeof *path + size + 1 + 7) & ~(size_t)7;
    /* A fork by another thread copies what is stored up to here: the entry is whole before it is found. */
    __atomic_store_n(&arena.buckets[hash % BUCKETS], at, __ATOMIC_RELEASE);
    return path;
}

static uint32_t hash_of(const char *text, size_t size)
{
    uint64_t hash = 14695981039346656037u; /* FNV-1a */
    for (size_t i = 0; i < size; i++)
        hash = (hash ^ (unsigned char)text[i]) * 1099511628211u;
    return (uint32_t)(hash ^ hash >> 32);
}

static struct path *moved_locked(const struct path *old)
{
    struct path *path = find_in_arena_locked(old->text, old->size, old->hash);
    if (path == NULL) {
        path = add_to_arena_locked(old->text, old->size, old->hash);
        path->id = old->id;
        atomic_store(&path->epoch, atomic_load(&old->epoch));
    }
    return path;
}

static int turn_arena_locked(void)
{
    struct arena fresh;
    if (!make_arena_locked(&fresh))
        return 0;
    if (former.base != NULL)
        raw(SYS_madvise, former.base, ARENA + BUCKETS * sizeof(uint32_t), MADV_DONTNEED, 0);
    former = arena;
    arena = fresh;
    for (int i = 0; i < TABLES; i++) {
        entry *table = atomic_load(&tables[i]);
        for (int j = 0; table != NULL && j < DESCRIPTORS; j++) {
            struct path *old = atomic_load(&table[j]);
            if (old > IGNORED && arena.used + 2 * PATH_ROOM < ARENA)
                atomic_compare_exchange_strong(&table[j], &old, moved_locked(old));
        }
    }
    for (int i = 0; i < MAPS; i++)
        if (atomic_load(&maps[i].address) != NULL && arena.used + 2 * PATH_ROOM < ARENA)
            maps[i].path = moved_locked(maps[i].path);
    return 1;
}

static int name_of_descriptor_locked(int fd, char *text);

/* A text that is not included may have a descriptor (-1: none) whose name in the kernel is included: one of the
 * folders above it is a symbolic link. */
static int is_wanted_locked(const char *text, int fd)
{
    if (is_left_out(text))
        return 0;
    return is_included(text) || (fd >= 0 && name_of_descriptor_locked(fd, other_text) && !is_left_out(other_text) &&
                                 is_included(other_text));
}

/* The path of this text, NULL where it is not to be recorded. */
static struct path *intern_locked(const char *text, int fd)
{
    size_t size = strlen(text);
    uint32_t hash = hash_of(text, size);
    if (arena.base == NULL && !make_arena_locked(&arena))
        return NULL;
    struct path *path = find_in_arena_locked(text, size, hash);
    if (path != NULL)
        return path;
    if (!is_wanted_locked(text, fd))
        return NULL;
    if (arena.used + sizeof *path + size + 16 > ARENA && !turn_arena_locked())
        return NULL;
    return add_to_arena_locked(text, size, hash);
}

static int announce_path_locked(struct path *path)
{
    uint32_t epoch = atomic_load(&L->epoch);
    if (atomic_load(&path->epoch) == epoch)
        return 1;
    path->id = path->size ? announce_name_locked(path->text, path->size) : 0;
    if (path->id == 0)
        return 0;
    atomic_store_explicit(&path->epoch, epoch, memory_order_release);
    return 1;
}

/* --- descriptors -------------------------------------------------------------------------------------- */

static entry *entry_of(int fd, int make)
{
    if ((unsigned)fd >= TABLES * DESCRIPTORS)
        return NULL;
    entry *table = atomic_load_explicit(&tables[fd / DESCRIPTORS], memory_order_acquire);
    if (unlikely(table == NULL)) {
        if (!make)
            return NULL;
        long room = raw6(SYS_mmap, 0, DESCRIPTORS * sizeof(entry), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (raw_failed(room))
            return NULL;
        entry *expected = NULL;
        if (!atomic_compare_exchange_strong(&tables[fd / DESCRIPTORS], &expected, (entry *)room))
            raw(SYS_munmap, room, DESCRIPTORS * sizeof(entry), 0, 0);
        table = atomic_load(&tables[fd / DESCRIPTORS]);
    }
    return &table[fd % DESCRIPTORS];
}

static inline int is_file(mode_t mode)
{
    return S_ISREG(mode) || S_ISDIR(mode) || S_ISBLK(mode);
}

/* Text of the kernel's name of a descriptor, or 0; a file without a name any more keeps its last one. */
static int name_of_descriptor_locked(int fd, char *text)
{
    char link[32];
    *put_number(put_text(link, "/proc/self/fd/"), fd) = 0;
    long size = raw(SYS_readlinkat, AT_FDCWD, link, text, PATH_MAX - 1);
    if (raw_failed(size) || *text != '/')
        return 0;
    text[size] = 0;
    static const char deleted[] = " (deleted)";
    size_t tail = sizeof deleted - 1;
    if ((size_t)size > tail && strcmp(text + size - tail, deleted) == 0)
        text[size - (long)tail] = 0;
    return strncmp(text, "/memfd:", 7) != 0;
}

static __attribute__((noinline)) struct path *find_descriptor(int fd)
{
    struct stat status;
    entry *place = entry_of(fd, 1);
    if (place == NULL || raw(SYS_fstat, fd, &status, 0, 0) != 0)
        return NULL;
    struct path *path = NULL;
    if (is_file(status.st_mode)) {
        signals old = lock();
        if (name_of_descriptor_locked(fd, path_text))
            path = intern_locked(path_text, -1);
        unlock(old);
    }
    atomic_store(place, path ? path : IGNORED);
    return path;
}

/* The file of a descriptor, NULL where nothing is to be recorded. */
static inline struct path *file_of(int fd)
{
    entry *place = entry_of(fd, 0);
    struct path *path = place ? atomic_load_explicit(place, memory_order_acquire) : NULL;
    if (likely(path > IGNORED))
        return path;
    return path == IGNORED ? NULL : find_descriptor(fd);
}

static struct path *take_descriptor(int fd)
{
    entry *place = entry_of(fd, 0);
    struct path *path = place ? atomic_exchange(place, NULL) : NULL;
    return path > IGNORED ? path : NULL;
}

static void forget_descriptors(unsigned first, unsigned last)
{
    for (unsigned fd = first; fd <= last && fd < TABLES * DESCRIPTORS; fd++) {
        entry *table = atomic_load(&tables[fd / DESCRIPTORS]);
        if (table == NULL)
            fd |= DESCRIPTORS - 1;
        else
            atomic_store(&table[fd % DESCRIPTORS], NULL);
    }
}

static void set_descriptor(int fd, struct path *path)
{
    entry *place = entry_of(fd, 1);
    if (place != NULL)
        atomic_store(place, path ? path : IGNORED);
}

/* Registers the copy of a descriptor. */
static void copy_descriptor(int from, int to)
{
    entry *source = entry_of(from, 0), *target = entry_of(to, 1);
    if (target != NULL)
        atomic_store(target, source ? atomic_load(source) : NULL);
}

/* --- paths that a program names ------------------------------------------------------------------------ */

/* Text of an absolute path as the program named it, with "//", "/./" and "/../" taken out as Python's abspath
 * does; 0 where it cannot be told. */
static int make_absolute_locked(int directory, const char *name)
{
    char *at = path_text;
    size_t size = strnlen(name, PATH_MAX);
    if (size >= PATH_MAX || size == 0)
        return 0;
    if (*name != '/') {
        if (directory == AT_FDCWD) {
            long got = raw(SYS_getcwd, path_text, PATH_MAX, 0, 0);
            if (raw_failed(got) || *path_text != '/')
                return 0;
        } else {
            entry *place = entry_of(directory, 0);
            struct path *path = place ? atomic_load(place) : NULL;
            if (path > IGNORED && path->size)
                memcpy(path_text, path->text, path->size + 1);
            else if (!name_of_descriptor_locked(directory, path_text))
                return 0;
        }
        at += strlen(path_text);
    }
    for (const char *end = name + size; name < end;) {
        while (*name == '/')
            name++;
        const char *slash = memchr(name, '/', (size_t)(end - name));
        size_t part = (size_t)((slash ? slash : end) - name);
        if (part == 2 && name[0] == '.' && name[1] == '.') {
            while (at > path_text && *--at != '/')
                ;
        } else if (part > 0 && !(part == 1 && *name == '.')) {
            if (at == path_text || at[-1] != '/')
                *at++ = '/';
            memcpy(at, name, part);
            at += part;
        }
        name += part;
    }
    if (at == path_text)
        *at++ = '/';
    *at = 0;
    return at - path_text < PATH_MAX;
}

/* The file that a program names and that it may have a descriptor of, else -1; NULL where nothing is to be recorded. */
static struct path *file_opened(int directory, const char *name, int fd)
{
    if (name == NULL)
        return NULL;
    signals old = lock();
    struct path *path = make_absolute_locked(directory, name) ? intern_locked(path_text, fd) : NULL;
    unlock(old);
    return path;
}

static struct path *file_named(int directory, const char *name)
{
    return file_opened(directory, name, -1);
}

/* --- maps ------------------------------------------------------------------------------------------------ */

static unsigned place_of_map(const void *address)
{
    return (unsigned)(((uintptr_t)address >> 12) * 2654435761u) % MAPS;
}

static struct map *find_map(void *address)
{
    if (atomic_load_explicit(&maps_used, memory_order_relaxed) == 0)
        return NULL;
    unsigned start = place_of_map(address);
    for (unsigned i = 0; i < 64; i++) {
        struct map *map = &maps[(start + i) % MAPS];
        if (atomic_load_explicit(&map->address, memory_order_acquire) == address)
            return map;
    }
    return NULL;
}

static void remember_map(void *address, struct path *path)
{
    signals old = lock();
    unsigned start = place_of_map(address);
    for (unsigned i = 0; i < 64; i++) {
        struct map *map = &maps[(start + i) % MAPS];
        void *there = atomic_load(&map->address);
        if (there == NULL || there == address) {
            map->path = path;
            atomic_store(&map->address, address);
            atomic_fetch_add(&maps_used, there == NULL);
            break;
        }
    }
    unlock(old);
}

static void forget_map(struct map *map)
{
    atomic_store(&map->address, NULL);
    atomic_fetch_sub(&maps_used, 1);
}

/* --- one record ------------------------------------------------------------------------------------------ */

/* Record a call on a file that is to be recorded. */
static inline void record(struct path *path, unsigned op, int64_t start, int64_t end, int64_t offset, int64_t bytes)
{
    uint32_t epoch = atomic_load_explicit(&L->epoch, memory_order_relaxed);
    uint32_t op_id = atomic_load_explicit(&L->op_ids[op], memory_order_acquire);
    struct record *place = NULL;
    if (likely(op_id != 0 && atomic_load_explicit(&path->epoch, memory_order_acquire) == epoch))
        place = take_record();
    while (unlikely(place == NULL)) {
        if (!prepare(path, op)) {
            COUNT(dropped, 1);
            return;
        }
        op_id = atomic_load_explicit(&L->op_ids[op], memory_order_relaxed);
        place = take_record(); /* none where a signal handler was faster */
    }
    place->start = start;
    place->end = end;
    place->offset = offset;
    place->bytes = bytes;
    place->step = -1;
    place->file = path->id;
    place->tid = T.tid;
    __atomic_store_n(&place->op, op_id, __ATOMIC_RELEASE);
}
