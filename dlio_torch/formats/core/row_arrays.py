"""Description of files whose arrays have the samples along their first axis, in any number of arrays.

Arrays with as many rows, and the same name of the first axis where axes have names, belong together; which of several
such sets is read, :mod:`.sample_arrays` decides or asks.  Where axes have names, coordinates and arrays along an inner
axis of another array, such as maps, are no samples of their own.  All that is not read is named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX
from dlio_torch.formats.core.sample_arrays import Candidate, choose_arrays
from dlio_torch.units import counted

_TABLE = "int64"  # element type of a table of extents


@dataclass(frozen=True)
class RowArray:
    """An array of a file.

    Attributes:
        stored: as it is listed; with a note, where it cannot be read.
        dims: names of its axes; empty: they have none.
    """

    stored: StoredArray
    dims: tuple[str | None, ...] = ()

    @property
    def rows(self) -> int:
        """Length of the first axis; -1: the array cannot be read by rows."""
        return self.stored.shape[0] if self.stored.shape and not self.stored.note else -1


def described_by_rows(
    arrays: Sequence[RowArray],
    options: Mapping[str, Any] | None = None,
    notes: Sequence[str] = (),
    details: Mapping[str, Any] | None = None,
) -> DataDescription:
    """Describes a file by its arrays.

    Args:
        arrays: all of them, each with a name of its own.
        options: of the format's group, with which it is read.
        notes: further ones, behind those on the arrays.
        details: further figures.
    """
    names = {array.stored.name: array for array in arrays}
    tables = {name for name in names if _is_table(names, name)}
    void = {name.removesuffix(EXTENTS_SUFFIX) for name in tables if names[name].rows < 1}
    readable = [array for array in arrays if array.rows > 0 and array.stored.name not in tables | void]
    known = [_candidate(names, array.stored.name) for array in readable]
    listed = tuple(array.stored for array in arrays)
    if not known:
        question = OpenQuestion(
            "no array can be read as samples along its first axis",
            "dataset.fields=[{name: data, dtype: float32, shape: [64]}]",
        )
        return DataDescription(arrays=listed, notes=tuple(notes), questions=(question,), details=details or {})
    known = _with_axes(known)
    minor = _minor(readable)
    major = [item for item in known if item.name not in minor] or known
    companions = {
        _axis(array.stored.shape[0], array.dims) for array in arrays if array.stored.note and array.stored.shape
    }
    sample = choose_arrays(major, companions=companions, numbers_tell=False)
    if sample.question is not None:
        noted = tuple(replace(stored, note=stored.note or sample.left_out.get(stored.name, "")) for stored in listed)
        texts = (*sample.notes, *notes)
        return DataDescription((), options or {}, None, noted, texts, (sample.question,), details or {})
    first = sample.chosen[0]
    taken = [item for item in known if item.axis == first.axis]
    texts = (_basis(first, len(taken)), *(_left_out(names, item, first.rows) for item in known if item not in taken))
    fields = tuple(item.entry for item in taken)
    return DataDescription(fields, options or {}, first.rows, listed, (*texts, *notes), details=details or {})


def _minor(arrays: Sequence[RowArray]) -> set[str]:
    """Names of coordinates, and of arrays along an inner axis of another array, by the names of the axes."""
    used = Counter(axis for array in arrays for axis in set(array.dims))
    named = [array for array in arrays if array.dims and array.dims[0]]
    coordinates = {
        array.stored.name
        for array in named
        if array.dims == (array.stored.name.rsplit("/", 1)[-1],) and used[array.dims[0]] > 1
    }
    return coordinates | {
        array.stored.name
        for array in named
        if any(array.dims[0] in other.dims[1:] and other.dims[0] not in array.dims[1:] for other in named)
    }


def _axis(rows: int, dims: Sequence[str | None]) -> Hashable:
    return (rows, dims[0] if dims else None)


def _with_axes(known: Sequence[Candidate]) -> list[Candidate]:
    """The candidates; an axis without a name is the only named one of the same length."""
    named: dict[int, set[str]] = defaultdict(set)
    for item in known:
        if item.axis_name:
            named[item.rows].add(item.axis_name)
    axes = {rows: _axis(rows, tuple(names)) for rows, names in named.items() if len(names) == 1}
    return [item if item.axis_name else replace(item, axis=axes.get(item.rows, item.axis)) for item in known]


def _is_table(names: Mapping[str, RowArray], name: str) -> bool:
    """Whether an array is the table of extents of a variable-length array beside it."""
    shape, dtype = names[name].stored.shape, names[name].stored.dtype
    array = names.get(name.removesuffix(EXTENTS_SUFFIX))
    is_named = name.endswith(EXTENTS_SUFFIX) and array is not None and array.rows >= 0
    return is_named and dtype == _TABLE and shape is not None and shape[1:] == (2,)


def _basis(first: Candidate, count: int) -> str:
    """The note that names the axis of samples."""
    named = f" ({first.axis_name})" if first.axis_name else ""
    return f"samples are the first axis{named} of {counted(count, 'array')} with {counted(first.rows, 'row')}"


def _left_out(names: Mapping[str, RowArray], item: Candidate, samples: int) -> str:
    reason = f"its first axis is {item.axis_name or 'another'}"
    if item.rows != samples:
        reason = f"its first axis has {item.rows} rows, not {samples}"
    return f"{item.name} {list(names[item.name].stored.shape or ())} is left out: {reason}"


def _candidate(names: Mapping[str, RowArray], name: str) -> Candidate:
    array = names[name]
    shape, rows, mean = array.stored.shape or (), array.rows, 0.0
    if name + EXTENTS_SUFFIX in names and _is_table(names, name + EXTENTS_SUFFIX):
        rows = names[name + EXTENTS_SUFFIX].rows
        mean = round(max(shape[0] / rows, 1e-3), 3)
    entry = FieldConfig(name, array.stored.dtype, list(shape[1:]), length_mean=mean)
    dims = array.dims[:1] if not mean else ()  # the first axis of rows of variable-length samples counts no samples
    return Candidate(entry, rows, _axis(rows, dims), (dims[0] or "") if dims else "")
