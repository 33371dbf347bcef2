"""Inspection of the user's files in a separate process, because some libraries crash on a damaged file.

HDF5, netCDF, Silo and ADIOS2 trust the addresses in a file.  When one of them ends the process, or loops endlessly over
circular addresses, the error names that file.  The process is forked, so it costs some milliseconds,
once for all files; what it sees is what is counted here.
"""

from __future__ import annotations

import os
import pickle
import resource
import signal
import warnings
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import IO, Any, TypeVar

from dlio_torch.errors import DataError, DlioError

Result = TypeVar("Result")

CPU_S = 30
"""CPU time in seconds that the inspection of one file may take."""

_HINT = "the file is damaged; replace the file, or remove it from dataset.path"


def inspect_files(inspect: Callable[[Path], Result], paths: Sequence[Path], *, apart: bool) -> list[Result]:
    """Inspects each file.

    Args:
        inspect: looks at a file; its result can be pickled.
        paths: the files.
        apart: in a process of its own.

    Raises:
        DataError: a file is refused, or ended the process that looked at it.
    """
    if not apart or not paths:
        return [inspect(path) for path in paths]
    reading, writing = os.pipe()
    with warnings.catch_warnings():
        # Of threads in a process that forks: the child uses none of them, and loader workers are forked as well.
        warnings.simplefilter("ignore", DeprecationWarning)
        pid = os.fork()
    if pid == 0:
        code = 1
        try:
            os.close(reading)
            with open(writing, "wb") as answers:
                _inspect_all(inspect, paths, answers)
            code = 0
        finally:
            os._exit(code)
    os.close(writing)
    infos: list[Result] = []
    status: int | None = None
    try:
        with open(reading, "rb") as answers:
            infos += _answers(answers)
        status = os.waitpid(pid, 0)[1]
    finally:
        if status is None:  # refused, or interrupted
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
    if len(infos) < len(paths):
        raise DataError(f"{paths[len(infos)]}: {_how_it_ended(status)}", hint=_HINT)
    return infos


def _inspect_all(inspect: Callable[[Path], Any], paths: Sequence[Path], answers: IO[bytes]) -> None:
    """Runs in the child process: inspects each file up to the first error and sends the results."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends it
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    for number in (signal.SIGSEGV, signal.SIGBUS, signal.SIGFPE, signal.SIGABRT):
        signal.signal(number, signal.SIG_DFL)
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 2)  # what a library or the C library says when it dies
    resource.setrlimit(resource.RLIMIT_CORE, (0, resource.getrlimit(resource.RLIMIT_CORE)[1]))
    most = resource.getrlimit(resource.RLIMIT_CPU)[1]
    for path in paths:
        used = resource.getrusage(resource.RUSAGE_SELF)
        limit = int(used.ru_utime + used.ru_stime) + CPU_S
        resource.setrlimit(resource.RLIMIT_CPU, (limit if most == resource.RLIM_INFINITY else min(limit, most), most))
        answer: Any
        try:
            answer = inspect(path)
        except Exception as error:
            answer = error
        try:
            text = pickle.dumps(answer)
        except Exception:
            text = pickle.dumps(RuntimeError(f"{type(answer).__name__}: {answer}"))
        answers.write(text)
        answers.flush()
        if isinstance(answer, Exception):
            return


def _answers(answers: IO[bytes]) -> Iterator[Any]:
    """Yields the results of the child process until it ends.

    Raises:
        Exception: what looking at a file raised.
    """
    while True:
        try:
            answer = pickle.load(answers)
        except (EOFError, pickle.UnpicklingError):
            return
        if isinstance(answer, DlioError):
            raise answer
        if isinstance(answer, Exception):
            raise RuntimeError(f"{type(answer).__name__}: {answer}") from answer
        yield answer


def _how_it_ended(status: int | None) -> str:
    code = os.waitstatus_to_exitcode(status or 0)
    if code == -signal.SIGXCPU:
        return f"the inspection of the file takes more than {CPU_S} s of CPU time"
    if code == -signal.SIGKILL:
        return "the process that inspected the file was killed, possibly because memory was exhausted"
    name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    return f"the library that reads the file crashed ({name})"
