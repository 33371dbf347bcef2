"""Timers that wait until a deadline or use CPU time without holding the interpreter lock.

Deadlines are nanoseconds of ``CLOCK_MONOTONIC``.  On Linux that is the clock of both
:func:`time.monotonic_ns` and :func:`time.perf_counter_ns`.

:class:`NativeTimer` is the real one.  :class:`PythonTimer` replaces it where there is no C compiler:
it releases the lock too, but its times are not exact (``exact`` is false).

Every wait is cut into slices of 50 ms (100 ms in Python) between which the interpreter runs its
signal handlers, so an interrupt ends even a long wait at once.
"""

from __future__ import annotations

import ctypes
import os
import time
import zlib
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from dlio_torch import native
from dlio_torch.errors import PreconditionError

DEFAULT_SPIN_TAIL_NS = 100_000
SLICE_NS = 100_000_000
PIECE_NS = 50_000
# zlib releases the interpreter lock only for buffers above 5 KiB.
_LEAST_BUFFER_BYTES = 8192


class Timer(Protocol):
    """Protocol of a timer; with several busy threads, one thread at a time may call ``spin_until``.

    Attributes:
        exact: whether times are good to some microseconds on an idle core.
        implementation: origin of the code, for reports.
    """

    exact: bool
    implementation: str

    def sleep_until(self, deadline_ns: int) -> int:
        """Leave the CPU idle until the deadline; returns the time reached, never before it."""

    def spin_until(self, deadline_ns: int) -> int:
        """Keep the timer's number of threads busy until the deadline; returns the time reached."""

    def burn(self, cpu_ns: int) -> int:
        """Use ``cpu_ns`` of CPU time in the calling thread; returns the CPU time used, never less."""

    def close(self) -> None:
        """End the timer's threads."""


def open_timer(*, threads: int = 1, spin_tail_ns: int = DEFAULT_SPIN_TAIL_NS) -> Timer:
    """Returns the most precise timer of this machine.

    Args:
        threads: threads that :meth:`Timer.spin_until` keeps busy, the calling one among them.
        spin_tail_ns: last part of a sleep, which is spun.
    """
    try:
        library, library_file = native.open_library("spin")
    except native.NativeUnavailable as error:
        return PythonTimer(f"{str(error).partition(':')[0]}: Python fallback", threads=threads)
    return NativeTimer(library, library_file.origin, threads=threads, spin_tail_ns=spin_tail_ns)


class NativeTimer:
    """Timer in C (``native/spin.c``), see :class:`Timer`.

    Args:
        library: the loaded ``spin`` library.
        implementation: origin of the library.
        threads: as :func:`open_timer`; helper threads start with the first spin of a process.
        spin_tail_ns: as :func:`open_timer`.
    """

    exact = True

    def __init__(self, library: ctypes.CDLL, implementation: str, *, threads: int, spin_tail_ns: int) -> None:
        self.implementation = implementation
        self._tail = ctypes.c_int64(spin_tail_ns)
        self._sleep = _bind(library.dlio_sleep_until, ctypes.c_int64, ctypes.c_int64)
        self._spin = _bind(library.dlio_spin_until, ctypes.c_int64)
        self._burn = _bind(library.dlio_burn_until, ctypes.c_int64)
        self._pool_spin = _bind(library.dlio_pool_spin_until, ctypes.c_void_p, ctypes.c_int64)
        self._pool_destroy = library.dlio_pool_destroy
        self._pool_destroy.argtypes, self._pool_destroy.restype = (ctypes.c_void_p,), None
        self._threads = threads
        self._pool = ctypes.c_void_p()
        if threads > 1:
            create = library.dlio_pool_create
            create.argtypes, create.restype = (ctypes.c_int,), ctypes.c_void_p
            self._pool = ctypes.c_void_p(create(threads - 1))
            if not self._pool:
                raise MemoryError("there is no memory for a pool of busy threads")

    def sleep_until(self, deadline_ns: int) -> int:
        """See :meth:`Timer.sleep_until`; the last ``spin_tail_ns`` are spun."""
        now: int = self._sleep(deadline_ns, self._tail)
        while now < deadline_ns:
            now = self._sleep(deadline_ns, self._tail)
        return now

    def spin_until(self, deadline_ns: int) -> int:
        """See :meth:`Timer.spin_until`.

        Raises:
            PreconditionError: the system refuses another thread.
        """
        now: int
        if not self._pool:
            now = self._spin(deadline_ns)
            while now < deadline_ns:
                now = self._spin(deadline_ns)
            return now
        now = self._pool_spin(self._pool, deadline_ns)
        while now < deadline_ns:
            if now < 0:
                raise PreconditionError(
                    f"compute.threads={self._threads}: a thread could not be started: {os.strerror(-now)}",
                    hint="lower compute.threads, or raise the limit of processes and threads (ulimit -u)",
                )
            now = self._pool_spin(self._pool, deadline_ns)
        return now

    def burn(self, cpu_ns: int) -> int:
        """See :meth:`Timer.burn`; the clock is the thread's CPU time."""
        start = time.thread_time_ns()
        deadline = start + cpu_ns
        now: int = start
        while now < deadline:
            now = self._burn(deadline)
        return now - start

    def close(self) -> None:
        """See :meth:`Timer.close`; a second call has no effect."""
        pool, self._pool = self._pool, ctypes.c_void_p()
        if pool:
            self._pool_destroy(pool)

    def __del__(self) -> None:
        # Absent where __init__ failed.
        if getattr(self, "_pool", None):
            self.close()


