"""Records the I/O calls of a program and of all processes that it starts.

The preloaded library does this.  Without a compiler to build the library, strace records the calls at about a hundred
times the cost per call; its times do not describe the undisturbed program.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import psutil

from dlio_torch.errors import PreconditionError
from dlio_torch.iotrace.events.path_patterns import NO_FILES, check, with_defaults
from dlio_torch.iotrace.events.torch_call_lines import torch_notes
from dlio_torch.iotrace.recorder.preload import DEFAULT_LIMIT_BYTES, HOOK, PACKAGE, environment
from dlio_torch.iotrace.recorder.process_tree import ProcessTree
from dlio_torch.iotrace.recorder.unrecorded_program import why_not_preloaded
from dlio_torch.native import NativeUnavailable

Method = Literal["auto", "preload", "strace"]

_TRACED = (
    ("open", "openat", "openat2", "creat", "close", "close_range", "dup", "dup2", "dup3", "fcntl"),
    ("read", "pread64", "readv", "preadv", "preadv2", "write", "pwrite64", "writev", "pwritev", "pwritev2"),
    ("lseek", "sendfile", "copy_file_range", "splice", "mmap", "munmap", "mremap", "msync"),
    ("fsync", "fdatasync", "sync_file_range", "fallocate", "fadvise64", "ftruncate", "truncate"),
    ("stat", "lstat", "fstat", "newfstatat", "statx", "access", "faccessat", "faccessat2"),
    ("rename", "renameat", "renameat2", "unlink", "unlinkat", "mkdir", "mkdirat", "rmdir"),
    ("link", "linkat", "symlink", "symlinkat", "getdents64", "io_uring_setup", "execve"),
    ("clone", "clone3", "fork", "vfork", "pipe", "pipe2", "socket", "socketpair", "accept", "accept4"),
)
# The question mark: not every machine has every call.
_TRACE = "trace=" + ",".join(f"?{name}" for names in _TRACED for name in names)
STRACE = ("strace", "-f", "-ff", "-y", "-ttt", "-T", "-s", "0", "-qq", "-e", "signal=none", "-e", _TRACE)
"""Command that writes the calls of each process to a file of its own, without output file and program."""
_PASSED_ON = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
_WAIT_S = 1.0
# Python ignores them, and a program inherits that: without this, `yes | head` would not end silently.
_IGNORED_BY_PYTHON = [signal.SIGPIPE, signal.SIGXFSZ]


@dataclass(frozen=True)
class Recorded:
    """Result of recording a program.

    Attributes:
        exit_code: of the program; 128 and the number of the signal that ended it.
        method: ``preload`` or ``strace``.
        runtime_s: wall-clock time from its start to its end.
        started_time_ns: when it started, since 1970.
        notes: what a reader of the recording must know, one sentence each.
        include: patterns of the files that are recorded; none: all.
        exclude: patterns of those that are left out.  strace records these, too; who reads its text leaves
            them out (:func:`dlio_torch.iotrace.events.path_patterns.selector`).
    """

    exit_code: int
    method: Literal["preload", "strace"]
    runtime_s: float
    started_time_ns: int
    notes: tuple[str, ...]
    include: tuple[str, ...]
    exclude: tuple[str, ...]


def record(
    command: Sequence[str],
    directory: Path,
    *,
    include: Sequence[str] = (),
    exclude: Sequence[str] = (),
    limit_bytes: int = DEFAULT_LIMIT_BYTES,
    method: Method = "auto",
    calls_only: bool = False,
) -> Recorded:
    """Runs a program to its end, with this process's input and output, and records its I/O calls.

    The files are those of :func:`dlio_torch.iotrace.events.event_table.read_events`; strace writes its text to
    ``strace.<pid>``.  SIGINT, SIGTERM, SIGHUP and SIGQUIT reach the program once, whether a terminal sends them
    to all or another process to this one; the recording goes on until the program ends.

    Args:
        command: program and arguments.
        directory: events folder; made where it is missing.
        include: see :func:`~dlio_torch.iotrace.recorder.preload.environment`.
        exclude: see there.
        limit_bytes: see there.
        method: ``auto`` is ``preload``, or ``strace`` where no library can be had.
        calls_only: record system calls only, not what the program asks torch for.

    Raises:
        PreconditionError: the program cannot be started, or not be recorded by this method; or the folder
            cannot be written.
        ConfigError: a pattern cannot be used.
    """
    directory = directory.absolute()
    try:
        directory.mkdir(parents=True, exist_ok=True)
        (directory / ".writable").touch()
        (directory / ".writable").unlink()
    except OSError as error:
        raise PreconditionError(
            f"calls cannot be recorded in {directory}: {error.strerror}", hint="choose another folder with --output"
        ) from error
    notes: list[str] = []
    if not calls_only:
        exclude = [*exclude, str(PACKAGE)]
    all_excluded = with_defaults(include, exclude)
    if method in ("auto", "preload"):
        try:
            hook = None if calls_only else HOOK
            variables = environment(directory, include=include, exclude=exclude, limit_bytes=limit_bytes, hook=hook)
        except NativeUnavailable as error:
            if method == "preload" or why_no_strace() is not None:
                raise PreconditionError(
                    f"calls cannot be recorded: {error}", hint="install a C compiler (gcc) or strace"
                ) from error
            notes.append(f"recorded with strace, because the recorder's library is not available: {error}")
        else:
            tree = ProcessTree(directory)
            with tree.adopting():
                done = _run(command, {**os.environ, **variables}, _itself, tree)
            notes += tree.close()
            _remove_marks(directory)
            if not any(directory.glob("*.posix")):
                notes += [why_not_preloaded(command[0]), *tree.said()]
            notes += torch_notes(directory)
            return _recorded("preload", done, notes, include, all_excluded)
    problem = why_no_strace()
    if problem is not None:
        raise PreconditionError(
            f"calls cannot be recorded: {problem}",
            hint=("install strace, or install a C compiler and set --method preload"),
        )
    notes.append(
        "strace slows down each call about a hundredfold: durations and overlaps are not those of the undisturbed "
        "program"
    )
    if not calls_only:
        notes.append("strace does not show what a program asks torch for: indices, batches, epochs, saved states")
    check("include", include)
    check("exclude", exclude)
    strace = [*STRACE, "--seccomp-bpf", "-o", str(directory / "strace")]
    done = _run([*strace, "--", *command], os.environ, _program_of)
    return _recorded("strace", done, notes, include, [*all_excluded, *NO_FILES])


@dataclass(frozen=True)
class _Done:
    exit_code: int
    runtime_s: float
    started_time_ns: int


def _recorded(
    method: Literal["preload", "strace"],
    done: _Done,
    notes: Sequence[str],
    include: Sequence[str],
    exclude: Sequence[str],
) -> Recorded:
    return Recorded(
        exit_code=done.exit_code,
        method=method,
        runtime_s=done.runtime_s,
        started_time_ns=done.started_time_ns,
        notes=tuple(notes),
        include=tuple(include),
        exclude=tuple(exclude),
    )


def _remove_marks(directory: Path) -> None:
    """Removes the marks of processes that loaded the library."""
    for mark in directory.glob(".*-*"):
        if mark.name.rpartition("-")[2].isdigit():
            mark.unlink(missing_ok=True)


def _run(
    command: Sequence[str],
    variables: Mapping[str, str],
    receiver: Callable[[int], int],
    tree: ProcessTree | None = None,
) -> _Done:
    """Starts a program, forwards signals to it, and waits for its end.

    Args:
        command: program and arguments.
        variables: its environment.
        receiver: the process that signals are for, by the process that was started.
        tree: looks at the processes that end; None: nobody does.
    """
    with _blocked({*_PASSED_ON, signal.SIGCHLD}) as former:
        started_time_ns, start_ns = time.time_ns(), time.monotonic_ns()
        try:
            pid = os.posix_spawnp(
                command[0], list(command), dict(variables), setsigmask=former, setsigdef=_IGNORED_BY_PYTHON
            )
        except OSError as error:
            raise PreconditionError(
                f"the program {command[0]} cannot be started: {error.strerror}",
                hint="give an executable program after --",
            ) from error
        while True:
            if tree is not None:
                tree.end_orphans(pid)
            if os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None:
                break
            # With a time limit: another thread of this process may be the one that gets SIGCHLD.
            received = signal.sigtimedwait({*_PASSED_ON, signal.SIGCHLD}, _WAIT_S)
            # A positive code: the terminal sent it, to the program as well.
            if received is not None and received.si_signo != signal.SIGCHLD and received.si_code <= 0:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(receiver(pid), received.si_signo)
        runtime_s = (time.monotonic_ns() - start_ns) / 1e9
        if tree is not None:
            tree.record_unrecorded(pid)
        status = os.waitpid(pid, 0)[1]
        if tree is not None:
            tree.end_orphans(pid)
    code = os.waitstatus_to_exitcode(status)
    return _Done(128 - code if code < 0 else code, runtime_s, started_time_ns)


@contextlib.contextmanager
def _blocked(signals: set[signal.Signals]) -> Iterator[set[int]]:
    former = signal.pthread_sigmask(signal.SIG_BLOCK, signals)
    try:
        yield {int(number) for number in former}
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, former)


def _itself(pid: int) -> int:
    return pid


def _program_of(strace: int) -> int:
    """Process id of the program that strace runs, because strace itself does not forward signals."""
    try:
        return psutil.Process(strace).children()[0].pid
    except (psutil.Error, IndexError):
        return strace


def why_no_strace() -> str | None:
    """Reason why strace cannot be used; None if it can be."""
    program = shutil.which("strace")
    if program is None:
        return "strace is not installed"
    tried = subprocess.run(
        [program, "-f", "--seccomp-bpf", "-e", "trace=close", "-o", os.devnull, "true"],
        capture_output=True,
        check=False,
    )
    if tried.returncode == 0:
        return None
    lines = tried.stderr.decode(errors="replace").strip().splitlines()
    return lines[-1] if lines else f"strace exited with status {tried.returncode}"
