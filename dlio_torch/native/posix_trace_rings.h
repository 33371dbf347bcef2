/* io_uring moves bytes that no call shows and that the kernel counts for nobody: say at least that a ring was
 * there.  Rings are noticed where they are made through syscall(), and among the open descriptors at the end. */

static void find_rings_locked(void)
{
    static char entries[4096]; /* under the lock */
    long folder = raw_open("/proc/self/fd", O_RDONLY | O_DIRECTORY, 0);
    if (raw_failed(folder))
        return;
    int64_t open_rings = 0;
    for (;;) {
        long size = raw(SYS_getdents64, folder, entries, sizeof entries, 0);
        if (raw_failed(size) || size == 0)
            break;
        for (long at = 0; at < size;) {
            static const char ring[] = "anon_inode:[io_uring]";
            uint16_t length;
            char target[sizeof ring] = "";
            memcpy(&length, entries + at + 16, sizeof length); /* struct linux_dirent64: name at byte 19 */
            raw(SYS_readlinkat, folder, entries + at + 19, target, sizeof target - 1);
            open_rings += strcmp(target, ring) == 0;
            at += length;
        }
    }
    raw(SYS_close, folder, 0, 0, 0);
    if (atomic_load(&L->rings) < open_rings)
        atomic_store(&L->rings, open_rings);
}

long syscall(long number, ...)
{
    va_list more;
    long a[6];
    va_start(more, number);
    for (int i = 0; i < 6; i++)
        a[i] = va_arg(more, long);
    va_end(more);
    if (number == SYS_close && enter())
        take_descriptor((int)a[0]);
    long result = raw6(number, a[0], a[1], a[2], a[3], a[4], a[5]);
    if (raw_failed(result)) {
        errno = (int)-result;
        return -1;
    }
    if (number == SYS_io_uring_setup && enter())
        atomic_fetch_add(&L->rings, 1);
    return result;
}
