"""Every I/O call of a program tree: the preloaded C library (``native/posix_trace.c``), its use and its accounts.

What the library sees are calls through the C library, in every process that loads it; a program that is started
with an environment of its own making is handed the variables again.  A call that was to open a file and failed is
recorded as ``failed_open``.  A call on a buffered stream (``fread``, ``fprintf`` and so on) gives one row with all
that it moved between the buffer and the kernel, in however many reads or writes; none where the buffer served it.

What it does not see:

* system calls that a program makes by itself (through ``syscall()``, by Go, by io_uring), and those that the C
  library makes for itself (the dynamic linker, time zones, locales, listings of folders after ``opendir``);
* page faults of mapped files: of these only the map and its length;
* ``vmsplice`` and ``tee``, which touch pipes only;
* which descriptors ``close_range`` and ``closefrom`` close: they are forgotten without a row;
* of a file that is named through a symbolic link, calls that open nothing (``stat``, ``rename``), where only the
  folder that the link leads to is included;
* programs that do not load it: statically linked, with changed user (setuid), or with ``LD_PRELOAD`` set to nothing;
* processes of other machines that are started by other means than with the environment of this one.

Of bytes that are missed there is the kernel's word.  What a process's calls moved beyond those that were seen and its
major page faults stand in its account (:class:`~dlio_torch.trace.posix.accounts.ProcessIo`).  The bytes of processes
that did not load the library, and of those that loaded it and then executed a program that does not (exec), are told
by who waits for them (:class:`~dlio_torch.trace.posix.accounts.UnrecordedProcess`): a recorded process, or the one that
started the recording (:mod:`dlio_torch.trace.posix.tree`).  Not told are those that end within ``system`` and
``pclose``, whose parent ignores the ends of its children, that execute a program by ``syscall()``, or that have a
process id namespace of their own.  io_uring and ``splice`` are not in the kernel's counters; rings are counted,
``splice`` is recorded.
"""
