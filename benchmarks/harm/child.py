"""Runs cases in a child process with a memory and a time limit, and reports how each case ended.

The child is forked from a process that has imported everything, and does one case after another: a case that kills it
is the last one of that child, and the next child goes on behind it.
"""

from __future__ import annotations

import faulthandler
import json
import os
import resource
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from dlio_torch.errors import DlioError

MEMORY = 256 << 20
"""Bytes by which a case may grow its process: all files are small."""
SECONDS = 60.0
_ADDRESSES = 4 << 30  # of address space above what the process has
_MOST_LINE = 4000

Outcome = str
READ, REFUSED = "read", "refused"
SOUND = (READ, REFUSED)
"""How a case may end; all others are weaknesses of a parser."""


@dataclass(frozen=True)
class Ended:
    """End of a case: its outcome and its text.

    Attributes:
        case: its number.
        outcome: ``read``, ``refused``, ``traceback``, ``memory``, ``killed``, ``hang``, or ``unnamed`` for a refusal
            that does not name the file.
        text: what was said, or where it failed.
    """

    case: int
    outcome: Outcome
    text: str


def run_cases(cases: range, one: Callable[[int], str], seconds: float = SECONDS) -> Iterator[Ended]:
    """Runs the cases in their order and yields the end of each.

    Args:
        cases: numbers of the cases.
        one: does a case, in a child; returns the word that a refusal has to have in it.
        seconds: that a case may take.
    """
    first = cases.start
    while first < cases.stop:
        for ended in _child(range(first, cases.stop), one, seconds):
            yield ended
            first = ended.case + 1


def _child(cases: range, one: Callable[[int], str], seconds: float) -> Iterator[Ended]:
    reading, writing = os.pipe()
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid == 0:
        os.close(reading)
        try:
            _work(cases, one, writing)
        finally:
            os._exit(0)
    os.close(writing)
    current, text, done = cases.start, b"", False
    try:
        while True:
            if not select.select([reading], [], [], seconds)[0]:
                os.kill(pid, signal.SIGKILL)
                yield Ended(current, "hang", f"took more than {seconds:g} s")
                return
            data = os.read(reading, 1 << 16)
            text += data
            *lines, text = text.split(b"\n")
            for line in lines:
                ended = Ended(**json.loads(line))
                yield ended
                current = ended.case + 1
            if not data:
                done = True
                break
    finally:
        os.close(reading)
        if not done:
            os.kill(pid, signal.SIGKILL)
        _, status = os.waitpid(pid, 0)
    if current < cases.stop:
        code = os.waitstatus_to_exitcode(status)
        name = signal.Signals(-code).name if code < 0 else f"exit code {code}"
        if code != 0 or current == cases.start:
            yield Ended(current, "killed", name)


def _work(cases: range, one: Callable[[int], str], writing: int) -> None:
    """Runs the cases in the child, which ends early when its memory has grown."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    faulthandler.disable()
    null = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(null, stream)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open("/proc/self/statm", encoding="ascii") as file:
        addresses = int(file.read().split()[0]) * resource.getpagesize()
    limit = addresses + _ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    # Of what a child inherits the peak is its own: it begins with what it shares.
    before = _peak()
    for case in cases:
        outcome, text = READ, ""
        try:
            one(case)
        except DlioError as error:
            outcome, text = REFUSED, str(error)
            if "emory" in text and "fit into memory" not in text:
                outcome = "memory"
            elif "Traceback" in text or "\n" in text:
                outcome = "traceback"
            elif "damaged" not in text and "case-" not in text:
                outcome = "unnamed"
        except MemoryError as error:
            outcome, text = "memory", _where(error)
        except BaseException as error:
            outcome, text = "traceback", _where(error)
        grown = _peak() - before
        if grown > MEMORY and outcome in SOUND:
            outcome, text = "memory", f"memory grew by {grown >> 20} MiB; {text}"
        line = json.dumps({"case": case, "outcome": outcome, "text": text[:_MOST_LINE]})
        os.write(writing, line.encode() + b"\n")
        if grown > MEMORY // 2:
            return


def _peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def _where(error: BaseException) -> str:
    """Type and message of an error, and its innermost location in the package."""
    frames = traceback.extract_tb(error.__traceback__)
    inner = [frame for frame in frames if "dlio_torch" in frame.filename] or list(frames)
    at = f"{inner[-1].filename.rpartition('dlio_torch/')[2]}:{inner[-1].lineno}" if inner else "?"
    return f"{type(error).__name__} at {at}: {' '.join(str(error).split())[:300]}"


def now() -> float:
    """Seconds of a monotonic clock."""
    return time.monotonic()
