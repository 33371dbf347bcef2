/* The files of a process: `rank<r>-<pid>[-n].posix` with a header and records of 48 bytes, and
 * `rank<r>-<pid>[-n].posix.names` with JSON lines; dlio_torch.iotrace.events.event_table reads both.
 *
 * Both are written through shared mappings, which belong to the kernel as soon as they are stored: a
 * process that is killed loses nothing.  No descriptor stays open: a program may close all it finds.
 * Whatever goes wrong here ends the recording, never the program. */

#define RECORDS_MAGIC "DLIOPOSX"
enum { FORMAT_VERSION = 1, UNIT = 12288, LARGEST_UNITS = 256, NAMES_UNIT = 16384, NAMES_LARGEST = 1 << 20 };
enum { LIMIT_REACHED = 1, NO_ROOM = 2, NO_COUNTERS = 4, BUDGET_SPENT = 8 };

struct header { /* dlio_torch.iotrace.events.posix_accounts._HEADER; the first 48 bytes as in dlio_torch.iotrace.recorder.spans.HEADER */
    char magic[8];
    uint32_t version, record_size;
    int32_t rank, pid;
    int64_t monotonic_ns, time_ns, header_size;
    uint32_t flags, complete; /* complete: the last snapshot was taken when the process, or its program, ended */
    int64_t limit, snapshot_ns, rings, dropped;
    /* Bytes that recorded calls moved up to the snapshot, including files that are left out. */
    int64_t traced_read, traced_written, mapped;
    /* The kernel's counters when counting began and at the snapshot: those of this process alone, our own
     * system calls and the children that it has waited for taken away. */
    int64_t start[COUNTERS], end[COUNTERS];
    int64_t unused[6];
};
_Static_assert(sizeof(struct header) % sizeof(struct record) == 0, "no record crosses from one mapping into the next");

/* Names of calls, as dlio_torch.iotrace.events.call_names.normal_name gives them. */
#define OPS(X)                                                                                                       \
    X(open) X(close) X(read) X(pread) X(readv) X(preadv) X(preadv2) X(write) X(pwrite) X(writev) X(pwritev)          \
    X(pwritev2) X(lseek) X(mmap) X(munmap) X(mremap) X(msync) X(fsync) X(fdatasync) X(sync_file_range) X(ftruncate)  \
    X(truncate) X(fallocate) X(posix_fadvise) X(rename) X(unlink) X(mkdir) X(rmdir) X(link) X(symlink) X(opendir)    \
    X(stat) X(lstat) X(fstat) X(fstatat) X(statx) X(access) X(sendfile) X(copy_file_range) X(fopen) X(freopen)       \
    X(fclose) X(fread) X(fgets) X(getline) X(fwrite) X(fputs) X(fprintf) X(fseek) X(fflush) X(failed_open) X(splice)
#define OP_ENUM(name) OP_##name,
#define OP_NAME(name) #name,
enum { OPS(OP_ENUM) OP_COUNT };
static const char *const op_names[] = {OPS(OP_NAME)};
_Static_assert(OP_COUNT <= 128, "room in struct live");

static char clock_name[160]; /* names the monotonic clock, as dlio_torch.iotrace.recorder.process_identity.clock_id */

/* --- the kernel's counters --------------------------------------------------------------------------- */

static long read_small(const char *path, char *buffer, size_t size)
{
    long fd = raw_open(path, O_RDONLY, 0);
    if (raw_failed(fd))
        return -1;
    long got = raw(SYS_read, fd, buffer, size - 1, 0);
    raw(SYS_close, fd, 0, 0, 0);
    if (raw_failed(got))
        return -1;
    buffer[got] = 0;
    L->own_read += got;
    return got;
}

static int64_t field_of(const char *text, const char *name)
{
    const char *at = strstr(text, name);
    if (at == NULL)
        return -1;
    int64_t value = 0;
    for (at += strlen(name); *at >= '0' && *at <= '9'; at++)
        value = value * 10 + (*at - '0');
    return value;
}

/* Counters of a process from its file /proc/<pid>/io; all -1 where it cannot be read. */
static void read_io(const char *path, int64_t *values)
{
    static const char *const names[] = {"rchar: ", "wchar: ", "read_bytes: ", "write_bytes: "};
    char text[512];
    /* Two names end alike ("cancelled_write_bytes"): each begins a line, and the first one found is right. */
    int known = read_small(path, text, sizeof text) > 0;
    for (int i = 0; i < MAJOR_FAULTS; i++)
        values[i] = known ? field_of(text, names[i]) : -1;
}

