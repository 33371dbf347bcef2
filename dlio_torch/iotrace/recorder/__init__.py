"""Records spans and I/O calls of a tree of processes; calls by the preloaded library ``native/posix_trace.c``.

The library records calls through the C library, in every process that loads it.  A program that is started with a new
environment gets the recorder's variables again.  A failed open is recorded as ``failed_open``.  A call on a buffered
stream (``fread``, ``fprintf`` and so on) gives one row with all bytes between buffer and kernel, whatever the number of
reads or writes, and no row if the buffer serves it.

The library does not record:

* system calls that a program makes directly (through ``syscall()``, by Go, by io_uring), and calls that the C library
  makes internally (the dynamic linker, time zones, locales, listings of folders after ``opendir``);
* page faults of mapped files, only the map and its length;
* ``vmsplice`` and ``tee``, which touch pipes only;
* the descriptors that ``close_range`` and ``closefrom`` close: they are forgotten without a row;
* calls that open nothing (``stat``, ``rename``) on a file under the name of a symbolic link, if only the link's target
  folder is included;
* programs that do not load the library: statically linked, with changed user (setuid), or with an empty
  ``LD_PRELOAD``;
* processes of other machines that do not inherit this environment.

The kernel's counters cover the missing bytes.  The account of a process
(:class:`~dlio_torch.iotrace.events.posix_accounts.ProcessIo`) holds the bytes beyond its recorded calls, and its major
page faults.  For processes that did not load the library, and for those that loaded it and then executed a program that
does not (exec), the waiting process records the bytes
(:class:`~dlio_torch.iotrace.events.posix_accounts.UnrecordedProcess`): a recorded process, or the one that started the
recording (:mod:`dlio_torch.iotrace.recorder.process_tree`).  Processes are missing if they end within ``system`` or
``pclose``, if their parent ignores the ends of its children, if they execute a program by ``syscall()``, or if they
have a process id namespace of their own.  io_uring and ``splice`` are not in the kernel's counters; rings are counted,
``splice`` is recorded.
"""
