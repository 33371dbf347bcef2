/* Ground of the recorder: system calls that bypass every wrapper, the state of the process and of its
 * threads, the lock, and the search for the functions that the wrappers stand before.
 *
 * Nothing here allocates with malloc, and nothing here changes errno. */

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/limits.h>
#include <poll.h>
#include <signal.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#ifndef MADV_WIPEONFORK
#define MADV_WIPEONFORK 18
#endif

#define unlikely(x) __builtin_expect(!!(x), 0)
#define likely(x) __builtin_expect(!!(x), 1)

/* A second exported name of a function; works whatever prototype the headers give the second name. */
#define ALIAS(new, old) __asm__(".globl " #new "\n.type " #new ",%function\n.set " #new "," #old "\n")

/* --- system calls: the result, or -errno ------------------------------------------------------------ */

static inline long raw6(long number, long a, long b, long c, long d, long e, long f)
{
#if defined(__x86_64__)
    register long r10 __asm__("r10") = d;
    register long r8 __asm__("r8") = e;
    register long r9 __asm__("r9") = f;
    long result;
    __asm__ volatile("syscall"
                     : "=a"(result)
                     : "a"(number), "D"(a), "S"(b), "d"(c), "r"(r10), "r"(r8), "r"(r9)
                     : "rcx", "r11", "memory");
    return result;
#elif defined(__aarch64__)
    register long x8 __asm__("x8") = number;
    register long x0 __asm__("x0") = a;
    register long x1 __asm__("x1") = b;
    register long x2 __asm__("x2") = c;
    register long x3 __asm__("x3") = d;
    register long x4 __asm__("x4") = e;
    register long x5 __asm__("x5") = f;
    __asm__ volatile("svc 0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
    return x0;
#else
#error "posix_trace: only x86_64 and aarch64 are known"
#endif
}

#define raw(number, a, b, c, d) raw6(number, (long)(a), (long)(b), (long)(c), (long)(d), 0, 0)

static inline long raw_open(const char *path, int flags, int mode)
{
    return raw(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, mode);
}

static inline int raw_failed(long result)
{
    return (unsigned long)result >= (unsigned long)-4095L;
}

static inline int64_t now_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (int64_t)t.tv_sec * 1000000000 + t.tv_nsec;
}

/* --- state ------------------------------------------------------------------------------------------ */

enum { DIRECTORY_ROOM = 3072, FILE_ROOM = DIRECTORY_ROOM + 96, CELLS = 4096 };
enum { CLOSED, OPEN, STOPPED };
enum { RCHAR, WCHAR, READ_BYTES, WRITE_BYTES, MAJOR_FAULTS, COUNTERS };

static struct {
    char directory[DIRECTORY_ROOM];
    char host[65];
    int64_t limit;
    int on;
} settings;

struct record { /* dlio_torch.iotrace.recorder.spans.RECORD */
    int64_t start, end, offset, bytes;
    int32_t step;
    uint32_t file, tid, op;
};

/* Bytes that one thread moved; only that thread writes to it. */
struct cell {
    int64_t read, written, mapped, dropped;
} __attribute__((aligned(64)));

/* A file that is growing through shared mappings. */
struct output {
    char path[FILE_ROOM];
    int64_t size;      /* bytes of the file */
    char *next, *end;  /* free part of its last mapping */
    char *before;      /* mapping before the last, and its size */
    size_t before_size, last_size;
};

/* State of this process.  The kernel hands a forked child these pages filled with zeros (MADV_WIPEONFORK),
 * whichever call made the child, so the child starts with the lock free and nothing open. */
struct live {
    _Atomic uint32_t epoch; /* 0: a new process, not started yet */
    _Atomic uint32_t lock;
    _Atomic int state;
    pid_t pid;
    int ended;       /* recording was ended by request */
    int marked;      /* its mark was made */
    int first_image; /* this process began by exec or as the first: its counters began before us */
    uint32_t names;  /* strings announced so far */
    _Atomic uint32_t op_ids[128];
    int64_t allocated; /* bytes of both files */
    int64_t own_read, own_written; /* by our own system calls... */
    int64_t own_charged;           /* ...and what of that is to reach a block device */
    int64_t start[COUNTERS], reaped[COUNTERS];
    _Atomic int64_t rings;
    struct header *header;
    struct output records, strings;
    _Atomic int64_t stray_read, stray_written, stray_mapped, stray_dropped; /* of threads without a cell */
    _Atomic uint32_t cells_used;
    struct cell cells[CELLS];
};

static struct live unborn; /* its epoch stays 0 */
static struct live *L = &unborn;
static uint32_t epochs; /* processes from the first one down to this; a forked child continues the count */

enum { VFORKED = 1, RESOLVING = 2 };

struct thread {
    volatile uint32_t state;
    uint32_t epoch, tid, block;
    /* The next free record of this thread, and how many there are from there on in the upper 16 bits: one word,
     * so that a signal handler that records something finds it in order at any moment. */
    _Atomic uint64_t free;
    struct cell *cell;
};

static __thread struct thread T __attribute__((tls_model("initial-exec")));

/* --- the lock, for everything that is not on the path of each call ---------------------------------- */

typedef uint64_t signals;

static signals block_signals(void)
{
    signals all = ~(signals)0, old = 0;
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, sizeof old);
    return old;
}

