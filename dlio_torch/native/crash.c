/* One line on the standard error when a fatal signal ends this process: the signal, and the files that are open for
 * reading; for a mapped file that was truncated (SIGBUS) the file, and the exit code for damaged data.
 *
 * The handlers use system calls alone, as signal handlers must. */
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { SIGNALS = 4, DESCRIPTORS = 4096, PATH_BYTES = 4096, MAPS_BYTES = 8192, NAMED = 4 };
enum { PRECONDITION = 3 }; /* the exit code of dlio_torch for damaged data */

static const int numbers[SIGNALS] = {SIGSEGV, SIGABRT, SIGFPE, SIGILL};
static const char *const names[SIGNALS] = {"SIGSEGV", "SIGABRT", "SIGFPE", "SIGILL"};
static struct sigaction before[SIGNALS], before_bus;
static char prefix[256], advice[256];
static char text[NAMED * PATH_BYTES + 1024];
static size_t length;

static void add(const char *part)
{
    size_t size = strlen(part);
    if (length + size < sizeof text) {
        memcpy(text + length, part, size);
        length += size;
    }
}

static void print(void)
{
    add("\n");
    ssize_t ignored = write(STDERR_FILENO, text, length);
    (void)ignored;
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

/* The path of a regular file that is open for reading only; NULL for any other descriptor. */
static const char *read_file(int descriptor, char *path)
{
    char link[32] = "/proc/self/fd/", digits[16];
    struct stat status;
    ssize_t size;
    int flags = fcntl(descriptor, F_GETFL);
    if (flags < 0 || (flags & O_ACCMODE) != O_RDONLY || fstat(descriptor, &status) != 0 || !S_ISREG(status.st_mode))
        return NULL;
    strcat(link, decimal((unsigned)descriptor, digits));
    size = readlink(link, path, PATH_BYTES - 1);
    if (size <= 0)
        return NULL;
    path[size] = 0;
    return path[0] == '/' && strncmp(path, "/proc/", 6) != 0 && strncmp(path, "/sys/", 5) != 0 ? path : NULL;
}

static void on_crash(int number, siginfo_t *info, void *context)
{
    static char path[PATH_BYTES];
    char digits[16];
    unsigned count = 0;
    int kind = 0;
    (void)context;
    while (kind < SIGNALS - 1 && numbers[kind] != number)
        kind++;
    for (int i = 0; i < SIGNALS; i++) /* the previous handlers take what follows */
        sigaction(numbers[i], &before[i], NULL);
    if (info->si_code != SI_USER) { /* else another process has sent it */
        length = 0;
        add(prefix);
        add("a library ended this process (");
        add(names[kind]);
        add(")");
        for (int descriptor = DESCRIPTORS; descriptor > 2; descriptor--) { /* opened last, named first */
            const char *file = read_file(descriptor, path);
            if (file != NULL && count++ < NAMED) {
                add(count == 1 ? ", open for reading: " : ", ");
                add(file);
            }
        }
        if (count > NAMED) {
            add(" and ");
            add(decimal(count - NAMED, digits));
            add(" more");
        }
        if (count)
            add("; perhaps one of them is damaged");
        add(advice);
        print();
    }
    if (info->si_code <= 0) /* a fault comes again where this handler returns to, a signal that was sent does not */
        raise(number);
}

static uintptr_t hexadecimal(const char **at)
{
    uintptr_t value = 0;
    for (;; (*at)++) {
        char c = **at;
        if (c >= '0' && c <= '9')
            value = value * 16 + (uintptr_t)(c - '0');
        else if (c >= 'a' && c <= 'f')
            value = value * 16 + (uintptr_t)(c - 'a' + 10);
        else
            return value;
    }
}

/* The file of a line of /proc/self/maps, if it lies on a disk and the line's range holds the address; else NULL. */
static const char *file_of(const char *map, uintptr_t address)
{
    const char *at = map;
    uintptr_t start = hexadecimal(&at), end;
    if (*at++ != '-')
        return NULL;
    end = hexadecimal(&at);
    at = strchr(at, '/');
    if (address < start || address >= end || at == NULL || strncmp(at, "/dev/", 5) == 0 || strncmp(at, "/memfd:", 7) == 0)
        return NULL;
    return at;
}

/* The file that is mapped at an address; NULL if there is none. */
static const char *mapped_file(uintptr_t address)
{
    static char maps[MAPS_BYTES];
    size_t held = 0;
    const char *file = NULL;
    int descriptor = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (descriptor < 0)
        return NULL;
    while (file == NULL && held < MAPS_BYTES - 1) {
        char *end;
        ssize_t got = read(descriptor, maps + held, MAPS_BYTES - 1 - held);
        if (got <= 0)
            break;
        held += (size_t)got;
        maps[held] = 0;
        while ((end = strchr(maps, '\n')) != NULL) {
            *end = 0;
            if ((file = file_of(maps, address)) != NULL)
                break;
            held -= (size_t)(end + 1 - maps);
            memmove(maps, end + 1, held + 1);
        }
    }
    close(descriptor);
    return file;
}

static void on_bus_error(int number, siginfo_t *info, void *context)
{
    const char *file = info->si_code == BUS_ADRERR ? mapped_file((uintptr_t)info->si_addr) : NULL;
    if (file != NULL) {
        length = 0;
        add("dlio_torch: error: ");
        add(file);
        add(" was truncated while it was mapped, or its storage failed; generate or fetch it again");
        print();
        _exit(PRECONDITION);
    }
    if (before_bus.sa_flags & SA_SIGINFO) {
        before_bus.sa_sigaction(number, info, context);
    } else if (before_bus.sa_handler == SIG_DFL || before_bus.sa_handler == SIG_IGN) {
        signal(number, SIG_DFL); /* it comes again where this handler returns to */
    } else {
        before_bus.sa_handler(number);
    }
}

/* Install a handler, unless it is the current one, and keep the previous one. */
static void install(int number, void (*handler)(int, siginfo_t *, void *), int flags, struct sigaction *previous)
{
    struct sigaction now, ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = handler;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | flags;
    sigemptyset(&ours.sa_mask);
    if (sigaction(number, NULL, &now) == 0 && !((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == handler)) {
        *previous = now;
        sigaction(number, &ours, NULL);
    }
}

/* Report crashes in this process and those that it forks, in a line with this beginning and end. */
EXPORT void dlio_crash_report(const char *first, const char *last)
{
    strncpy(prefix, first, sizeof prefix - 1);
    strncpy(advice, last, sizeof advice - 1);
    for (int i = 0; i < SIGNALS; i++)
        install(numbers[i], on_crash, 0, &before[i]);
}

/* Report truncated mapped files in this process and those that it forks; the previous handler gets other bus errors. */
EXPORT void dlio_crash_report_truncated_maps(void)
{
    install(SIGBUS, on_bus_error, SA_NODEFER, &before_bus);
}
