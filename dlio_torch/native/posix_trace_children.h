/* Programs that are not recorded, though their processes are waited for or began as recorded ones.
 *
 * A process that records leaves a mark, the file `.<host>-<pid>` in the events folder; it goes when the process is
 * waited for.  Who has none then did not load this library: it is linked statically, or changes its user.
 * A mark is empty, but for a process that executes another program: then it tells the program and what the process
 * had moved by then.  A program that loads this library empties the mark again, and what was moved meanwhile was
 * moved by others in between.  Where it is still filled at the end, the last program did not load the library.
 * dlio_torch.iotrace.recorder.process_tree reads the marks of processes that no recorded one waits for. */

#include <sys/wait.h>

enum { WORTH_A_FILE = 1 << 16 }; /* bytes that a process must have moved unseen to be told of */

/* A process, or the last program of one, that was not recorded. */
struct unrecorded {
    pid_t pid;
    char name[32];
    int64_t began, read, written; /* began: 0 where the process never recorded */
};

struct ended {
    struct unrecorded part;
    int64_t counters[COUNTERS];
};

static char *put_mark(char *at, pid_t pid)
{
    at = put_text(put_text(put_text(at, settings.directory), "/."), settings.host);
    at = put_number(put_text(at, "-"), pid);
    *at = 0;
    return at;
}

/* The mark of this process, with what it has moved where it executes another program. */
static void make_mark_locked(const char *program)
{
    char path[FILE_ROOM], text[128];
    put_mark(path, L->pid);
    long fd = raw_open(path, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW, 0600);
    L->marked = !raw_failed(fd);
    if (!L->marked)
        return;
    int64_t counters[COUNTERS];
    if (program != NULL && (read_io("/proc/self/io", counters), counters[RCHAR] >= 0)) {
        const char *slash = strrchr(program, '/');
        char *at = put_number(put_text(put_number(text, now_ns()), " "), counters[RCHAR]);
        at = put_text(put_number(put_text(at, " "), counters[WCHAR]), " ");
        program = slash != NULL ? slash + 1 : *program ? program : "?"; /* by descriptor */
        for (int i = 0; i < 15 && program[i]; i++) /* as long as the kernel's names */
            *at++ = program[i];
        long put = raw(SYS_write, fd, text, at - text, 0);
        L->own_written += raw_failed(put) ? 0 : put;
    }
    raw(SYS_close, fd, 0, 0, 0);
}

/* Read a mark: the time, the bytes and the program of the last exec; a time of -1 where there is no mark, of 0 where
 * it is empty. */
static void read_mark(pid_t pid, struct unrecorded *part)
{
    char path[FILE_ROOM], text[128];
    put_mark(path, pid);
    long fd = raw_open(path, O_RDONLY | O_NOFOLLOW, 0);
    part->began = fd == -ENOENT ? -1 : 0;
    part->read = part->written = 0;
    if (raw_failed(fd))
        return;
    long size = raw(SYS_read, fd, text, sizeof text - 1, 0);
    raw(SYS_close, fd, 0, 0, 0);
    if (raw_failed(size))
        return;
    L->own_read += size;
    text[size] = 0;
    int64_t *const numbers[] = {&part->began, &part->read, &part->written};
    const char *at = text;
    for (int i = 0; i < 3 && *at >= '0' && *at <= '9'; i++) {
        for (*numbers[i] = 0; *at >= '0' && *at <= '9'; at++)
            *numbers[i] = *numbers[i] * 10 + (*at - '0');
        at += *at == ' ';
    }
    size_t length = strlen(at);
    length = length < sizeof part->name ? length : sizeof part->name - 1;
    memcpy(part->name, at, length);
    part->name[length] = 0;
}

static void remove_mark(pid_t pid)
{
    char path[FILE_ROOM];
    put_mark(path, pid);
    raw(SYS_unlinkat, AT_FDCWD, path, 0, 0);
}

static void announce_unrecorded_locked(const struct unrecorded *part)
{
    if (part->read <= WORTH_A_FILE && part->written <= WORTH_A_FILE)
        return;
    if (atomic_load(&L->state) != OPEN && (atomic_load(&L->state) == STOPPED || !open_locked()))
        return;
    char *at = text_room_locked(sizeof part->name * 6 + 192);
    if (at == NULL)
        return;
    at = put_number(put_text(at, "{\"child\":"), part->pid);
    at = put_json(put_text(at, ",\"name\":"), part->name, strlen(part->name));
    at = put_number(put_text(at, ",\"read\":"), part->read);
    at = put_number(put_text(at, ",\"written\":"), part->written);
    at = put_number(put_text(at, ",\"began\":"), part->began);
    at = put_number(put_text(at, ",\"ended\":"), now_ns());
    L->strings.next = put_text(at, "}\n");
}

/* This program begins, with these counters: programs of this process between the last one that recorded and this one
 * did not. */
static void note_between_locked(const int64_t *counters)
{
    struct unrecorded part = {.pid = L->pid};
    if (counters[RCHAR] >= 0)
        read_mark(L->pid, &part);
    if (part.began <= 0)
        return;
    part.read = counters[RCHAR] - part.read;
    part.written = counters[WCHAR] - part.written;
    announce_unrecorded_locked(&part);
}

/* The child has ended, but can still be asked. */
static void look_at_ended(pid_t pid, struct ended *child)
{
    char path[48], *end = put_number(put_text(path, "/proc/"), pid);
    signals old = lock();
    child->part.pid = pid;
    read_mark(pid, &child->part);
    *put_text(end, "/io") = 0;
    read_io(path, child->counters);
    *put_text(end, "/comm") = 0;
    char name[sizeof child->part.name];
    long size = read_small(path, name, sizeof name);
    if (size > 0) {
        name[size - 1] = 0; /* without the line break */
        strcpy(child->part.name, name);
    }
    unlock(old);
}

/* The kernel adds the counters of a child that was waited for to those of its parent, which would look like I/O of
 * the parent that nobody saw. */
static void note_reaped(struct ended *child)
{
    signals old = lock();
    for (int i = 0; i < MAJOR_FAULTS; i++)
        L->reaped[i] += child->counters[i] > 0 ? child->counters[i] : 0;
    remove_mark(child->part.pid);
    if (child->part.began != 0 && L->marked && child->counters[RCHAR] >= 0) {
        child->part.began = child->part.began < 0 ? 0 : child->part.began;
        child->part.read = child->counters[RCHAR] - child->part.read;
        child->part.written = child->counters[WCHAR] - child->part.written;
        announce_unrecorded_locked(&child->part);
    }
    unlock(old);
}
