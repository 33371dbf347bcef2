/* A mapped file that is cut ends whoever reads the missing part by SIGBUS: here that is said in one line, with the name.
 *
 * The handler uses nothing but system calls, as a handler must. */
#include <fcntl.h>
#include <signal.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#define EXPORT __attribute__((visibility("default")))
enum { LONGEST = 8192, PRECONDITION = 3 }; /* the exit code of dlio_torch for damaged data */

static struct sigaction before;
static char line[LONGEST];

static uintptr_t hex(const char **at)
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

/* The file of a line of /proc/self/maps, if it is a file of a disk and the line's range holds the address. */
static const char *file_of(const char *text, uintptr_t address)
{
    const char *at = text;
    uintptr_t start = hex(&at), end;
    if (*at++ != '-')
        return NULL;
    end = hex(&at);
    at = strchr(at, '/');
    if (address < start || address >= end || at == NULL || strncmp(at, "/dev/", 5) == 0 || strncmp(at, "/memfd:", 7) == 0)
        return NULL;
    return at;
}

static const char *find(uintptr_t address)
{
    size_t held = 0;
    int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
    if (maps < 0)
        return NULL;
    for (;;) {
        char *end;
        ssize_t got = read(maps, line + held, LONGEST - 1 - held);
        if (got <= 0)
            break;
        held += (size_t)got;
        line[held] = 0;
        while ((end = strchr(line, '\n')) != NULL) {
            const char *found;
            *end = 0;
            found = file_of(line, address);
            if (found != NULL) {
                close(maps);
                return found;
            }
            held -= (size_t)(end + 1 - line);
            memmove(line, end + 1, held + 1);
        }
        if (held == LONGEST - 1)
            break;
    }
    close(maps);
    return NULL;
}

static void say(const char *text)
{
    ssize_t ignored = write(STDERR_FILENO, text, strlen(text));
    (void)ignored;
}

static void on_bus(int number, siginfo_t *info, void *context)
{
    const char *file = info->si_code == BUS_ADRERR ? find((uintptr_t)info->si_addr) : NULL;
    if (file != NULL) {
        say("dlio_torch: error: ");
        say(file);
        say(" was cut while it was mapped, or its storage failed; generate or fetch it again\n");
        _exit(PRECONDITION);
    }
    if (before.sa_flags & SA_SIGINFO) {
        before.sa_sigaction(number, info, context);
    } else if (before.sa_handler == SIG_DFL || before.sa_handler == SIG_IGN) {
        signal(number, SIG_DFL); /* it comes again where this handler returns to */
    } else {
        before.sa_handler(number);
    }
}

/* Say it from now on in this process and those that it forks; what handled the signal before gets the rest. */
EXPORT void dlio_mapped_guard(void)
{
    struct sigaction now, ours;
    memset(&ours, 0, sizeof ours);
    ours.sa_sigaction = on_bus;
    ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
    sigemptyset(&ours.sa_mask);
    if (sigaction(SIGBUS, NULL, &now) == 0 && !((now.sa_flags & SA_SIGINFO) && now.sa_sigaction == on_bus)) {
        before = now;
        sigaction(SIGBUS, &ours, NULL);
    }
}
