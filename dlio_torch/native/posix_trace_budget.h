/* The budget that the recorded processes of a rank share: dlio_torch.iotrace.recorder.budget, whose file all of them
 * map.  A forked process keeps the mapping.  Without the file nothing is bounded. */

struct budget { /* dlio_torch.iotrace.recorder.budget._LAYOUT */
    char magic[8];
    int64_t limit_bytes, limit_files;
    _Atomic int64_t full_ns, span_bytes, span_files, bytes, files;
};

static struct budget *budget;

static void find_budget_locked(int32_t rank)
{
    char path[FILE_ROOM], magic[8];
    if (budget != NULL)
        return;
    char *at = put_text(put_text(path, settings.directory), "/rank");
    *put_text(put_number(at, rank), ".budget") = 0;
    long fd = raw_open(path, O_RDWR, 0);
    if (raw_failed(fd))
        return;
    long got = raw(SYS_read, fd, magic, sizeof magic, 0), map = -1;
    if (got == sizeof magic) {
        L->own_read += got;
        if (memcmp(magic, "DLIOBUDG", sizeof magic) == 0)
            map = raw6(SYS_mmap, 0, sizeof *budget, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    }
    raw(SYS_close, fd, 0, 0, 0);
    if (!raw_failed(map))
        budget = (struct budget *)map;
}

/* Whether there are so many bytes and files left; they are taken. */
static int spend_locked(int64_t bytes, int64_t files)
{
    int64_t none = 0;
    if (budget == NULL)
        return 1;
    if (atomic_load(&budget->full_ns) != 0)
        return 0;
    int64_t all_bytes = atomic_fetch_add(&budget->bytes, bytes) + bytes + atomic_load(&budget->span_bytes);
    int64_t all_files = atomic_fetch_add(&budget->files, files) + files + atomic_load(&budget->span_files);
    if (all_bytes <= budget->limit_bytes && all_files <= budget->limit_files)
        return 1;
    atomic_fetch_sub(&budget->bytes, bytes);
    atomic_fetch_sub(&budget->files, files);
    atomic_compare_exchange_strong(&budget->full_ns, &none, now_ns());
    return 0;
}
