"""Data of a report, and the figures that several of its sections share."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd

from dlio_torch.analysis.cache import COLD, WARM
from dlio_torch.analysis.call_findings import CallFinding, call_findings
from dlio_torch.config.yamlfile import parse_document
from dlio_torch.errors import ConfigError
from dlio_torch.iotrace.events.call_names import CLASSES, READ, WRITE, class_codes
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures import io_tables
from dlio_torch.iotrace.figures.access_order import Shares, shares
from dlio_torch.iotrace.figures.breakdown import is_span, runtime
from dlio_torch.iotrace.figures.intervals import intersection, length, union
from dlio_torch.iotrace.figures.io_metrics import bandwidth, io_time, select, sizes_by_class
from dlio_torch.iotrace.figures.io_time import Bandwidth, IoTime
from dlio_torch.iotrace.figures.transfer_sizes import Sizes
from dlio_torch.train.steps import EVAL
from dlio_torch.units import format_duration, format_size, percent

GET_CALLS = (
    "I/O calls were not recorded. Set trace.posix=true to record them in a run, or record any other program with "
    "python -m dlio_torch trace -- CMD."
)
_LEAD = 50  # of the time that an axis shows, before the first span of training
_GET_RUN = "Only a run of python -m dlio_torch records these data; logs of other programs do not contain them."


@dataclass(frozen=True)
class View:
    """A recording and the other files of its run.

    Args:
        recording: events, counters and notes.
        summary: content of ``summary.json``, None where there is none.
        environment: content of ``environment.json``, likewise.
        config: the resolved configuration as YAML text, likewise.
        sources: where each value came from, by dotted key.
        steps: records of steps with a column ``rank``, likewise.
        command: content of ``command.json``: what the verb ``trace`` ran and how it ended, likewise.
        missing: what a whole run has and this one lacks, one sentence each.
        standalone: content of ``summary.json`` of the verb ``checkpoint``, which has no steps.
    """

    recording: Recording
    summary: Mapping[str, Any] | None = None
    environment: Mapping[str, Any] | None = None
    config: str | None = None
    sources: Mapping[str, str] | None = None
    steps: pd.DataFrame | None = None
    command: Mapping[str, Any] | None = None
    missing: tuple[str, ...] = ()
    standalone: Mapping[str, Any] | None = None

    @property
    def get_run(self) -> str:
        """Hint on a page about a recording of another program: how to get data that only a run of dlio_torch has."""
        return (
            ('This run did not record these data; see the section "Missing data" for the reason.')
            if self.recording.kind == "run"
            else _GET_RUN
        )

    @cached_property
    def calls(self) -> pd.DataFrame:
        """The I/O calls, with each byte counted at one layer only."""
        return select(self.recording)

    @cached_property
    def moves(self) -> pd.DataFrame:
        """The reads and writes among the I/O calls."""
        codes = class_codes(self.calls)
        rows: pd.DataFrame = self.calls[(codes == CLASSES.index(READ)) | (codes == CLASSES.index(WRITE))]
        return rows

    @cached_property
    def writes(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Whether each row of :attr:`moves` is a write."""
        writes: np.ndarray[Any, np.dtype[np.bool_]] = class_codes(self.moves) == CLASSES.index(WRITE)
        return writes

    @cached_property
    def io_time(self) -> IoTime:
        """Time spent in I/O calls."""
        return io_time(self.calls, runtime_s=self.recording.runtime_s, ranks=self.recording.world_size)

    @cached_property
    def sizes(self) -> dict[str, Sizes]:
        """Transfer sizes of reads, of writes, and of both."""
        return sizes_by_class(self.moves)

    @cached_property
    def bandwidth(self) -> dict[str, Bandwidth]:
        """Bandwidth of reads, of writes, and of both."""
        return bandwidth(self.moves)

    @cached_property
    def order(self) -> dict[str, Shares]:
        """Sequential and consecutive shares of reads, writes and both, per process and file."""
        return shares(self.moves, "process")

    @cached_property
    def files(self) -> pd.DataFrame:
        """Table of the I/O of each file."""
        return io_tables.files(self.recording)

    @cached_property
    def findings(self) -> list[CallFinding]:
        """Findings on the I/O calls of a recorded program or log; none for a run, which has advice."""
        return [] if self.recording.kind == "run" else call_findings(self.calls, self.order["all"], self.files)

    @cached_property
    def counted_only(self) -> dict[str, tuple[int, int]]:
        """Bytes read and written that are in counters but not in recorded calls, by layer."""
        rows = self.files[self.files["source"] == "counters"]
        sums = rows.groupby("layer")[["bytes_read", "bytes_written"]].sum()
        return {str(layer): (int(read), int(written)) for layer, read, written in sums.itertuples() if read or written}

    @property
    def counted_words(self) -> str:
        """Text on the bytes that are only in counters; empty if there are none."""
        parts = []
        for layer, (read, written) in self.counted_only.items():
            moved = [f"{format_size(size)} {verb}" for size, verb in ((read, "read"), (written, "written")) if size]
            parts.append(f"{' and '.join(moved)} through {layer}")
        return " and ".join(parts)

    @property
    def placed_words(self) -> str:
        """Text on the accesses that the sequential share covers; empty if it covers all."""
        placed, moves = self.order["all"].accesses, len(self.moves)
        return f"of the {placed:,} of {moves:,} accesses whose offset is known" if placed < moves else ""

    @cached_property
    def measured(self) -> tuple[int, int] | None:
        """Begin and end of a run's measured time, from its first span to its last, ns; None if it is not known."""
        frame = self.recording.events.frame
        if self.recording.kind != "run" or not is_span(frame, ("fetch",)).any():
            return None
        return runtime(frame)

    @cached_property
    def io_share(self) -> tuple[float, str] | None:
        """Share of the time spent in I/O calls, and the name of that time."""
        if self.measured is not None:
            low, high = np.array([self.measured[0]]), np.array([self.measured[1]])
            times = union(self.calls["start_ns"].to_numpy(), self.calls["end_ns"].to_numpy())
            return length(intersection(times, (low, high))) / max(int(high[0] - low[0]), 1), "measured time"
        seconds = self.recording.runtime_s
        return (self.io_time.global_s / seconds, "run time") if seconds else None

    @cached_property
    def window(self) -> tuple[int, int]:
        """Start and end of the time axes (ns): of all events; of a run from shortly before its first training span."""
        frame = self.recording.events.frame
        if not len(frame):
            return 0, 0
        low, high = int(frame["start_ns"].min()), int(frame["end_ns"].max())
        if self.measured is not None:
            first = self.measured[0]
            low = max(low, first - (high - first) // _LEAD)
        return low, high

    @property
    def training_steps(self) -> pd.DataFrame | None:
        """The records of training steps, warm-up included; None if there is none."""
        if self.steps is None:
            return None
        steps = self.steps[self.steps["phase"] != EVAL]
        return steps if len(steps) else None

    @property
    def timed_steps(self) -> pd.DataFrame:
        """The records of steps, where spans tell it with ``moment_s``: the begin of each on the time axes, seconds."""
        assert self.steps is not None
        spans = self.recording.spans
        begins = spans[spans["op"] == "fetch"].groupby("rank")["start_ns"].min()
        if not set(self.steps["rank"]) <= set(begins.index):
            return self.steps
        # The clocks of machines differ; the first step of a rank begins with its first fetch.
        first = self.steps.groupby("rank")["start_ns"].transform("min")
        moments = self.steps["start_ns"] - first + self.steps["rank"].map(begins) - self.window[0]
        return self.steps.assign(moment_s=moments * 1e-9)

    @property
    def before_window(self) -> str:
        """Sentence on events before the begin of the time axes; empty if there are none."""
        frame = self.recording.events.frame
        before = (self.window[0] - int(frame["start_ns"].min())) * 1e-9 if len(frame) else 0.0
        return f" The time axis begins {format_duration(before)} into the run, just before training." if before else ""

    @property
    def ranks(self) -> int:
        """Number of ranks."""
        if self.recording.world_size is not None:
            return self.recording.world_size
        return int(self.recording.events.frame["rank"].nunique())

    @property
    def cache(self) -> str:
        """State of the page cache in a few words, for captions."""
        share = self.summary["io"]["device_read_share"] if self.summary is not None else None
        if share is None:
            return "state of the page cache not measured"
        kind = "cold" if share >= COLD else "warm" if share <= WARM else "partly warm"
        return f"{kind} page cache ({percent(share)} of the bytes read came from the device)"

    @property
    def status_calls(self) -> str:
        """Status line of figures of I/O calls: accuracy and state of the page cache."""
        times = "" if self.recording.trusted_times else " (times are those of a program slowed down by tracing)"
        return f"Exact: every recorded call{times}; {self.cache}."

    @property
    def status_spans(self) -> str:
        """Status line of figures of spans and step records: accuracy and state of the page cache."""
        return f"Exact: every recorded interval; {self.cache}."

    @cached_property
    def options(self) -> Mapping[str, Any]:
        """Values of the resolved configuration: text, null, lists and groups; empty if it is damaged or missing."""
        try:
            tree = parse_document(self.config, "config.yaml").tree if self.config else {}
        except ConfigError:
            return {}
        return tree if isinstance(tree, Mapping) else {}

    @property
    def command_line(self) -> str | None:
        """Command line of a recorded program; None if it is not known."""
        command = (self.command or {}).get("command") or self.recording.facts.get("command")
        return command if command is None or isinstance(command, str) else " ".join(map(str, command))
