/* A library that crashes ends the process without a word: here one line names the signal and the files that are read.
 *
 * The handler uses nothing but system calls, as a handler must. */
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { SIGNALS = 4, DESCRIPTORS = 4096, LONGEST = 4096, NAMED = 4 };

static const int numbers[SIGNALS] = {SIGSEGV, SIGABRT, SIGFPE, SIGILL};
static const char *const names[SIGNALS] = {"SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL"};
static struct sigaction before[SIGNALS];
static char who[256], way[256];
static char text[NAMED * LONGEST + 1024];
static size_t length;

static void add(const char *part)
{
    size_t size = strlen(part);
    if (length + size < sizeof text) {
        memcpy(text + length, part, size);
        length += size;
    }
}

/* The digits of a number, at the end of `digits`. */
static const char *decimal(unsigned value, char digits[16])
{
    char *at = digits + 15;
    *at = 0;
    do
        *--at = (char)('0' + value % 10);
    while ((value /= 10) != 0);
    return at;
}

/* The path of a regular file that is open for reading alone; NULL for any other descriptor. */
static const char *read_file(int descriptor, char *path)
{
    char link[32] = "/proc/self/fd/", digits[16];
    struct stat status;
    ssize_t size;
    int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY || fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
        return NULL;
    strcat(link, decimal((unsigned)descriptor, digits));
    size = readlink(link, path, LONGEST - 1);
    if (size <= 0)
        return NULL;
    path[size] = 0;
    return path[0] == '/' && strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/sys/", 5) != 0 ? path : NULL;
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    static char path[LONGEST];
    char digits[16];
    unsigned found = 0;
    int kind = 0;
    (void)context;
    while (kind < SIGNALS - 1 && numbers[kind] != number)
        kind++;
    for (int i = 0; i < SIGNALS; i++) /* whatever comes now is not ours */
        sigaction(numbers[i], &before[i], NULL);
    if (info->si_code != SI_USER) { /* else somebody has sent it */
        length = 0;
        add(who);
        add("a library ended this process (");
        add(names[kind]);
        add(")");
        for (int descriptor = DESCRIPTORS; descriptor > 2; descriptor--) { /* the last that were opened first */
            const char *file = read_file(descriptor, path);
            if (file != NULL && found++ < NAMED) {
                add(found == 1 ? ", open for reading: " : ", ");
                add(file);
            }
        }
        if (found > NAMED) {
            add(" and ");
            add(decimal(found - NAMED, digits));
            add(" more");
        }
        if (found)
            add("; perhaps one of them is damaged");
        add(way);
        add("\n");
        ssize_t ignored = write(STDERR_FILENO, text, length);
        (void)ignored;
    }
    if (info->si_code <= 0) /* a fault comes again where this handler returns to, a signal that was sent does not */
        raise(number);
}

/* Say it from now on in this process and those that it forks, in a line with this beginning and end. */
EXPORT void dlio_crash_guard(const char *first, const char *last)
{
    struct sigaction now, ours;
    strncpy(who, first, sizeof who - 1);
    strncpy(way, last, sizeof way - 1);
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_crash;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&ours.sa_mask);
    for (int i = 0; i < SIGNALS; i++) {
        if (sigaction(numbers[i], NULL, &now) == 0 && !((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_crash)) {
            before[i] = now;
            sigaction(numbers[i], &ours, NULL);
        }
    }
}