def _bind(function: ctypes._NamedFuncPointer, *arguments: type) -> ctypes._NamedFuncPointer:
    """Declares the argument types of the C function once, so that calls do not guess them."""
    function.argtypes = arguments
    function.restype = ctypes.c_int64
    return function


class PythonTimer:
    """Timer without native code, precise to about 0.1 ms; see :class:`Timer`.

    It is busy with checksums of a buffer that take some 50 µs each, during which the interpreter
    lock is free.

    Args:
        implementation: reason why there is no native code.
        threads: as :func:`open_timer`.
    """

    exact = False

    def __init__(self, implementation: str, *, threads: int = 1) -> None:
        self.implementation = implementation
        self._threads = threads
        self._buffer = bytes(_buffer_bytes(PIECE_NS))
        self._pool: tuple[int, ThreadPoolExecutor] | None = None

    def sleep_until(self, deadline_ns: int) -> int:
        """See :meth:`Timer.sleep_until`; overshoots as the system's timer does, by some 0.1 ms."""
        while (left := deadline_ns - time.monotonic_ns()) > 0:
            time.sleep(min(left, SLICE_NS) / 1e9)
        return time.monotonic_ns()

    def spin_until(self, deadline_ns: int) -> int:
        """See :meth:`Timer.spin_until`."""
        while (now := time.monotonic_ns()) < deadline_ns:
            part = min(deadline_ns, now + SLICE_NS)
            for _ in range(self._threads - 1):
                self._executor().submit(self._be_busy, part)
            self._be_busy(part)
        return now

    def burn(self, cpu_ns: int) -> int:
        """See :meth:`Timer.burn`."""
        start = time.thread_time_ns()
        while (used := time.thread_time_ns() - start) < cpu_ns:
            zlib.crc32(self._buffer)
        return used

    def close(self) -> None:
        """See :meth:`Timer.close`."""
        pool, self._pool = self._pool, None
        if pool is not None and pool[0] == os.getpid():
            pool[1].shutdown()

    def _be_busy(self, deadline_ns: int) -> None:
        while time.monotonic_ns() < deadline_ns:
            zlib.crc32(self._buffer)

    def _executor(self) -> ThreadPoolExecutor:
        # Threads do not survive a fork: the child makes its own.
        if self._pool is None or self._pool[0] != os.getpid():
            self._pool = (os.getpid(), ThreadPoolExecutor(self._threads - 1, thread_name_prefix="dlio-compute"))
        return self._pool[1]


def _buffer_bytes(piece_ns: int) -> int:
    """Size of a buffer whose checksum takes about ``piece_ns``."""
    probe = bytes(65536)
    times = []
    for _ in range(5):
        start = time.perf_counter_ns()
        zlib.crc32(probe)
        times.append(time.perf_counter_ns() - start)
    return max(_LEAST_BUFFER_BYTES, len(probe) * piece_ns // max(min(times), 1))
