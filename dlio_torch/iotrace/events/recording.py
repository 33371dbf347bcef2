"""The I/O of a program as recorded by one source: a run, a trace, or a log of another tool.

``events`` is the table of :mod:`dlio_torch.iotrace.events.event_table`.  In rows of the layers ``posix``, ``stdio`` and
``mpiio``:

* ``op`` is the name of the call (:func:`dlio_torch.iotrace.events.call_names.normal_name`), for a failed open
  :data:`dlio_torch.iotrace.events.call_names.FAILED_OPEN`;
* ``file`` is the absolute path as the program named it;
* ``offset`` is the first accessed byte (for seeks the new position), -1 without one;
* ``bytes`` is the number of bytes *moved* (the return value), for maps the length; -1 without one, and for failed
  calls;
* ``pid`` and ``tid`` are -1 if the source lacks them;
* ``step`` is -1.

Logs without a record of each call have ``counters`` instead, one row per rank, file and layer.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import pandas as pd

from dlio_torch.iotrace.events.event_table import EventTable

Kind = Literal["run", "trace", "darshan", "dftracer", "strace"]

COUNTERS = (
    "rank",  # -1: summed over the ranks that shared the file
    "layer",
    "file",
    "opens",
    "reads",
    "writes",
    "seeks",
    "bytes_read",
    "bytes_written",
    "read_s",
    "write_s",
    "meta_s",
    "sequential_reads",
    "sequential_writes",
    "consecutive_reads",
    "consecutive_writes",
)
"""Columns of a table of counters; -1 (NaN for times) means not recorded."""


@dataclass(frozen=True)
class Recording:
    """The recorded I/O of one program, or of one run of the emulator.

    Args:
        path: file or folder that it was read from.
        kind: what made it.
        events: every call and span that the source recorded; empty for a log of counters only.
        sees: classes (:data:`dlio_torch.iotrace.events.call_names.CLASSES`) of calls that the source records; a class
            that is not in it was not looked at, which differs from "did not happen".
        world_size: number of ranks, None where unknown.
        runtime_s: wall-clock time of the recorded program, None where unknown.
        trusted_times: whether durations are those of the undisturbed program (strace's are not).
        counters: sums per rank, file and layer, where the source has them; columns :data:`COUNTERS`.
        notes: what a reader of any figure must know, one sentence each (what was skipped and why).
        facts: anything else that identifies the recording: command, host, versions, configuration.
    """

    path: Path
    kind: Kind
    events: EventTable
    sees: frozenset[str]
    world_size: int | None = None
    runtime_s: float | None = None
    trusted_times: bool = True
    counters: pd.DataFrame | None = None
    notes: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def io(self) -> pd.DataFrame:
        """Rows of the I/O calls, of all layers but ``app``."""
        frame = self.events.frame
        rows: pd.DataFrame = frame[frame["layer"] != "app"]
        return rows

    @property
    def spans(self) -> pd.DataFrame:
        """Rows of the spans, of layer ``app``."""
        frame = self.events.frame
        rows: pd.DataFrame = frame[frame["layer"] == "app"]
        return rows
