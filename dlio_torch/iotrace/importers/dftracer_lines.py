"""Translates one event of a DFTracer trace into the columns of the event table.

Versions differ in how they write an event, not in what they write::

    before 1.0.4   {"id":"0","name":"open64","cat":"POSIX","pid":"2315",...,"ph":"X","args":{"hostname":..,"fname":..}}
    1.0.4 to 2     the same with numbers as numbers, and fhash/hhash instead of names; events FH, HH and SH of
                   phase "M" tell the names
    after that     phases are numbers (1: complete, 2: counter, 3: aggregated, 4: metadata)
"""

from __future__ import annotations

import re
from typing import Any

from dlio_torch.iotrace.events import call_names
from dlio_torch.iotrace.importers.event_rows import APP, MPIIO, POSIX, STDIO

COMPLETE = ("X", 1)
METADATA = ("M", 4)

_LAYERS = {"posix": POSIX, "stdio": STDIO, "mpiio": MPIIO, "mpi-io": MPIIO}
# Calls on processes that DFTracer files under POSIX; they touch no file.
_NO_IO = frozenset(("fork", "vfork", "execl", "execv", "execve", "execvp", "execvpe", "posix_spawn", "umask"))
_MPIIO = {"open": "file_open", "close": "file_close", "seek": "seek", "sync": "fsync"}
_MPI_FILE = re.compile(r"mpi_file_i?(?P<verb>[a-z]+)")
# Events of an application that mean what a span of this package means: DLIO's names, and those of the
# ``dftracer.python.ai`` decorators (category, name).
_SPANS = (
    (re.compile(r"data_?loader\W(loop\.iter|fetch(\.iter)?)"), "fetch"),
    (re.compile(r".*\W\w*framework\.compute|compute\W(forward|backward|step|compute)|.*\Wcompute"), "compute"),
    (re.compile(r"reader\W\w+\.get_sample"), "read"),
    (re.compile(r"reader\W\w+\.open"), "open"),
    (re.compile(r"reader\W\w+\.preprocess|data\Wpreprocess"), "preprocess"),
    (re.compile(r"checkpoint\W\w+\.save_checkpoint|checkpoint\Wcapture"), "checkpoint"),
    (re.compile(r"comm(unication)?\Wall_?reduce"), "allreduce"),
    (re.compile(r"device\Wtransfer"), "h2d"),
)


def place(category: str, name: str) -> tuple[int, str]:
    """Layer and operation of an event."""
    layer = _LAYERS.get(category.lower(), APP)
    if layer == APP or name in _NO_IO:
        return APP, span_name(category, name)
    if layer != MPIIO:
        return layer, call_names.normal_name(name)
    match = _MPI_FILE.match(name.lower())
    if match is None:
        return APP, name
    verb = match["verb"]
    if verb in ("read", "write"):
        return MPIIO, f"file_{verb}"
    return MPIIO, _MPIIO.get(verb, name.lower())


def span_name(category: str, name: str) -> str:
    """The recorder's name for a span of the same meaning, else the event's name."""
    text = f"{category}:{name}".lower()
    return next((span for pattern, span in _SPANS if pattern.fullmatch(text)), name)


def touched(op: str, kind: str, args: dict[str, Any]) -> tuple[int, int]:
    """Offset and bytes of a call; -1 if the trace does not contain them.

    Args:
        op: its normal name.
        kind: its class.
        args: the arguments that the trace has.
    """
    if kind in (call_names.READ, call_names.WRITE):
        moved = number(args, "ret")
        if op in ("fread", "fwrite"):
            # They return items, not bytes.
            moved = moved * number(args, "size") if moved >= 0 and number(args, "size") >= 0 else -1
        elif op in ("fgets", "fputs"):
            moved = number(args, "ret_len", "str_len")
        return number(args, "offset"), moved
    if kind == call_names.SEEK:
        # fseek returns 0, lseek the new position.
        from_start = op != "lseek" and number(args, "whence") == 0
        return number(args, "offset") if from_start else (number(args, "ret") if op == "lseek" else -1), -1
    if kind == call_names.MAP:
        return number(args, "offset"), number(args, "length", "len")
    return -1, -1


def has_failed(args: dict[str, Any]) -> bool:
    """Whether a call that returns a descriptor failed."""
    try:
        return int(args["ret"]) < 0
    except (KeyError, TypeError, ValueError, OverflowError):
        return False


def number(args: dict[str, Any], *names: str) -> int:
    """The first present argument of several, at least -1; -1 if none is present."""
    for name in names:
        if name in args:
            try:
                return max(int(args[name]), -1)
            except (TypeError, ValueError, OverflowError):
                return -1
    return -1


def nanoseconds(stamp: int) -> int:
    """Nanoseconds per unit of a time stamp, inferred from its size: stamps count since 1970 (or are small).

    DFTracer writes microseconds unless DFTRACER_TIME_METRIC says otherwise.
    """
    if stamp > 10**17:
        return 1
    if stamp > 10**14 or stamp < 10**9:
        return 1_000
    return 1_000_000 if stamp > 10**11 else 1_000_000_000
