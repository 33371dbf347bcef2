/* A thread that notices when no Python code runs in this process any more, which no thread of Python can: a library
 * that holds the interpreter lock (h5py does) may be in a read that never returns.
 *
 * A thread of Python calls dlio_heartbeat_beat() about once a second.  When it has not for `patience` nanoseconds, this
 * thread starts an observer, a program that describes this process from outside; again each time that the silence has
 * doubled, and a last time at `limit`.  Only code inside this process can end it with the exit code of a failed run. */
#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { ARGUMENTS = 8, SECOND = 1000000000, END_PROCESS = 77, FAILED = 1 };

static _Atomic int64_t last_beat;
static _Atomic int running;
static int64_t patience_ns, limit_ns;
static char **arguments, **variables; /* the first ARGUMENTS words of the observer's command, and its environment */
static _Atomic int generation; /* a thread that was stopped may still sleep when the next one starts */
static pid_t owner;

static int64_t now(void)
{
    struct timespec time;
    clock_gettime(CLOCK_MONOTONIC, &time);
    return (int64_t)time.tv_sec * SECOND + time.tv_nsec;
}

/* Run the observer, and end this process if it says so. */
static void observe(int64_t silent_ns, int is_last)
{
    char pid[24], seconds[24], last[4];
    char *command[ARGUMENTS + 4];
    int count = 0;
    pid_t child;
    posix_spawnattr_t attributes;
    sigset_t none;
    while (count < ARGUMENTS && arguments[count] != NULL) {
        command[count] = arguments[count];
        count++;
    }
    snprintf(pid, sizeof pid, "%ld", (long)owner);
    snprintf(seconds, sizeof seconds, "%ld", (long)(silent_ns / SECOND));
    snprintf(last, sizeof last, "%d", is_last);
    command[count++] = pid;
    command[count++] = seconds;
    command[count++] = last;
    command[count] = NULL;
    sigemptyset(&none);
    posix_spawnattr_init(&attributes);
    posix_spawnattr_setsigmask(&attributes, &none);
    posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    if (posix_spawnp(&child, command[0], NULL, &attributes, command, variables) == 0) {
        int status = 0;
        while (waitpid(child, &status, 0) < 0 && errno == EINTR)
            ;
        if (WIFEXITED(status) && WEXITSTATUS(status) == END_PROCESS)
            _exit(FAILED);
    }
    posix_spawnattr_destroy(&attributes);
}

static void *watch(void *nothing)
{
    int64_t due = patience_ns;
    int was_last = 0, mine = generation;
    struct timespec pause = {0, SECOND / 4};
    while (running && mine == generation) {
        nanosleep(&pause, NULL);
        int64_t silent = now() - last_beat;
        if (silent < SECOND * 2) { /* a beat comes about once a second */
            due = patience_ns;
            was_last = 0;
            continue;
        }
        int is_last = limit_ns && silent >= limit_ns && !was_last;
        if (is_last || (patience_ns && silent >= due)) {
            due = 2 * silent;
            was_last |= is_last;
            observe(silent, is_last);
        }
    }
    return nothing;
}

EXPORT void dlio_heartbeat_beat(void)
{
    last_beat = now();
}

/* Start the thread; returns 0, or an errno.  All arguments must stay valid. */
EXPORT int dlio_heartbeat_start(int64_t patience, int64_t limit, char **command, char **environment)
{
    pthread_t thread;
    pthread_attr_t attributes;
    sigset_t all, before;
    if (running && owner == getpid())
        return EBUSY;
    owner = getpid();
    patience_ns = patience;
    limit_ns = limit;
    arguments = command;
    variables = environment;
    last_beat = now();
    running = 1;
    generation++;
    sigfillset(&all); /* signals are for the threads of Python */
    pthread_sigmask(SIG_BLOCK, &all, &before);
    pthread_attr_init(&attributes);
    pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
    int error = pthread_create(&thread, &attributes, watch, NULL);
    pthread_attr_destroy(&attributes);
    pthread_sigmask(SIG_SETMASK, &before, NULL);
    if (error)
        running = 0;
    return error;
}

EXPORT void dlio_heartbeat_stop(void)
{
    if (owner == getpid())
        running = 0;
}
