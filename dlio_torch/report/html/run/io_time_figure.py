"""Draws where the time in I/O calls went: by kind of call, of all files and of those that took most."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import CLASSES, CLOSE, MAP, META, OPEN, READ, SEEK, SYNC, WRITE, class_codes
from dlio_torch.report.html.bar_figure import bar_figure
from dlio_torch.report.html.page_blocks import Figure
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import BROWN, GREEN, PURPLE, SKY, SLATE, YELLOW, short, time_unit
from dlio_torch.report.html.theme import READ as READ_COLOUR
from dlio_torch.report.html.theme import WRITE as WRITE_COLOUR
from dlio_torch.units import counted, format_duration

KINDS = {READ: "read", WRITE: "write", OPEN: "open", CLOSE: "close", META: "metadata", SEEK: "seek", MAP: "map",
         SYNC: "sync"}  # fmt: skip
"""Kinds of calls in the order of the figure, and their names in it."""
_COLOURS = {
    READ: READ_COLOUR, WRITE: WRITE_COLOUR, OPEN: PURPLE, CLOSE: SLATE, META: BROWN, SEEK: YELLOW, MAP: GREEN, SYNC: SKY
}  # fmt: skip
_MOST_FILES = 3
_LEAST = 0.01  # share of the time below which a file has no bar
_COUNTED = {"read_s": READ, "write_s": WRITE, "meta_s": META}


@dataclass(frozen=True)
class KindTimes:
    """Seconds in calls, summed: by file (rows) and kind of call (columns)."""

    files: tuple[str, ...]
    kinds: tuple[str, ...]
    seconds: NDArray[np.float64]

    @property
    def sums(self) -> dict[str, float]:
        """Seconds of each kind of call, all files."""
        return dict(zip(self.kinds, self.seconds.sum(axis=0).tolist(), strict=True))

    @property
    def largest(self) -> tuple[str, float]:
        """Kind of call with most time, and its share of the time."""
        sums = self.sums
        kind = max(sums, key=lambda name: sums[name])
        return kind, sums[kind] / sum(sums.values())


def seconds_by_kind(view: View) -> KindTimes | None:
    """Sums the durations of calls by file and kind of call; None if the recording has no times."""
    calls, counters = view.calls, view.recording.counters
    if len(calls):
        names = [*map(str, calls["file"].cat.categories), "file not known"]
        file = calls["file"].cat.codes.to_numpy().astype(np.int64)
        cells = np.where(file < 0, len(names) - 1, file) * len(CLASSES) + class_codes(calls)
        durations = (calls["end_ns"] - calls["start_ns"]).to_numpy(np.float64) * 1e-9
        sums = np.bincount(cells, durations, len(names) * len(CLASSES)).astype(np.float64)
        return _with_time(names, CLASSES, sums.reshape(len(names), len(CLASSES)))
    if counters is not None and len(counters):
        codes, distinct = pd.factorize(counters["file"].astype(object))
        table = np.zeros((len(distinct), len(_COUNTED)))
        known = counters[[*_COUNTED]].fillna(0.0).clip(lower=0.0).to_numpy(np.float64)
        np.add.at(table, codes[codes >= 0], known[codes >= 0])
        return _with_time([str(name) for name in distinct], tuple(_COUNTED.values()), table)
    return None


def _with_time(files: Sequence[str], kinds: tuple[str, ...], seconds: NDArray[np.float64]) -> KindTimes | None:
    rows = np.flatnonzero(seconds.sum(axis=1) > 0)
    return KindTimes(tuple(files[row] for row in rows.tolist()), kinds, seconds[rows]) if rows.size else None


def io_time_figure(view: View) -> Figure | None:
    """Draws the seconds in I/O calls by kind, of all files and of the files with most; None without times."""
    times = seconds_by_kind(view)
    if times is None:
        return None
    by_file = times.seconds.sum(axis=1)
    most = [row for row in np.argsort(-by_file, kind="stable")[:_MOST_FILES] if by_file[row] >= _LEAST * by_file.sum()]
    labels, rows = ["the one file"], [times.seconds.sum(axis=0)]
    if len(by_file) > 1:
        labels = [
            f"all {len(by_file):,} files",
            *(f"{n}. {short(times.files[row], 24)}" for n, row in enumerate(most, 1)),
        ]
        rows += [times.seconds[row] for row in most]
    sums = [float(row.sum()) for row in rows]
    factor, unit = time_unit(max(sums))
    columns = {kind: [float(row[times.kinds.index(kind)]) for row in rows] for kind in KINDS if times.sums.get(kind)}
    svg = bar_figure(
        labels,
        {KINDS[kind]: [value * factor for value in values] for kind, values in columns.items()},
        {KINDS[kind]: _COLOURS[kind] for kind in columns},
        axis=f"time in I/O calls, summed over all calls ({unit})",
        name="iotime",
        description="Time in I/O calls by kind of call, of all files and of those with the longest time",
        texts={KINDS[kind]: [format_duration(value) for value in values] for kind, values in columns.items()},
        ends=[format_duration(value) for value in sums],
    )
    method = "Sum of the durations of calls by kind; calls that run at the same time count each."
    if len(rows) > 1:
        method += f" Below all files: the {counted(len(most), 'file')} with the longest time."
    status = view.status_calls if len(view.calls) else "Exact: sums from the log's counters."
    return Figure(svg, "Where the time in I/O calls went", method, status)