static void read_counters(int64_t *values)
{
    struct rusage usage;
    int64_t own_read = L->own_read, own_written = L->own_written;
    read_io("/proc/self/io", values);
    if (values[RCHAR] >= 0) {
        for (int i = 0; i < MAJOR_FAULTS; i++)
            values[i] -= L->reaped[i];
        values[RCHAR] -= own_read;
        values[WCHAR] -= own_written;
        values[WRITE_BYTES] -= L->own_charged;
    }
    values[MAJOR_FAULTS] = raw(SYS_getrusage, RUSAGE_SELF, &usage, 0, 0) == 0 ? usage.ru_majflt : -1;
}

static struct cell totals(void)
{
    struct cell sum = {atomic_load(&L->stray_read), atomic_load(&L->stray_written), atomic_load(&L->stray_mapped),
                       atomic_load(&L->stray_dropped)};
    uint32_t used = atomic_load(&L->cells_used);
    for (uint32_t i = 0; i < used && i < CELLS; i++) {
        const volatile struct cell *cell = &L->cells[i];
        sum.read += cell->read;
        sum.written += cell->written;
        sum.mapped += cell->mapped;
        sum.dropped += cell->dropped;
    }
    return sum;
}

static void snapshot_locked(int complete)
{
    struct header *header = L->header;
    struct cell sum = totals();
    read_counters(header->end);
    header->traced_read = sum.read;
    header->traced_written = sum.written;
    header->mapped = sum.mapped;
    header->dropped = sum.dropped;
    header->rings = atomic_load(&L->rings);
    header->snapshot_ns = now_ns();
    if (header->end[RCHAR] < 0)
        header->flags |= NO_COUNTERS;
    header->complete = (uint32_t)complete;
}

/* --- files ------------------------------------------------------------------------------------------- */

static int stop_locked(uint32_t flag)
{
    if (L->header != NULL)
        L->header->flags |= flag;
    atomic_store(&L->state, STOPPED);
    return 0;
}

/* Lengthen a file by `size` bytes and map them.  The bytes are written, not only reserved: a full disk
 * says so here and not by SIGBUS at some later store, and the faults of the mapping stay minor ones, so
 * that the major ones of the process are its own. */
static int extend_locked(struct output *output, int64_t size)
{
    static const char zeros[1 << 16];
    struct rlimit most;
    if (L->allocated + size > settings.limit)
        return stop_locked(LIMIT_REACHED);
    if (!spend_locked(size, 0))
        return stop_locked(BUDGET_SPENT);
    if (raw(SYS_prlimit64, 0, RLIMIT_FSIZE, 0, &most) == 0 && most.rlim_cur != RLIM_INFINITY &&
        (uint64_t)(output->size + size) > most.rlim_cur)
        return stop_locked(NO_ROOM); /* the kernel would send SIGXFSZ */
    long fd = raw_open(output->path, O_RDWR | O_NOFOLLOW, 0);
    if (raw_failed(fd))
        return stop_locked(NO_ROOM);
    long done = 0;
    int64_t before[COUNTERS], after[COUNTERS];
    read_io("/proc/self/io", before);
    for (int64_t at = 0; at < size; at += done) {
        int64_t part = size - at < (int64_t)sizeof zeros ? size - at : (int64_t)sizeof zeros;
        done = raw(SYS_pwrite64, fd, zeros, part, output->size + at);
        if (raw_failed(done) || done == 0)
            break;
        L->own_written += done;
    }
    read_io("/proc/self/io", after);
    if (after[WRITE_BYTES] - before[WRITE_BYTES] >= size) /* else the folder lies on no block device */
        L->own_charged += size;
    long map = -1;
    if (!raw_failed(done) && done != 0)
        map = raw6(SYS_mmap, 0, size, PROT_READ | PROT_WRITE, MAP_SHARED, fd, output->size);
    if (raw_failed(map))
        raw(SYS_ftruncate, fd, output->size, 0, 0);
    raw(SYS_close, fd, 0, 0, 0);
    if (raw_failed(map))
        return stop_locked(NO_ROOM);
    /* Threads may still store into older parts, so these stay mapped, but their pages need not stay ours. */
    if (output->before != NULL)
        raw(SYS_madvise, output->before, output->before_size, MADV_DONTNEED, 0);
    output->before = output->last_size ? output->end - output->last_size : NULL;
    output->before_size = output->last_size;
    output->next = (char *)map;
    output->end = output->next + size;
    output->last_size = (size_t)size;
    output->size += size;
    L->allocated += size;
    return 1;
}