static void restore_signals(signals old)
{
    raw(SYS_rt_sigprocmask, SIG_SETMASK, &old, 0, sizeof old);
}

/* Signals are blocked meanwhile: a handler that leaves by longjmp must not leave the lock behind. */
static signals lock(void)
{
    signals old = block_signals();
    while (atomic_exchange_explicit(&L->lock, 1, memory_order_acquire))
        raw(SYS_sched_yield, 0, 0, 0, 0);
    return old;
}

static void unlock(signals old)
{
    atomic_store_explicit(&L->lock, 0, memory_order_release);
    restore_signals(old);
}

/* --- entering a wrapper ----------------------------------------------------------------------------- */

static int start_process(void);

static int enter_slowly(void)
{
    if (T.state & RESOLVING)
        return 0; /* called by the dynamic linker on our behalf */
    if (T.state & VFORKED) {
        if (raw(SYS_getpid, 0, 0, 0, 0) != L->pid)
            return 0; /* the child of vfork: what it would change is its parent's */
        T.state = 0;
    }
    if (L == &unborn || atomic_load(&L->epoch) == 0) {
        if (!start_process())
            return 0;
    }
    uint32_t epoch = atomic_load(&L->epoch);
    if (T.epoch != epoch) {
        uint32_t cell = atomic_fetch_add(&L->cells_used, 1);
        T.cell = cell < CELLS ? &L->cells[cell] : NULL;
        atomic_store(&T.free, 0);
        T.block = 0;
        T.tid = (uint32_t)raw(SYS_gettid, 0, 0, 0, 0);
        T.epoch = epoch;
    }
    return 1;
}

/* Whether this call is to be looked at. */
static inline int enter(void)
{
    uint32_t epoch = atomic_load_explicit(&L->epoch, memory_order_relaxed);
    if (likely(T.epoch == epoch && epoch != 0 && T.state == 0))
        return 1;
    return enter_slowly();
}

#define COUNT(field, amount)                                                                                        \
    do {                                                                                                            \
        if (likely(T.cell != NULL))                                                                                 \
            T.cell->field += (amount);                                                                              \
        else                                                                                                        \
            atomic_fetch_add_explicit(&L->stray_##field, (amount), memory_order_relaxed);                           \
    } while (0)

static inline void count_read(int64_t result)
{
    if (result > 0)
        COUNT(read, result);
}

static inline void count_written(int64_t result)
{
    if (result > 0)
        COUNT(written, result);
}

/* --- the functions behind the wrappers -------------------------------------------------------------- */

static long missing(void)
{
    errno = ENOSYS;
    return -1;
}

/* Allocators map memory and read files when they start; where the dynamic linker itself allocates during
 * our search for the function that they then call, the system call has to do. */
static long as_libc(long result)
{
    if (raw_failed(result)) {
        errno = (int)-result;
        return -1;
    }
    return result;
}

static int plain_open(const char *path, int flags, int mode)
{
    return (int)as_libc(raw(SYS_openat, AT_FDCWD, path, flags, mode));
}

static long plain_read(int fd, void *buffer, size_t size)
{
    return as_libc(raw(SYS_read, fd, buffer, size, 0));
}

static long plain_close(int fd)
{
    return as_libc(raw(SYS_close, fd, 0, 0, 0));
}

static long plain_mmap(void *at, size_t size, int protection, int flags, int fd, off_t offset)
{
    return as_libc(raw6(SYS_mmap, (long)at, (long)size, protection, flags, fd, offset));
}

static long plain_munmap(void *at, size_t size)
{
    return as_libc(raw(SYS_munmap, at, size, 0, 0));
}

/* The address of a symbol, NULL where there is none. */
static void *look_up(void *handle, const char *name)
{
    int error = errno;
    signals old = block_signals();
    uint32_t state = T.state;
    T.state = state | RESOLVING;
    void *found = dlsym(handle, name);
    T.state = state;
    restore_signals(old);
    errno = error;
    return found;
}

static void *search(const char *name)
{
    static const struct {
        const char *name;
        void *function;
    } plain[] = {{"open", plain_open}, {"read", plain_read}, {"close", plain_close}, {"mmap", plain_mmap}, {"munmap", plain_munmap}};
    for (size_t i = 0; (T.state & RESOLVING) && i < sizeof plain / sizeof *plain; i++)
        if (strcmp(name, plain[i].name) == 0)
            return plain[i].function;
    void *found = look_up(RTLD_NEXT, name);
    return found ? found : (void *)missing;
}

/* Looked up at the first call of each wrapper: constructors of other libraries call us before our own ran. */
#define REAL_OF(type, name)                                                                                         \
    static void *cache_of_real;                                                                                     \
    void *real_address = __atomic_load_n(&cache_of_real, __ATOMIC_RELAXED);                                         \
    if (unlikely(real_address == NULL)) {                                                                           \
        real_address = search(name);                                                                                \
        if (!(T.state & RESOLVING))                                                                                 \
            __atomic_store_n(&cache_of_real, real_address, __ATOMIC_RELAXED);                                       \
    }                                                                                                               \
    __typeof__(type) real = (__typeof__(type))real_address
#define REAL(name) REAL_OF(__typeof__(&name), #name)
