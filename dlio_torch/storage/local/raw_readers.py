"""Raw readers that measure a device: fio, and threads of this process."""

from __future__ import annotations

import functools
import json
import mmap
import os
import random
import shutil
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass

_PATIENCE_S = 30.0
_RANDOM_SEED = 1
_LOOPS = 1_000_000  # more than the time allows


@dataclass(frozen=True)
class ReadResult:
    """Result of a raw reader: bytes, number of read calls, and seconds."""

    bytes: int
    calls: int
    seconds: float


@functools.cache
def fio_version() -> str | None:
    """Version of fio, such as ``fio-3.33``; ``None`` if fio is not installed."""
    if shutil.which("fio") is None:
        return None
    try:
        done = subprocess.run(["fio", "--version"], capture_output=True, text=True, timeout=_PATIENCE_S, check=True)
    except (OSError, subprocess.SubprocessError):
        return None
    return done.stdout.strip() or None


def read_with_fio(
    path: str,
    pattern: str,
    cached: str,
    request_bytes: int,
    threads: int,
    part: int,
    seconds: float,
    *,
    engine: Sequence[str] = ("psync",),
) -> ReadResult:
    """Read with fio.

    Args:
        path: a file of at least ``threads * part`` bytes.
        pattern: ``sequential`` or ``random``.
        cached: ``cold``, ``warm`` or ``direct``.
        request_bytes: size of one read call.
        threads: number of threads that read at once.
        part: bytes that each thread reads, a multiple of ``request_bytes``.
        seconds: longest time.
        engine: fio's name of the system calls, such as ``io_uring``, and arguments that only it has.

    Raises:
        OSError: fio failed; the message says why.
    """
    command = [
        "fio", "--name=limit", f"--filename={path}", "--readonly", f"--ioengine={engine[0]}", *engine[1:], "--thread",
        f"--rw={'read' if pattern == 'sequential' else 'randread'}", f"--bs={request_bytes}", f"--numjobs={threads}",
        f"--size={part}", f"--offset_increment={part}", f"--runtime={max(1, round(seconds * 1000))}ms",
        f"--direct={int(cached == 'direct')}", "--fadvise_hint=0", "--group_reporting", "--output-format=json",
        # Each loop of a job evicts the job's part first; with --time_based only the first one would.
        f"--invalidate={int(cached == 'cold')}", f"--loops={_LOOPS}",
    ]  # fmt: skip
    variables = {key: value for key, value in os.environ.items() if key != "LD_PRELOAD"}
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=seconds + _PATIENCE_S, check=False, env=variables
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise OSError(f"fio failed: {error}") from error
    if done.returncode != 0:
        lines = (done.stderr or done.stdout).strip().splitlines() or [f"exit {done.returncode}"]
        raise OSError(f"fio failed: {lines[0]}")
    return parse_fio(done.stdout)


def parse_fio(text: str) -> ReadResult:
    """Parses the result from fio's JSON, which has one group of jobs; lines before the JSON are skipped.

    Raises:
        OSError: it holds no result.
    """
    try:
        jobs = json.loads(text[text.index("{") :])["jobs"]
        bytes_ = sum(job["read"]["io_bytes"] for job in jobs)
        calls = sum(job["read"]["total_ios"] for job in jobs)
        milliseconds = max(job["read"]["runtime"] for job in jobs)
        errors = [job["error"] for job in jobs if job.get("error")]
    except (ValueError, KeyError, TypeError) as error:
        raise OSError(f"the output of fio cannot be parsed ({error!r})") from error
    if errors:
        raise OSError(f"fio failed: {os.strerror(errors[0])}")
    if not bytes_ or not milliseconds:
        raise OSError("fio read no bytes")
    return ReadResult(int(bytes_), int(calls), milliseconds / 1000)


def read_with_threads(
    path: str, pattern: str, cached: str, request_bytes: int, threads: int, part: int, seconds: float
) -> ReadResult:
    """Read by threads of this process, with the arguments of :func:`read_with_fio`.

    A read of a few KiB that is cached takes less time than Python's part of the call: small warm requests are
    measured low.

    Raises:
        OSError: the file cannot be read in that way.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | (os.O_DIRECT if cached == "direct" else 0)
    descriptor = os.open(path, flags)
    try:
        workers = [
            _Worker(descriptor, pattern, number * part, part, request_bytes, evicts=cached == "cold")
            for number in range(threads)
        ]
        begin = threading.Barrier(threads + 1)
        crew = [threading.Thread(target=worker.run, args=(begin, seconds), daemon=True) for worker in workers]
        for thread in crew:
            thread.start()
        begin.wait()
        began = time.perf_counter()
        for thread in crew:
            thread.join()
        elapsed = time.perf_counter() - began
    finally:
        os.close(descriptor)
    for worker in workers:
        if worker.error is not None:
            raise worker.error
    return ReadResult(sum(worker.bytes for worker in workers), sum(worker.calls for worker in workers), elapsed)


class _Worker:
    """Thread that reads its part of the file repeatedly until the time is up."""

    def __init__(
        self, descriptor: int, pattern: str, first: int, part: int, request_bytes: int, *, evicts: bool
    ) -> None:
        self._descriptor = descriptor
        self._part = first, part
        self._offsets = list(range(first, first + part, request_bytes))
        if pattern == "random":
            random.Random(_RANDOM_SEED + first).shuffle(self._offsets)
        self._evicts = evicts
        self._buffer = mmap.mmap(-1, request_bytes)  # aligned, as direct reads ask for
        self.bytes = self.calls = 0
        self.error: OSError | None = None

    def run(self, begin: threading.Barrier, seconds: float) -> None:
        """Wait for the other threads and read."""
        self._buffer.write(bytes(len(self._buffer)))  # the memory is there before the first read
        begin.wait()
        end = time.perf_counter() + seconds
        try:
            while True:
                if self._evicts:
                    os.posix_fadvise(self._descriptor, *self._part, os.POSIX_FADV_DONTNEED)
                for offset in self._offsets:
                    self.bytes += os.preadv(self._descriptor, [self._buffer], offset)
                    self.calls += 1
                    if time.perf_counter() >= end:
                        return
        except OSError as error:
            self.error = error