/* Room for `size` bytes of text in one piece; what is left of a mapping is filled with spaces. */
static char *text_room_locked(int64_t size)
{
    struct output *output = &L->strings;
    if (output->end - output->next < size) {
        int64_t more = output->size < NAMES_UNIT ? NAMES_UNIT : output->size;
        more = more > NAMES_LARGEST ? NAMES_LARGEST : more;
        while (more < size)
            more *= 2;
        char *rest = output->next, *end = output->end;
        if (!extend_locked(output, more))
            return NULL;
        if (rest != NULL)
            memset(rest, ' ', (size_t)(end - rest));
    }
    return output->next;
}

static int announce_locked(const char *key, uint32_t id, const char *value_key, const char *text, size_t size)
{
    char *at = text_room_locked((int64_t)size * 6 + 64);
    if (at == NULL)
        return 0;
    at = put_text(at, "{\"");
    at = put_text(at, key);
    at = put_text(at, "\":");
    at = put_number(at, id);
    at = put_text(at, ",\"");
    at = put_text(at, value_key);
    at = put_text(at, "\":");
    at = put_json(at, text, size);
    L->strings.next = put_text(at, "}\n");
    return 1;
}

static uint32_t announce_name_locked(const char *text, size_t size)
{
    return announce_locked("id", L->names + 1, "name", text, size) ? ++L->names : 0;
}

static int32_t rank_of_process(void)
{
    int32_t rank = rank_in(environ);
    return rank < 0 ? 0 : rank;
}

static void find_clock_name_locked(const char *host)
{
    char link[64];
    long size = read_small("/proc/sys/kernel/random/boot_id", clock_name, 64);
    long more = raw(SYS_readlinkat, AT_FDCWD, "/proc/self/ns/time", link, sizeof link);
    if (size <= 0 || raw_failed(more)) {
        *put_text(clock_name, host) = 0;
        return;
    }
    char *at = clock_name + size;
    while (at > clock_name && at[-1] <= ' ')
        at--;
    *at++ = ' ';
    memcpy(at, link, (size_t)more);
    at[more] = 0;
}

static int head_locked(int32_t rank, int64_t monotonic, int64_t wall)
{
    if (clock_name[0] == 0)
        find_clock_name_locked(settings.host);
    const char *role = program_invocation_short_name ? program_invocation_short_name : "";
    char *at = text_room_locked((int64_t)(strlen(role) + strlen(clock_name) + sizeof settings.host) * 6 + 512);
    if (at == NULL)
        return 0;
    const struct { const char *key; int64_t value; } numbers[] = {
        {"{\"version\":", FORMAT_VERSION}, {",\"rank\":", rank}, {",\"pid\":", L->pid},
        {",\"parent_pid\":", raw(SYS_getppid, 0, 0, 0, 0)}, {",\"monotonic_ns\":", monotonic}, {",\"time_ns\":", wall}};
    for (size_t i = 0; i < sizeof numbers / sizeof *numbers; i++)
        at = put_number(put_text(at, numbers[i].key), numbers[i].value);
    at = put_text(at, ",\"start_method\":null,\"role\":");
    at = put_json(at, role, strlen(role));
    at = put_text(at, ",\"host\":");
    at = put_json(at, settings.host, strlen(settings.host));
    at = put_text(at, ",\"clock\":");
    at = put_json(at, clock_name, strlen(clock_name));
    L->strings.next = put_text(at, "}\n");
    return 1;
}

