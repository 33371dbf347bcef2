/* Children that were waited for: their counters, and whether they were recorded at all.
 *
 * A process that records leaves a mark, the empty file `.<host>-<pid>` in the events folder; it goes when the process
 * executes another program (which makes its own) and when it is waited for.  Who has none then did not load this
 * library: it is linked statically, or changes its user. */

#include <sys/wait.h>

enum { WORTH_A_FILE = 1 << 16 }; /* bytes that a process must have moved unseen to be told of */

struct ended {
    pid_t pid;
    char name[32];
    int64_t counters[COUNTERS];
};

static char *put_mark(char *at, pid_t pid)
{
    at = put_text(put_text(put_text(at, settings.directory), "/."), settings.host);
    at = put_number(put_text(at, "-"), pid);
    *at = 0;
    return at;
}

static void make_mark_locked(void)
{
    char path[FILE_ROOM];
    put_mark(path, L->pid);
    long fd = raw_open(path, O_WRONLY | O_CREAT | O_NOFOLLOW, 0600);
    L->marked = !raw_failed(fd);
    if (L->marked)
        raw(SYS_close, fd, 0, 0, 0);
}

/* Whether there was one. */
static int remove_mark(pid_t pid)
{
    char path[FILE_ROOM];
    put_mark(path, pid);
    return raw(SYS_unlinkat, AT_FDCWD, path, 0, 0) != -ENOENT;
}

/* The child has ended, but can still be asked. */
static void look_at_ended(pid_t pid, struct ended *child)
{
    char path[48], *end = put_number(put_text(path, "/proc/"), pid);
    signals old = lock();
    child->pid = pid;
    *put_text(end, "/io") = 0;
    read_io(path, child->counters);
    *put_text(end, "/comm") = 0;
    long size = read_small(path, child->name, sizeof child->name);
    child->name[size > 0 ? size - 1 : 0] = 0; /* without the line break */
    unlock(old);
}

static void announce_child_locked(const struct ended *child)
{
    if (atomic_load(&L->state) != OPEN && (atomic_load(&L->state) == STOPPED || !open_locked()))
        return;
    char *at = text_room_locked(sizeof child->name * 6 + 128);
    if (at == NULL)
        return;
    at = put_number(put_text(at, "{\"child\":"), child->pid);
    at = put_json(put_text(at, ",\"name\":"), child->name, strlen(child->name));
    at = put_number(put_text(at, ",\"read\":"), child->counters[RCHAR]);
    at = put_number(put_text(at, ",\"written\":"), child->counters[WCHAR]);
    L->strings.next = put_text(at, "}\n");
}

/* The kernel adds the counters of a child that was waited for to those of its parent, which would look like I/O of
 * the parent that nobody saw. */
static void note_reaped(const struct ended *child)
{
    signals old = lock();
    for (int i = 0; i < MAJOR_FAULTS; i++)
        L->reaped[i] += child->counters[i] > 0 ? child->counters[i] : 0;
    if (!remove_mark(child->pid) && L->marked &&
        (child->counters[RCHAR] > WORTH_A_FILE || child->counters[WCHAR] > WORTH_A_FILE))
        announce_child_locked(child);
    unlock(old);
}
