"""Aligns two recordings: reduces both to the calls, files and layers that both sources record.

A comparison covers the calls on *data files*: files that are read, written or mapped and do not belong to the program
or the system (:func:`dlio_torch.iotrace.figures.program_files.is_program`).  It keeps the classes and layers of calls
that both sources record, and processes and threads if both distinguish them.  Sentences name what is left out.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.errors import DataError
from dlio_torch.iotrace.events.call_names import CLASSES, IO_LAYERS, MAP, READ, WRITE, class_codes
from dlio_torch.iotrace.events.recording import COUNTERS, Kind, Recording
from dlio_torch.iotrace.fidelity.pairing import pair
from dlio_torch.iotrace.fidelity.pairing_rules import SideFiles
from dlio_torch.iotrace.fidelity.sides import Both, Side
from dlio_torch.iotrace.figures.call_selection import layers_of, select, select_frame
from dlio_torch.iotrace.figures.overlap import overlap
from dlio_torch.iotrace.figures.program_files import is_program
from dlio_torch.iotrace.figures.row_groups import codes_of
from dlio_torch.units import format_size

Ints = NDArray[np.int64]

_LAYERS: dict[Kind, tuple[str, ...]] = {"darshan": ("posix", "mpiio"), "strace": ("posix",)}
"""Layers in which a source records each call; sources that are not listed record all layers."""


def bring_together(a: Recording, b: Recording, files: Sequence[tuple[str, str]] | None = None) -> Both:
    """Aligns two recordings to sides that can be compared.

    Args:
        a: one recording.
        b: the other.
        files: patterns of files of A and of B that belong together; None: all data files.

    Raises:
        DataError: a side has neither calls on data files nor counters of them.
        ConfigError: a pattern matches no file.
    """
    both_traced = all(layers_of(recording.events.frame) for recording in (a, b))
    seen = [_LAYERS.get(recording.kind, IO_LAYERS) if both_traced else IO_LAYERS for recording in (a, b)]
    layers = tuple(name for name in IO_LAYERS if name in seen[0] and name in seen[1])
    mapped = MAP in a.sees and MAP in b.sees
    parts: list[_Traced | _CounterSide] = []
    left_out: list[str] = []
    for label, recording in (("A", a), ("B", b)):
        counted = None if recording.counters is None else _data_files(recording.counters, layers)
        # Counters are best compared with counters, where the side that has events has those, too.
        if not both_traced and counted is not None:
            parts.append(_CounterSide(label, recording, counted))
        else:
            parts.append(_Traced(label, recording, counted, layers, mapped))
            left_out += parts[-1].left_out + _counters_alone(label, recording, layers)
        if not parts[-1].files.names:
            raise DataError(
                f"{recording.path}: the recording contains no read or write of a data file, so nothing can be compared",
                hint="repeat the run with trace.posix=true"
                if recording.kind == "run" and not recording.sees
                else "; ".join(recording.notes) or None,
            )
    pairing = pair(parts[0].files, parts[1].files, files)
    processes = all(part.knows("pid") for part in parts)
    threads = processes and all(part.knows("tid") for part in parts)
    for part, numbers in zip(parts, (pairing.file_a, pairing.file_b), strict=True):
        others = int(np.count_nonzero(numbers < 0))
        if others:
            left_out.append(f"files: {others} data file{'s' * (others > 1)} of {part.label} not selected by --files")
    return Both(
        parts[0].side(pairing.file_a, pairing.part_a, processes, threads),
        parts[1].side(pairing.file_b, pairing.part_b, processes, threads),
        pairing,
        processes,
        threads,
        tuple(left_out),
    )


class _Traced:
    """A side whose source records each call."""

    def __init__(
        self, label: str, recording: Recording, counted: pd.DataFrame | None, layers: tuple[str, ...], mapped: bool
    ) -> None:
        self.label = label
        self._recording, self._counted = recording, counted
        lowest = select(recording)
        self._calls = select_frame(lowest, layers=layers)
        self._names = [str(name) for name in self._calls["file"].cat.categories]
        self._codes = codes_of(self._calls["file"])
        self._kinds = class_codes(self._calls)
        used = np.zeros(len(self._names) + 1, bool)  # the last place is that of unknown files, code -1
        for name in (READ, WRITE, MAP) if mapped else (READ, WRITE):
            used[self._codes[self._kinds == CLASSES.index(name)]] = True
        program = np.array([is_program(name) for name in self._names] + [True], bool)
        self._data = np.flatnonzero(used & ~program)
        self.left_out = self._said(lowest, layers, used & program)
        names = tuple(self._names[code] for code in self._data)
        self.files = SideFiles(names, self._moved(READ)[self._data], self._moved(WRITE)[self._data])

    def knows(self, column: str) -> bool:
        """Whether the process (or thread) of each call is known."""
        return bool((self._calls[column].to_numpy() >= 0).all())

    def side(self, number: Ints, part: Ints, processes: bool, threads: bool) -> Side:
        """The side with numbered files."""
        places = np.full((2, len(self._names) + 1), -1, np.int64)
        places[:, self._data] = number, part
        rows = places[0][self._codes] >= 0
        calls, codes, kinds = self._calls, self._codes, self._kinds
        if not rows.all():
            calls, codes, kinds = calls[rows], codes[rows], kinds[rows]
        unknown = {name: np.int32(-1) for name, known in (("pid", processes), ("tid", threads)) if not known}
        return Side(
            self.label,
            self._recording,
            calls.assign(**unknown),
            kinds,
            places[0][codes],
            places[1][codes],
            None if self._counted is None else _numbered(self._counted, self.files, number, part),
            coarse=False,
            overlap=overlap(self._recording),
        )

    def _moved(self, name: str) -> Ints:
        """Bytes read from, or written to, each file."""
        size = self._calls["bytes"].to_numpy()
        rows = (self._kinds == CLASSES.index(name)) & (size > 0)
        moved = np.zeros(len(self._names) + 1, np.int64)
        np.add.at(moved, self._codes[rows], size[rows])
        return moved

    def _said(self, lowest: pd.DataFrame, layers: tuple[str, ...], program: NDArray[np.bool_]) -> list[str]:
        rows = []
        for name in layers_of(lowest):
            if name not in layers:
                calls = len(select_frame(lowest, layers=name))
                rows.append(f"{name}: {calls:,} calls of {self.label}, which the other side's source does not record")
        if program.any():
            calls = int(np.count_nonzero(program[self._codes]))
            rows.append(
                f"program files: {calls:,} calls of {self.label} on Python modules, libraries and similar files"
            )
        return rows


class _CounterSide:
    """A side that has only counters, no single calls."""

    def __init__(self, label: str, recording: Recording, counted: pd.DataFrame) -> None:
        self.label = label
        self.left_out: list[str] = []
        self._recording, self._counted = recording, counted
        # A file may have rows of several layers.
        moved = counted.groupby("file", sort=False)[["bytes_read", "bytes_written"]].sum()
        read, written = (moved[name].to_numpy(np.int64) for name in ("bytes_read", "bytes_written"))
        self.files = SideFiles(tuple(str(name) for name in moved.index), read, written)

    def knows(self, column: str) -> bool:
        """False: counters distinguish neither processes nor threads."""
        return False

    def side(self, number: Ints, part: Ints, processes: bool, threads: bool) -> Side:
        """The side with numbered files."""
        del processes, threads
        calls = self._recording.events.frame.iloc[:0]
        none = np.zeros(0, np.int64)
        return Side(
            self.label,
            self._recording,
            calls,
            none.astype(np.int8),
            none,
            none,
            _numbered(self._counted, self.files, number, part),
            coarse=True,
            overlap=overlap(self._recording),
        )


def _counters_alone(label: str, recording: Recording, layers: tuple[str, ...]) -> list[str]:
    """Sentences on the bytes that are only in the counters of a side with events."""
    if recording.counters is None:
        return []
    others = tuple(name for name in IO_LAYERS[:2] if name not in layers)  # MPI-IO ends in POSIX calls
    counters = _data_files(recording.counters, others)
    moved = counters[["bytes_read", "bytes_written"]].sum().sum()
    return [f"{', '.join(others)}: {format_size(moved)} of {label}, which only its counters contain"] if moved else []


def _numbered(counted: pd.DataFrame, files: SideFiles, number: Ints, part: Ints) -> pd.DataFrame:
    """The counters of the compared files, with numbered files."""
    numbers = pd.DataFrame({"file": list(files.names), "number": number, "part": part})
    table: pd.DataFrame = counted.merge(numbers[number >= 0], on="file")
    return table


def _data_files(counters: pd.DataFrame, layers: tuple[str, ...]) -> pd.DataFrame:
    """Sums of each layer and data file; NaN if a value is not known.

    A file's rows of MPI-IO are left out where it has rows of POSIX, because MPI-IO ends in POSIX calls.
    """
    rows: pd.DataFrame = counters.astype({"layer": object, "file": object})
    values = [name for name in COUNTERS if name not in ("rank", "layer", "file")]
    rows[values] = rows[values].astype(float).where(rows[values] >= 0)
    used = rows[["reads", "writes", "bytes_read", "bytes_written"]].fillna(0).to_numpy().sum(axis=1) > 0
    data = {name for name in rows["file"].unique() if not is_program(str(name))}
    doubled = (rows["layer"] == "mpiio") & rows["file"].isin(rows.loc[rows["layer"] == "posix", "file"])
    rows = rows[used & rows["file"].isin(data) & rows["layer"].isin(layers) & ~doubled]
    groups = rows.groupby(["layer", "file"], sort=False)
    sums = groups[values].sum().where(groups[values].count().eq(groups.size(), axis=0))
    table: pd.DataFrame = sums.reset_index()
    return table
