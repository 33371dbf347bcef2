"""Selects the I/O calls that a figure counts.

A layer sits on another one: an MPI-IO read ends in POSIX reads, and a source that sees both counts its
bytes twice.  On the other hand the calls that ``fread`` makes inside the C library are invisible to
tools that interpose on functions, so that for Darshan the bytes of a file written through stdio are in
no POSIX call.  The rule that serves both, unless layers are named::

    a call counts where no lower layer recorded a call of its class on its file
    (from low to high: posix, stdio, mpiio)

What a program did for itself (Python's modules, libraries, the terminal) is beside the data:
:func:`data_only` leaves it out.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from pathlib import Path, PurePath

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.iotrace.events.call_names import CLASSES, IO_LAYERS, class_codes
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.program_files import is_program
from dlio_torch.iotrace.figures.row_groups import codes_of

Bools = NDArray[np.bool_]
Names = str | Sequence[str] | None


def select(
    recording: Recording,
    *,
    layers: Names = None,
    classes: Names = None,
    files: Names = None,
    exclude: Names = None,
    ranks: int | Sequence[int] | None = None,
) -> pd.DataFrame:
    """Selects the I/O calls of a recording, never spans; arguments as of :func:`select_frame`."""
    frame = recording.events.frame
    return select_frame(frame, layers=layers, classes=classes, files=files, exclude=exclude, ranks=ranks)


def select_frame(
    frame: pd.DataFrame,
    *,
    layers: Names = None,
    classes: Names = None,
    files: Names = None,
    exclude: Names = None,
    ranks: int | Sequence[int] | None = None,
) -> pd.DataFrame:
    """Selects the I/O calls of an event table in its order; the table itself, uncopied, if that is every row.

    Args:
        frame: an event table.
        layers: of :data:`dlio_torch.iotrace.events.call_names.IO_LAYERS`; None: the lowest one, see the module's text.
        classes: of :data:`dlio_torch.iotrace.events.call_names.CLASSES`; None: all.
        files: paths or glob patterns (``*`` matches ``/`` too); calls without a known file match none.
        exclude: paths or glob patterns of files that are left out.
        ranks: None: all.

    Raises:
        ValueError: a layer or a class that there is none of.
    """
    keep = _is_layer(frame, _checked(layers, IO_LAYERS, "layer"))
    if layers is None:
        keep &= ~_seen_below(frame)
    if classes is not None:
        wanted = _checked(classes, CLASSES, "class")
        keep &= np.array([name in wanted for name in CLASSES])[class_codes(frame)]
    if files is not None:
        keep &= _is_file(frame, _listed(files))
    if exclude is not None:
        keep &= ~_is_file(frame, _listed(exclude))
    if ranks is not None:
        keep &= np.isin(frame["rank"].to_numpy(), np.atleast_1d(ranks))
    return frame if keep.all() else frame[keep]


def data_only(recording: Recording) -> Recording:
    """The recording without calls on files of the program and of the system.

    Which files these are says :func:`dlio_torch.iotrace.figures.program_files.is_program`, as for ``compare``.
    Spans, and calls whose file is not known, stay.  A note says how many calls are left out.
    A recording of program files alone is returned as it is: there is nothing else to look at.
    """
    frame, counters = recording.events.frame, recording.counters
    names = [str(name) for name in frame["file"].cat.categories]
    of_program = np.array([is_program(name) for name in names] + [False])
    codes = codes_of(frame["file"])
    out = of_program[codes] & _is_layer(frame, IO_LAYERS)
    files = {names[code] for code in np.unique(codes[out]).tolist()}
    counted_out = np.zeros(0, bool)
    if counters is not None:
        counted = counters["file"].astype(object)
        wanted = {name: is_program(str(name)) for name in counted.dropna().unique()}
        counted_out = counted.map(wanted).eq(True).to_numpy()
        files |= {str(name) for name in counted[counted_out].unique()}
    calls = int(np.count_nonzero(_is_layer(frame, IO_LAYERS) & ~out))
    if not files or not (calls or (~counted_out).any()):
        return recording
    if out.any():
        frame = frame[~out].reset_index(drop=True)
        frame["file"] = frame["file"].cat.remove_unused_categories()
    if counters is not None:
        counters = counters[~counted_out].reset_index(drop=True)
    left_out = int(np.count_nonzero(out))
    calls_text = f"{left_out:,} call{'' if left_out == 1 else 's'} on " if left_out or counters is None else ""
    note = f"{calls_text}{len(files):,} program file{'' if len(files) == 1 else 's'} (Python modules, libraries, ...)"
    note += " is left out" if (left_out if calls_text else len(files)) == 1 else " are left out"
    return replace(
        recording,
        events=replace(recording.events, frame=frame),
        counters=counters,
        notes=(*recording.notes, note),
    )


def within(frame: pd.DataFrame, places: Iterable[Path | str]) -> Bools:
    """Whether the file of each row is one of these files, or lies in one of these folders.

    Args:
        frame: an event table.
        places: paths, also of symbolic links.
    """
    paths = {form(place) for place in places for form in (os.path.abspath, os.path.realpath)}
    names = map(str, frame["file"].cat.categories)
    inside = [not paths.isdisjoint((name, *map(str, PurePath(name).parents))) for name in names]
    rows: Bools = np.array([*inside, False])[codes_of(frame["file"])]
    return rows


def layers_of(frame: pd.DataFrame) -> tuple[str, ...]:
    """I/O layers with calls in a table, from low to high."""
    codes = codes_of(frame["layer"])
    counts = np.bincount(codes[codes >= 0], minlength=len(frame["layer"].cat.categories))
    present = {str(name) for name, count in zip(frame["layer"].cat.categories, counts, strict=True) if count}
    return tuple(name for name in IO_LAYERS if name in present)


def matching(paths: Sequence[object], patterns: Names) -> Bools:
    """Whether each path equals one of ``patterns`` or matches it as a glob."""
    wanted = _listed(patterns) if patterns is not None else ()
    matches = [any(str(path) == pattern or fnmatchcase(str(path), pattern) for pattern in wanted) for path in paths]
    return np.array(matches, dtype=bool)


def _listed(names: str | Sequence[str]) -> tuple[str, ...]:
    return (names,) if isinstance(names, str) else tuple(names)


def _checked(names: Names, allowed: Sequence[str], noun: str) -> tuple[str, ...]:
    chosen = tuple(allowed) if names is None else _listed(names)
    for name in chosen:
        if name not in allowed:
            raise ValueError(f"there is no {noun} {name!r}; it must be one of {', '.join(allowed)}")
    return chosen


def _is_layer(frame: pd.DataFrame, layers: Sequence[str]) -> Bools:
    by_code = np.array([str(name) in layers for name in frame["layer"].cat.categories] + [False])
    rows: Bools = by_code[codes_of(frame["layer"])]
    return rows


def _is_file(frame: pd.DataFrame, patterns: Sequence[str]) -> Bools:
    by_code = np.append(matching(list(frame["file"].cat.categories), patterns), False)
    rows: Bools = by_code[codes_of(frame["file"])]
    return rows


def _seen_below(frame: pd.DataFrame) -> Bools:
    """Whether a lower layer has a call of the same class on the same file; all unknown files (code -1) count as one."""
    above = np.zeros(len(frame), bool)
    present = layers_of(frame)
    if len(present) < 2:
        return above
    names = len(frame["file"].cat.categories) + 1
    place = codes_of(frame["file"]).astype(np.int64) + 1
    place += names * class_codes(frame).astype(np.int64)
    seen = np.zeros(names * len(CLASSES), bool)
    for layer in present:
        rows = _is_layer(frame, (layer,))
        above[rows] = seen[place[rows]]
        seen[place[rows]] = True
    return above
