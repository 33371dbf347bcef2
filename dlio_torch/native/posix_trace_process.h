/* Wrappers of the calls that make, replace, await and end processes. */

#include <linux/sched.h>
#include <spawn.h>
#include <stdio.h>

/* Starts recording in a new process: the first one, or the child of a fork. */
static int start_process(void)
{
    if (!settings.on)
        return 0;
    if (L == &unborn) {
        long room = raw6(SYS_mmap, 0, sizeof(struct live), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (raw_failed(room))
            return 0;
        raw(SYS_madvise, room, sizeof(struct live), MADV_WIPEONFORK, 0);
        struct live *expected = &unborn;
        ((struct live *)room)->first_image = 1;
        if (!__atomic_compare_exchange_n(&L, &expected, (struct live *)room, 0, __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
            raw(SYS_munmap, room, sizeof(struct live), 0, 0);
    }
    signals old = lock();
    if (atomic_load(&L->epoch) == 0) {
        L->pid = (pid_t)raw(SYS_getpid, 0, 0, 0, 0);
        int64_t begun[COUNTERS] = {[RCHAR] = -1};
        if (L->first_image) {
            read_io("/proc/self/io", begun);
            read_counters(L->start); /* those of a forked child began at 0 */
        }
        atomic_store(&L->epoch, ++epochs);
        note_between_locked(begun);
        make_mark_locked(NULL);
    }
    unlock(old);
    return 1;
}

/* For kernels that do not wipe memory on fork (before 4.14). */
static void in_forked_child(void)
{
    if (L == &unborn || atomic_load(&L->epoch) == 0)
        return;
    raw(SYS_madvise, L, sizeof *L, MADV_DONTNEED, 0);
}

/* The process ends, or its program: take the last snapshot. */
static void finish(void)
{
    if (!enter() || L->ended)
        return;
    signals old = lock();
    if (atomic_load(&L->state) == CLOSED) {
        int64_t counters[COUNTERS];
        struct cell sum = totals();
        read_counters(counters);
        if (counters[RCHAR] >= 0 && (counters[RCHAR] - L->start[RCHAR] - sum.read > WORTH_A_FILE ||
                                     counters[WCHAR] - L->start[WCHAR] - sum.written > WORTH_A_FILE))
            open_locked();
    }
    if (L->header != NULL) {
        find_rings_locked();
        snapshot_locked(1);
    }
    unlock(old);
}

/* --- ends ---------------------------------------------------------------------------------------------- */

void _exit(int status)
{
    finish();
    for (;;)
        raw(SYS_exit_group, status, 0, 0, 0);
}
ALIAS(_Exit, _exit);

void quick_exit(int status)
{
    REAL(quick_exit);
    finish();
    real(status);
    __builtin_unreachable();
}

/* --- exec ---------------------------------------------------------------------------------------------- */

static void begin_exec(const char *program)
{
    finish();
    if (!enter())
        return;
    signals old = lock();
    if (L->ended)
        remove_mark(L->pid);
    else
        make_mark_locked(program);
    unlock(old);
}

static int exec_failed(int result)
{
    if (enter()) {
        signals old = lock();
        if (!L->ended)
            make_mark_locked(NULL);
        if (L->header != NULL)
            L->header->complete = 0;
        unlock(old);
    }
    return result;
}

#define EXEC(name, program, parameters, arguments)                                                                   \
    int name parameters                                                                                              \
    {                                                                                                                \
        REAL_OF(int(*) parameters, #name);                                                                           \
        char *room[room_for(variables)], text[text_room()];                                                          \
        char *const *complete = completed(variables, room, text);                                                    \
        begin_exec(program);                                                                                         \
        return exec_failed(real arguments);                                                                          \
    }

EXEC(execve, file, (const char *file, char *const words[], char *const variables[]), (file, words, complete))
EXEC(execvpe, file, (const char *file, char *const words[], char *const variables[]), (file, words, complete))
EXEC(fexecve, "", (int fd, char *const words[], char *const variables[]), (fd, words, complete))
EXEC(execveat, file, (int at, const char *file, char *const words[], char *const variables[], int flags),
     (at, file, words, complete, flags))

int execv(const char *file, char *const words[])
{
    return execve(file, words, environ);
}

int execvp(const char *file, char *const words[])
{
    return execvpe(file, words, environ);
}

#define EXEC_LIST(name, variables_follow, call)                                                                      \
    int name(const char *file, const char *word, ...)                                                               \
    {                                                                                                               \
        va_list more;                                                                                               \
        size_t count = 1;                                                                                           \
        va_start(more, word);                                                                                       \
        for (const char *next = word; next != NULL; count++)                                                        \
            next = va_arg(more, const char *);                                                                      \
        va_end(more);                                                                                               \
        char *words[count];                                                                                         \
        char *const *variables = NULL;                                                                              \
        words[0] = (char *)word;                                                                                    \
        va_start(more, word);                                                                                       \
        for (size_t i = 1; i < count; i++)                                                                          \
            words[i] = va_arg(more, char *);                                                                        \
        if (variables_follow)                                                                                       \
            variables = va_arg(more, char *const *);                                                                \
        va_end(more);                                                                                               \
        (void)variables;                                                                                            \
        return call;                                                                                                \
    }

EXEC_LIST(execl, 0, execv(file, words))
EXEC_LIST(execlp, 0, execvp(file, words))
EXEC_LIST(execle, 1, execve(file, words, variables))

#define SPAWN(name)                                                                                                  \
    int name(pid_t *pid, const char *file, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,  \
             char *const words[], char *const variables[])                                                           \
    {                                                                                                                \
        REAL(name);                                                                                                  \
        char *room[room_for(variables)], text[text_room()];                                                          \
        return real(pid, file, actions, how, words, completed(variables, room, text));                               \
    }

SPAWN(posix_spawn)
SPAWN(posix_spawnp)

/* --- vfork ----------------------------------------------------------------------------------------------- */

/* Until it executes a program the child of vfork runs in the memory of its parent, on the parent's stack.
 * Its calls must not be recorded as the parent's; the parent sees by its process id that it runs again. */
__attribute__((used, visibility("hidden"))) void *dlio_before_vfork(void)
{
    REAL_OF(void *, "vfork");
    if (enter())
        T.state = VFORKED;
    return real;
}

/* A function that returns twice must leave no frame of its own on the stack. */
#if defined(__x86_64__)
__asm__(".globl vfork\n.type vfork,@function\nvfork:\n"
        ".cfi_startproc\nsub $8,%rsp\n.cfi_adjust_cfa_offset 8\ncall dlio_before_vfork\n"
        "add $8,%rsp\n.cfi_adjust_cfa_offset -8\njmp *%rax\n.cfi_endproc\n.size vfork,.-vfork\n");
#elif defined(__aarch64__)
__asm__(".globl vfork\n.type vfork,%function\nvfork:\n"
        "stp x29,x30,[sp,#-16]!\nbl dlio_before_vfork\nldp x29,x30,[sp],#16\nmov x16,x0\nbr x16\n.size vfork,.-vfork\n");
#endif
ALIAS(__vfork, vfork);

int clone(int (*function)(void *), void *stack, int flags, void *argument, ...)
{
    REAL_OF(int (*)(int (*)(void *), void *, int, void *, pid_t *, void *, pid_t *), "clone");
    va_list more;
    va_start(more, argument);
    pid_t *parent = va_arg(more, pid_t *);
    void *storage = va_arg(more, void *);
    pid_t *child = va_arg(more, pid_t *);
    va_end(more);
    if ((flags & CLONE_VM) && (flags & CLONE_VFORK) && enter())
        T.state = VFORKED;
    return real(function, stack, flags, argument, parent, storage, child);
}

/* --- wait ------------------------------------------------------------------------------------------------ */

/* Wait until a child has ended, without taking its end away from the call that follows, and look at it.  Returns 0
 * where that call has nothing to wait for any more, or -1 (with errno) where it must not be made. */
static int await_end(idtype_t type, id_t id, int options, struct ended *child)
{
    siginfo_t found;
    memset(&found, 0, sizeof found);
    static int (*_Atomic wait_for)(idtype_t, id_t, siginfo_t *, int);
    if (wait_for == NULL)
        wait_for = (int (*)(idtype_t, id_t, siginfo_t *, int))search("waitid");
    if (wait_for(type, id, &found, WEXITED | WNOWAIT | options) != 0)
        return -1;
    int has_ended = found.si_code == CLD_EXITED || found.si_code == CLD_KILLED || found.si_code == CLD_DUMPED;
    child->part.pid = 0;
    if (found.si_pid > 0 && has_ended)
        look_at_ended(found.si_pid, child);
    return found.si_pid;
}

static pid_t wait_for_child(pid_t (*real)(pid_t, int *, int, struct rusage *), pid_t pid, int *status, int options,
                            struct rusage *usage)
{
    if ((options & ~(WNOHANG | WUNTRACED | WCONTINUED)) || !enter())
        return real(pid, status, options, usage);
    for (;;) {
        struct ended child;
        idtype_t type = pid > 0 ? P_PID : pid == -1 ? P_ALL : P_PGID;
        pid_t group = pid < -1 ? -pid : pid == 0 ? (pid_t)raw(SYS_getpgid, 0, 0, 0, 0) : pid;
        pid_t found = await_end(type, (id_t)group, options, &child);
        if (found <= 0)
            return found;
        pid_t done = real(found, status, options | WNOHANG, usage);
        if (done > 0 && done == child.part.pid)
            note_reaped(&child);
        if (done != 0 && !(done == -1 && errno == ECHILD && pid != found))
            return done; /* else another thread was faster */
    }
}

pid_t wait4(pid_t pid, int *status, int options, struct rusage *usage)
{
    REAL_OF(pid_t(*)(pid_t, int *, int, struct rusage *), "wait4");
    return wait_for_child(real, pid, status, options, usage);
}

pid_t wait3(int *status, int options, struct rusage *usage)
{
    return wait4(-1, status, options, usage);
}

pid_t waitpid(pid_t pid, int *status, int options)
{
    return wait4(pid, status, options, NULL);
}
ALIAS(__waitpid, waitpid);

pid_t wait(int *status)
{
    return wait4(-1, status, 0, NULL);
}
ALIAS(__wait, wait);

int waitid(idtype_t type, id_t id, siginfo_t *info, int options)
{
    REAL(waitid);
    if ((options & (WEXITED | WNOWAIT | WSTOPPED | WCONTINUED)) == WEXITED && enter()) {
        struct ended child;
        int found = await_end(type, id, options & WNOHANG, &child);
        if (found < 0)
            return found;
        if (found > 0) {
            int result = real(P_PID, (id_t)found, info, options);
            if (result == 0)
                note_reaped(&child);
            return result;
        }
    }
    return real(type, id, info, options);
}

/* These wait inside the C library: what the counters rose by, beyond the calls that were seen, is the child's. */
static void note_inherited(const int64_t *before, const struct cell *traced_before)
{
    int64_t after[COUNTERS];
    signals old = lock();
    struct cell traced = totals();
    read_counters(after);
    int64_t seen[COUNTERS] = {[RCHAR] = traced.read - traced_before->read, [WCHAR] = traced.written - traced_before->written};
    for (int i = 0; after[RCHAR] >= 0 && i < MAJOR_FAULTS; i++)
        if (after[i] - before[i] > seen[i])
            L->reaped[i] += after[i] - before[i] - seen[i];
    unlock(old);
}

#define WAITS_INSIDE(name, type, argument, prelude)                                                                  \
    int name(type argument)                                                                                         \
    {                                                                                                               \
        REAL_OF(int (*)(type), #name);                                                                              \
        if (!enter())                                                                                               \
            return real(argument);                                                                                  \
        int64_t before[COUNTERS];                                                                                   \
        prelude;                                                                                                    \
        signals old = lock();                                                                                       \
        struct cell traced = totals();                                                                              \
        read_counters(before);                                                                                      \
        unlock(old);                                                                                                \
        int result = real(argument);                                                                                \
        int error = errno;                                                                                          \
        note_inherited(before, &traced);                                                                            \
        errno = error;                                                                                              \
        return result;                                                                                              \
    }

WAITS_INSIDE(system, const char *, command, )
WAITS_INSIDE(pclose, FILE *, stream, take_descriptor(fileno(stream)))
