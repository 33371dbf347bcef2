"""Description of files whose arrays have the samples along their first axis, in any number of arrays.

Which arrays belong together is decided by the largest one: those with as many rows, and the same name of the first
axis where axes have names, are the arrays of a sample.  All others are named and left out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX
from dlio_torch.units import counted

_TABLE = "int64"  # element type of a table of extents


@dataclass(frozen=True)
class RowArray:
    """An array of a file.

    Attributes:
        stored: as it is listed; with a note, where it cannot be read.
        dims: names of its axes; empty: they have none.
        nbytes: of all its elements.
    """

    stored: StoredArray
    dims: tuple[str | None, ...] = ()
    nbytes: int = 0

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
    ragged = {name.removesuffix(EXTENTS_SUFFIX) for name in tables}
    plain = [array for array in arrays if array.rows > 0 and array.stored.name not in tables | ragged]
    largest = max(plain or [names[name] for name in sorted(tables)], key=lambda array: array.nbytes, default=None)
    listed = tuple(array.stored for array in arrays)
    if largest is None:
        question = OpenQuestion(
            "no array can be read as samples along its first axis",
            "dataset.fields=[{name: data, dtype: float32, shape: [64]}]",
        )
        return DataDescription(arrays=listed, notes=tuple(notes), questions=(question,), details=details or {})
    samples, axis = largest.rows, largest.dims[:1]
    taken = {a.stored.name for a in plain if a.rows == samples and (not a.dims or not axis or a.dims[:1] == axis)}
    taken |= {name for name in ragged if names[name + EXTENTS_SUFFIX].rows == samples}
    left_out = [a for a in arrays if a.rows > 0 and a.stored.name not in taken | tables]
    texts = [_basis(largest, len(taken))]
    texts += [f"{a.stored.name} {list(a.stored.shape or ())} is left out: {_reason(a, samples)}" for a in left_out]
    fields = tuple(_field(names, name) for name in names if name in taken)
    return DataDescription(fields, options or {}, samples, listed, (*texts, *notes), details=details or {})


def _is_table(names: Mapping[str, RowArray], name: str) -> bool:
    """Whether an array is the table of extents of a variable-length array beside it."""
    shape, dtype = names[name].stored.shape, names[name].stored.dtype
    array = names.get(name.removesuffix(EXTENTS_SUFFIX))
    is_named = name.endswith(EXTENTS_SUFFIX) and array is not None and array.rows >= 0
    return is_named and dtype == _TABLE and shape is not None and shape[1:] == (2,)


def _basis(largest: RowArray, count: int) -> str:
    """The note that names the axis of samples."""
    named = f" ({largest.dims[0]})" if largest.dims and largest.dims[0] else ""
    return (
        f"samples are the first axis{named} of {counted(count, 'array')}: the largest, {largest.stored.name}, "
        f"has {counted(largest.rows, 'row')}"
    )


def _reason(array: RowArray, samples: int) -> str:
    if array.rows != samples:
        return f"its first axis has {array.rows} rows, not {samples}"
    return f"its first axis is {array.dims[0] if array.dims else 'another'}"


def _field(names: Mapping[str, RowArray], name: str) -> FieldConfig:
    stored = names[name].stored
    shape = stored.shape or ()
    table = names.get(name + EXTENTS_SUFFIX)
    mean = 0.0
    if table is not None and _is_table(names, name + EXTENTS_SUFFIX):
        mean = round(max(shape[0] / table.rows, 1e-3), 3)
    return FieldConfig(name, stored.dtype, list(shape[1:]), length_mean=mean)
