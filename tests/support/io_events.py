"""Event tables for tests of the analysis, from lists of calls; and hypothesis strategies for such lists."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.iotrace.events.call_names import CLASSES
from dlio_torch.iotrace.events.event_files import Process
from dlio_torch.iotrace.events.event_table import COLUMNS, EventTable
from dlio_torch.iotrace.events.recording import Recording

Test = Callable[..., None]


def examples(*strategies: st.SearchStrategy[Any], count: int = 40) -> Callable[[Test], Test]:
    """A test of made-up inputs: enough of them, however slow the machine."""
    return lambda test: settings(max_examples=count, deadline=None)(given(*strategies)(test))


@dataclass(frozen=True)
class Call:
    op: str = "read"
    offset: int = 0
    bytes: int = 10
    start: int = 0
    end: int = 1
    file: str | None = "/data/a"
    rank: int = 0
    pid: int = 100
    tid: int = 100
    layer: str = "posix"


def table(calls: Iterable[Call]) -> pd.DataFrame:
    """An event table in the order of ``calls``."""
    rows = [astuple(call) for call in calls]
    names = ("op", "offset", "bytes", "start_ns", "end_ns", "file", "rank", "pid", "tid", "layer")
    frame = pd.DataFrame(rows, columns=names, dtype=object)
    frame["step"] = -1
    for name in ("op", "file", "layer"):
        frame[name] = pd.Categorical(frame[name])
    for name in ("rank", "pid", "tid", "step"):
        frame[name] = frame[name].astype(np.int32)
    for name in ("offset", "bytes", "start_ns", "end_ns"):
        frame[name] = frame[name].astype(np.int64)
    return frame[list(COLUMNS)]


def recording(frame: pd.DataFrame, **changes: Any) -> Recording:
    processes = tuple(
        Process(rank, pid, f"role of {pid}", None, "host", "clock", 0, 0, {})
        for rank, pid in sorted(set(zip(frame["rank"], frame["pid"], strict=True)))
    )
    given: dict[str, Any] = {"path": Path("x"), "kind": "trace", "sees": frozenset(CLASSES), **changes}
    return Recording(events=EventTable(frame, processes, ()), **given)


@st.composite
def calls(draw: st.DrawFn, max_size: int = 40) -> list[Call]:
    """Calls of few processes, threads and files, crowded in time and space: much overlaps and coincides."""
    small = st.integers(0, 12)
    made = []
    for _ in range(draw(st.integers(0, max_size))):
        start = draw(small)
        rank = draw(st.integers(0, 1))
        made.append(
            Call(
                op=draw(st.sampled_from(["read", "pread", "write", "open", "lseek"])),
                offset=draw(st.integers(-1, 12)),
                bytes=draw(st.integers(-1, 6)),
                start=start,
                end=start + draw(st.integers(0, 8)),
                file=draw(st.sampled_from([None, "/data/a", "/data/b"])),
                rank=rank,
                pid=100 + rank + draw(st.integers(0, 1)),
                tid=draw(st.integers(0, 1)),
            )
        )
    return made
