"""One side of a comparison: its calls on data files, and sums of them."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import CLASSES, OPEN, READ, SEEK, WRITE
from dlio_torch.iotrace.events.recording import Kind, Recording
from dlio_torch.iotrace.fidelity.pairing import Pairing
from dlio_torch.iotrace.figures.row_groups import group

Ints = NDArray[np.int64]
Bools = NDArray[np.bool_]

SOURCES: dict[Kind, str] = {
    "run": "this tool",
    "trace": "this tool",
    "darshan": "Darshan's extended tracing",
    "dftracer": "DFTracer",
    "strace": "strace",
}
"""Name of the recording tool by kind of recording."""

_COUNTED = {OPEN: "opens", READ: "reads", WRITE: "writes", SEEK: "seeks"}
_MOVED = {READ: "bytes_read", WRITE: "bytes_written"}


@dataclass(frozen=True)
class Side:
    """The compared part of a recording, or of one of its ranks.

    Args:
        label: ``A`` or ``B``.
        recording: where it is from.
        calls: the calls on data files that both sides record, in order of start; ``pid`` and ``tid`` are -1
            where a side does not know them.  Empty where ``counted`` is all there is.
        kind: for each call the place of its class in :data:`dlio_torch.iotrace.events.call_names.CLASSES`.
        file: for each call the number of its file, the same on both sides.
        part: for each call the number of its file's part.
        counted: sums by layer and data file from the counters, with columns number and part; None: not used.
        coarse: whether ``counted`` is all there is.
        overlap: what :func:`dlio_torch.iotrace.figures.overlap.overlap` gives.
        rank: the rank, None: all of them.
    """

    label: str
    recording: Recording
    calls: pd.DataFrame
    kind: NDArray[np.int8]
    file: Ints
    part: Ints
    counted: pd.DataFrame | None
    coarse: bool
    overlap: pd.DataFrame | None = None
    rank: int | None = None

    @property
    def ranks(self) -> tuple[int, ...]:
        """Ranks that have calls."""
        return tuple(np.unique(self.calls["rank"].to_numpy()).tolist())

    def of_rank(self, rank: int) -> Side:
        """The calls of one rank, without counters, which are sums over ranks."""
        rows = self.calls["rank"].to_numpy() == rank
        return replace(self.subset(rows), counted=None, rank=rank)

    def subset(self, rows: Bools) -> Side:
        """The side with only the selected calls."""
        return replace(self, calls=self.calls[rows], kind=self.kind[rows], file=self.file[rows], part=self.part[rows])

    def is_class(self, name: str) -> Bools:
        """Selects the calls of a class."""
        rows: Bools = self.kind == CLASSES.index(name)
        return rows

    def transfers(self, name: str) -> Bools:
        """Selects the reads (or writes) that did not fail."""
        rows: Bools = self.is_class(name) & (self.calls["bytes"].to_numpy() >= 0)
        return rows

    def count(self, name: str) -> int | None:
        """Number of calls of a class; None if it is not recorded."""
        if not self.coarse and name in self.recording.sees:
            return int(np.count_nonzero(self.is_class(name)))
        return self._counter(_COUNTED.get(name))

    def moved(self, name: str) -> int | None:
        """Bytes read or written."""
        if not self.coarse and name in self.recording.sees:
            return int(self.calls["bytes"].to_numpy()[self.transfers(name)].sum())
        return self._counter(_MOVED[name])

    def moved_by(self, name: str, groups: Ints, size: int) -> Ints | None:
        """Bytes read or written by group; ``groups`` numbers files or parts, below ``size``."""
        sums = np.zeros(size, np.int64)
        if not self.coarse:
            rows = self.transfers(name)
            np.add.at(sums, groups[rows], self.calls["bytes"].to_numpy()[rows])
            return sums
        if self.counted is None or self.counted[_MOVED[name]].isna().any():
            return None
        np.add.at(sums, groups, self.counted[_MOVED[name]].to_numpy(np.int64))
        return sums

    def numbers(self, parts: bool) -> Ints:
        """Number of the file, or set of files, of each call; of each row of counters if there are only counters."""
        if not self.coarse:
            return self.part if parts else self.file
        assert self.counted is not None
        return self.counted["part" if parts else "number"].to_numpy(np.int64)

    def users(self) -> int:
        """Number of pairs of a process and a file."""
        return group([self.file, self.calls["rank"].to_numpy(), self.calls["pid"].to_numpy()]).size

    def counted_share(self, name: str, rule: str) -> float | None:
        """Sequential or consecutive share of reads or writes from counters; None if the counters lack it."""
        if self.counted is None:
            return None
        hits, calls = (self.counted[column].to_numpy(float) for column in (f"{rule}_{_COUNTED[name]}", _COUNTED[name]))
        known = ~np.isnan(hits) & ~np.isnan(calls)
        total = calls[known].sum()
        return float(hits[known].sum() / total) if total else None

    def _counter(self, column: str | None) -> int | None:
        if self.counted is None or column is None or self.counted[column].isna().any():
            return None
        return int(self.counted[column].sum())


@dataclass(frozen=True)
class Both:
    """Both sides of a comparison, with common numbers of files.

    Args:
        a: the first.
        b: the second.
        pairing: how files were paired.
        processes: whether both tell processes of a rank apart.
        threads: whether both tell threads apart.
        left_out: what was not compared and why, a sentence each.
    """

    a: Side
    b: Side
    pairing: Pairing
    processes: bool
    threads: bool
    left_out: tuple[str, ...]
