/* Records the I/O calls of a program: preload it (LD_PRELOAD) with DLIO_TORCH_POSIX set.
 *
 * dlio_torch.iotrace.recorder.preload makes the environment and says what that variable means; what is recorded, and
 * the files, are described in dlio_torch.iotrace.recorder and posix_trace_store.h.
 *
 * A record costs two readings of the clock and one of 48 bytes stored in a place that belongs to the calling
 * thread.  Whatever needs more (a new name, a new thread, a full part of the file) is done under one lock. */
#define _GNU_SOURCE
#undef _FORTIFY_SOURCE
#include "posix_trace_base.h"
#include "posix_trace_text.h"
#include "posix_trace_environment.h"
#include "posix_trace_budget.h"
#include "posix_trace_store.h"
#include "posix_trace_patterns.h"
#include "posix_trace_paths.h"
#include "posix_trace_hook.h"
#include "posix_trace_calls.h"
#include "posix_trace_meta.h"
#ifdef __GLIBC__
#include "posix_trace_stdio.h"
#endif
#include "posix_trace_rings.h"
#include "posix_trace_children.h"
#include "posix_trace_process.h"

#include <pthread.h>

/* The patterns of a list: what follows its sign on lines of the variable's value. */
static void read_patterns(int list, const char *value, char sign)
{
    char *at = patterns.text[list], *end = at + sizeof patterns.text[list] - 2;
    for (const char *line = value; *line && *line != '/';) {
        size_t size = strcspn(line, "\n");
        if (*line == sign && size > 1 && at + size - 1 < end) {
            memcpy(at, line + 1, size - 1);
            at += size - 1;
            *at++ = 0;
        }
        line += size + (line[size] == '\n');
    }
}

/* The directory, which is the end of the variable's value; NULL: there is none that can be used. */
static const char *directory_in(const char *value)
{
    while (*value && *value != '/') {
        value += strcspn(value, "\n");
        value += *value == '\n';
    }
    return *value && strlen(value) < DIRECTORY_ROOM ? value : NULL;
}

__attribute__((constructor)) static void begin(void)
{
    const char *value = getenv(VARIABLE), *directory = value == NULL ? NULL : directory_in(value);
    if (directory == NULL || strlen(value) >= KEPT_ROOM)
        return;
    const char *limit = line_in(value, "limit=");
    strcpy(settings.directory, directory);
    struct { char sysname[65], nodename[65], release[65], version[65], machine[65], domain[65]; } machine = {.nodename = ""};
    raw(SYS_uname, &machine, 0, 0, 0);
    strcpy(settings.host, machine.nodename);
    settings.limit = INT64_C(1) << 30;
    if (limit != NULL && *limit >= '0' && *limit <= '9') {
        settings.limit = 0;
        for (; *limit >= '0' && *limit <= '9' && settings.limit < INT64_C(1) << 55; limit++)
            settings.limit = settings.limit * 10 + (*limit - '0');
    }
    read_patterns(0, value, '+');
    read_patterns(1, value, '-');
    read_hook(value);
    keep_variables(value);
    settings.on = 1;
    pthread_atfork(NULL, NULL, in_forked_child);
    enter();
}

__attribute__((destructor)) static void end(void)
{
#ifdef __GLIBC__
    if (enter())
        flush_all(); /* else the C library writes what waits in open streams, unseen, after us */
#endif
    finish();
}

/* Whether this process is being recorded: 1, or 0 where it is not or not any more. */
__attribute__((visibility("default"))) int dlio_posix_active(void)
{
    return enter() && atomic_load(&L->state) != STOPPED;
}

/* Begin in a program that was started without a directory and has set the variables since.  Returns 1, or 0 where
 * the variables are missing or recording has begun before. */
__attribute__((visibility("default"))) int dlio_posix_begin(void)
{
    if (settings.on || L != &unborn)
        return 0;
    begin();
    return settings.on;
}

/* End for good in this process: the last snapshot is taken, later calls are not recorded. */
__attribute__((visibility("default"))) void dlio_posix_end(void)
{
    if (!settings.on || !enter())
        return;
    end();
    remove_mark(L->pid);
    settings.on = 0; /* for children that are forked from now on */
    L->ended = 1;
    atomic_store(&L->state, STOPPED);
    atomic_store(&L->epoch, ++epochs); /* takes the free records away that threads still hold */
}
