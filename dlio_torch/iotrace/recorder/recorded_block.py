"""Records the I/O calls of this process during a block of its code.

A process that was started with the recorder's library records itself.  Otherwise strace attaches to it, which slows
down each call about a hundredfold: counts, sizes and orders are those of the undisturbed program, times are not.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlio_torch.errors import ConfigError, PreconditionError
from dlio_torch.iotrace.events.path_patterns import NO_FILES, check, with_defaults
from dlio_torch.iotrace.recorder.record_program import STRACE, why_no_strace
from dlio_torch.iotrace.recorder.self_recording import is_waiting, patterns, recording

_COMMAND = "command.json"  # by which a folder is known as a recording
_ATTACH_S = 10.0
_PR_SET_PTRACER, _PR_ANY, _PR_NONE = 0x59616D61, ctypes.c_ulong(-1), ctypes.c_ulong(0)
_SLOW = (
    "strace slows down each call about a hundredfold: durations and overlaps are not those of the undisturbed program"
)


@contextlib.contextmanager
def record(
    path: Path | str, *, include: Sequence[Path | str] = (), exclude: Sequence[Path | str] = ()
) -> Iterator[Path]:
    """Context in which the I/O calls of this process, and of processes that it starts meanwhile, are recorded.

    ``python -m dlio_torch report PATH`` and ``dlio_torch.load_run(PATH)`` read the recording afterwards.

    Args:
        path: folder of the recording, new or empty.
        include: files and folders that are recorded; none: all but those of programs and devices.
        exclude: files and folders that are left out.

    Yields:
        The folder.

    Raises:
        PreconditionError: the folder holds something, or neither the library nor strace can record this process.
        ConfigError: the path or a pattern cannot be used.
    """
    if not isinstance(path, (str, Path)):
        raise ConfigError(f"path={path!r}: expected the path of a folder", hint='write record("mine")')
    folder = Path(path).expanduser().absolute()
    events = folder / "events"
    included, excluded = _patterns("include", include), _patterns("exclude", exclude)
    _claim(folder, events)
    started_time_ns, begun = time.time_ns(), time.monotonic()
    cwd, exit_code = os.getcwd(), 1
    with contextlib.ExitStack() as stack:
        is_preloaded = _begin(stack, events, included, excluded)
        try:
            yield folder
            exit_code = 0
        finally:
            runtime_s = time.monotonic() - begun
            # Also of a block that an exception ended: its calls are recorded.
            left_out = with_defaults(included, excluded)
            about = {
                "command": sys.orig_argv,
                "cwd": cwd,
                "started_time_ns": started_time_ns,
                "runtime_s": runtime_s,
                "exit_code": exit_code,
                "method": "preload" if is_preloaded else "strace",
                "notes": ["a block of a program was recorded", *([] if is_preloaded else [_SLOW])],
                "include": included,
                "exclude": left_out if is_preloaded else [*left_out, *NO_FILES],
            }
            stack.close()
            (folder / _COMMAND).write_text(json.dumps(about, indent=2) + "\n", encoding="utf-8")


def _patterns(name: str, places: Sequence[Path | str]) -> list[str]:
    if isinstance(places, (str, Path)):
        raise ConfigError(f"{name}={places!r}: expected a list of paths", hint=f"write {name}=[{str(places)!r}]")
    names = patterns(places)
    check(name, names)
    return names


def _begin(stack: contextlib.ExitStack, events: Path, include: list[str], exclude: list[str]) -> bool:
    """Begin to record until ``stack`` is closed; returns whether the recorder's library does it, and not strace."""
    if is_waiting():
        with contextlib.suppress(PreconditionError):  # it records once in the life of a process
            stack.enter_context(recording(events, rank=0, include=include, exclude=exclude))
            return True
    stack.enter_context(_attached(events))
    return False


def _claim(folder: Path, events: Path) -> None:
    try:
        events.mkdir(parents=True, exist_ok=True)
        occupied = any(events.iterdir()) or (folder / _COMMAND).exists()
    except OSError as error:
        raise PreconditionError(
            f"calls cannot be recorded in {folder}: {error.strerror}", hint="choose another folder"
        ) from error
    if occupied:
        raise PreconditionError(f"{folder} holds a recording", hint="choose another folder, or remove this one")


@contextlib.contextmanager
def _attached(events: Path) -> Iterator[None]:
    """Context in which strace traces all threads of this process and new processes."""
    if (problem := why_no_strace()) is not None:
        raise PreconditionError(
            f"calls of this process cannot be recorded: {problem}",
            hint="install strace, or record the whole program: python -m dlio_torch trace -- PROGRAM",
        )
    # Some kernels let only parents trace (Yama): any process of this user may until the end of the block.
    process = ctypes.CDLL(None)
    process.prctl(_PR_SET_PTRACER, _PR_ANY, 0, 0, 0)
    command = [*STRACE, "-o", str(events / "strace"), "-p", str(os.getpid())]
    tracer = subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        _await_tracer(tracer)
        yield
    finally:
        tracer.send_signal(signal.SIGINT)  # it detaches
        _, said = tracer.communicate()
        process.prctl(_PR_SET_PTRACER, _PR_NONE, 0, 0, 0)
    if not any(events.iterdir()):
        raise PreconditionError(
            f"strace recorded nothing: {said.decode(errors='replace').strip()}",
            hint="record the whole program: python -m dlio_torch trace -- PROGRAM",
        )


def _await_tracer(tracer: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + _ATTACH_S
    while not _traced():
        if tracer.poll() is not None or time.monotonic() > deadline:
            tracer.kill()
            said = (tracer.communicate()[1] or b"").decode(errors="replace").strip().splitlines()
            raise PreconditionError(
                f"strace cannot attach to this process: {said[-1] if said else 'it gave no reason'}",
                hint="record the whole program: python -m dlio_torch trace -- PROGRAM",
            )
        time.sleep(0.01)


def _traced() -> bool:
    """Whether a tracer is attached to every thread of this process."""
    for task in Path("/proc/self/task").iterdir():
        with contextlib.suppress(OSError):
            text = (task / "status").read_text(encoding="ascii", errors="replace")
            if "\nTracerPid:\t0\n" in text:
                return False
    return True