/* Make both files; a process id that came round again, or a second program in a process, gets a number. */
static int open_locked(void)
{
    if (settings.on == 0)
        return stop_locked(0);
    int32_t rank = rank_of_process();
    find_budget_locked(rank);
    if (!spend_locked(0, 2))
        return stop_locked(0);
    for (int number = 1; number < 10000; number++) {
        char *at = put_text(put_text(L->records.path, settings.directory), "/rank");
        at = put_number(put_text(put_number(at, rank), "-"), L->pid);
        if (number > 1)
            at = put_number(put_text(at, "-"), number);
        *put_text(at, ".posix") = 0;
        long fd = raw_open(L->records.path, O_RDWR | O_CREAT | O_EXCL, 0666);
        if (fd == -EEXIST)
            continue;
        if (raw_failed(fd))
            return stop_locked(NO_ROOM);
        raw(SYS_close, fd, 0, 0, 0);
        break;
    }
    *put_text(put_text(L->strings.path, L->records.path), ".names") = 0;
    long fd = raw_open(L->strings.path, O_RDWR | O_CREAT | O_TRUNC, 0666);
    if (raw_failed(fd))
        return stop_locked(NO_ROOM);
    raw(SYS_close, fd, 0, 0, 0);
    struct timespec wall;
    int64_t monotonic = now_ns();
    clock_gettime(CLOCK_REALTIME, &wall);
    int64_t wall_ns = (int64_t)wall.tv_sec * 1000000000 + wall.tv_nsec;
    if (!head_locked(rank, monotonic, wall_ns) || !extend_locked(&L->records, UNIT))
        return 0;
    struct header *header = (struct header *)L->records.next;
    L->records.next += sizeof *header;
    header->version = FORMAT_VERSION;
    header->record_size = sizeof(struct record);
    header->rank = rank;
    header->pid = L->pid;
    header->monotonic_ns = monotonic;
    header->time_ns = wall_ns;
    header->header_size = sizeof *header;
    header->limit = settings.limit;
    memcpy(header->start, L->start, sizeof L->start);
    L->header = header;
    snapshot_locked(0);
    atomic_thread_fence(memory_order_release);
    memcpy(header->magic, RECORDS_MAGIC, sizeof header->magic);
    atomic_store(&L->state, OPEN);
    return 1;
}

/* --- records ------------------------------------------------------------------------------------------ */

enum { FREE_SHIFT = 48 };

/* Free records for this thread alone: few at first, since many threads do little. */
static int take_block_locked(void)
{
    int introduced = T.block != 0;
    if (L->records.next == L->records.end) {
        int64_t more = L->records.size > LARGEST_UNITS * UNIT ? LARGEST_UNITS * UNIT : L->records.size;
        if (!extend_locked(&L->records, more))
            return 0;
        snapshot_locked(0);
    }
    T.block = T.block == 0 ? 8 : T.block >= 128 ? 128 : 2 * T.block;
    int64_t left = (L->records.end - L->records.next) / (int64_t)sizeof(struct record);
    int64_t count = left < T.block ? left : T.block;
    atomic_store(&T.free, (uint64_t)count << FREE_SHIFT | (uintptr_t)L->records.next);
    L->records.next += count * (int64_t)sizeof(struct record);
    if (introduced)
        return 1;
    char name[17] = "";
    raw(SYS_prctl, 16 /* PR_GET_NAME */, name, 0, 0);
    return announce_locked("tid", T.tid, "thread", name, strlen(name));
}

/* A free record, or NULL. */
static inline struct record *take_record(void)
{
    uint64_t free = atomic_load_explicit(&T.free, memory_order_relaxed);
    const uint64_t step = sizeof(struct record) - ((uint64_t)1 << FREE_SHIFT);
    do {
        if (unlikely(free >> FREE_SHIFT == 0))
            return NULL;
    } while (!atomic_compare_exchange_weak_explicit(&T.free, &free, free + step, memory_order_relaxed, memory_order_relaxed));
    return (struct record *)(free & (((uint64_t)1 << FREE_SHIFT) - 1));
}

struct path;
static int announce_path_locked(struct path *path);

/* Prepares the next record: files, names, a free place. */
static __attribute__((noinline)) int prepare(struct path *path, unsigned op)
{
    if (atomic_load_explicit(&L->state, memory_order_relaxed) == STOPPED)
        return 0;
    signals old = lock();
    int ready = atomic_load(&L->state) == OPEN || (atomic_load(&L->state) == CLOSED && open_locked());
    if (ready && path != NULL)
        ready = announce_path_locked(path);
    if (ready && L->op_ids[op] == 0) {
        uint32_t id = announce_name_locked(op_names[op], strlen(op_names[op]));
        atomic_store_explicit(&L->op_ids[op], id, memory_order_release);
        ready = id != 0;
    }
    if (ready && atomic_load(&T.free) >> FREE_SHIFT == 0)
        ready = take_block_locked();
    unlock(old);
    return ready;
}
