"""Description of a Zarr store of unknown origin, from the metadata of its nodes."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX
from dlio_torch.formats.zarr.facts import METADATA
from dlio_torch.formats.zarr.reader import EXTENT, codec_names
from dlio_torch.formats.zarr.zarr_library import DAMAGE, native, need_zarr, reading
from dlio_torch.units import counted

_ROOT = "data"  # name of the field of a store that is one array
_CONSOLIDATED = ".zmetadata"


@dataclass(frozen=True)
class _Member:
    """An array of the store.

    Attributes:
        stored: as it is listed.
        dims: names of its axes; empty: they have none.
        nbytes: of all its elements.
        shards: shape of a shard; ``None``: each chunk is a file.
    """

    stored: StoredArray
    dims: tuple[str | None, ...] = ()
    nbytes: int = 0
    shards: tuple[int, ...] | None = None

    @property
    def rows(self) -> int:
        """Length of the first axis; -1: the array cannot be read by rows."""
        return self.stored.shape[0] if self.stored.shape and not self.stored.note else -1


def describe(path: Path) -> DataDescription:
    """Describes a store.

    Args:
        path: a folder with the metadata of a node of Zarr, version 2 or 3.

    Raises:
        DataError: it is no store, or its metadata are damaged.
        MissingPackageError: zarr-python is not installed.
    """
    need_zarr()
    with reading(path), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # what zarr-python thinks of the metadata stands in the notes
        if not any((path / name).is_file() for name in METADATA):
            raise FileNotFoundError(path)
        nodes = list(islice(_nodes(path, ""), MOST))
        arrays = [_array(path, name) for name, is_array in nodes if is_array]
    if not arrays:
        raise DataError(f"{path} is a Zarr store without arrays", hint="give the path of a store with arrays")
    return _description(path, arrays, is_root=nodes[0] == ("", True), complete=len(nodes) < MOST)


def _nodes(folder: Path, name: str) -> Iterator[tuple[str, bool]]:
    """Path of each node of a store below its root, and whether it is an array; folders of chunks are not listed."""
    kind = _kind(folder)
    if kind is None:
        return
    yield name, kind == "array"
    if kind == "array":
        return
    with os.scandir(folder) as entries:
        inner = sorted(entry.name for entry in entries if entry.is_dir())
    for child in inner:
        yield from _nodes(folder / child, f"{name}/{child}" if name else child)


def _kind(folder: Path) -> str | None:
    """``array`` or ``group``; ``None``: the folder is no node of Zarr."""
    version_3, group, array = (folder / name for name in METADATA)
    if version_3.is_file():
        metadata = json.loads(version_3.read_bytes())
        return str(metadata["node_type"])
    if array.is_file():
        return "array"
    return "group" if group.is_file() else None


def _array(path: Path, name: str) -> _Member:
    """The array ``name`` of a store; one that zarr-python cannot open has a note."""
    import zarr

    try:
        array = zarr.open_array(str(path), path=name, mode="r")
        dtype = np.dtype(array.dtype)
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:200]
        return _Member(StoredArray(name or _ROOT, "unknown", note=f"zarr-python cannot open it: {reason}"))
    kind = native(dtype).name
    note = ""
    if kind not in DTYPES:
        note = f"{_words(dtype)} cannot be read into tensors"
    elif not array.shape:
        note = "a scalar, not an array of samples"
    elif 0 in array.shape:
        note = "it is empty"
    stored = StoredArray(
        name or _ROOT, kind if kind in DTYPES else str(dtype), array.shape, array.chunks,
        "+".join(codec_names(array)), note=note,
    )  # fmt: skip
    return _Member(stored, _dims(array), array.nbytes if not note else 0, array.shards)


def _words(dtype: np.dtype[Any]) -> str:
    if dtype.fields is not None:
        return f"the structured type {dtype}"
    if dtype.kind in "OTUS":
        return f"strings ({dtype})"
    return f"dtype {dtype}"


def _dims(array: Any) -> tuple[str | None, ...]:
    """Names of the axes: of version 3, or as xarray stores them in version 2."""
    named = getattr(array.metadata, "dimension_names", None) or array.attrs.get("_ARRAY_DIMENSIONS")
    return tuple(named) if isinstance(named, list | tuple) and len(named) == array.ndim else ()


def _description(path: Path, arrays: list[_Member], *, is_root: bool, complete: bool) -> DataDescription:
    names = {array.stored.name: array for array in arrays}
    tables = {name for name in names if _is_table(names, name)}
    ragged = {name.removesuffix(EXTENTS_SUFFIX) for name in tables}
    plain = [array for array in arrays if array.rows > 0 and array.stored.name not in tables | ragged]
    candidates = plain or [names[name] for name in sorted(tables)]
    largest = max(candidates, key=lambda array: array.nbytes, default=None)
    listed = tuple(array.stored for array in arrays)
    if largest is None:
        question = OpenQuestion(
            "no array of this store can be read as samples along its first axis",
            "dataset.fields=[{name: data, dtype: float32, shape: [64]}]",
        )
        return DataDescription(arrays=listed, questions=(question,))
    samples, axis = largest.rows, largest.dims[:1]
    taken = {a.stored.name for a in plain if a.rows == samples and (not a.dims or not axis or a.dims[:1] == axis)}
    taken |= {name for name in ragged if names[name + EXTENTS_SUFFIX].rows == samples}
    left_out = [a for a in arrays if a.rows > 0 and a.stored.name not in taken | tables]
    notes = [_basis(largest, taken)]
    notes += [f"{a.stored.name} {list(a.stored.shape or ())} is left out: {_reason(a, samples)}" for a in left_out]
    notes += [f"{a.stored.name} lies in shards of {list(a.shards)}" for a in arrays if a.shards]
    notes += [] if complete else [f"only the first {MOST} nodes of the store were looked at"]
    fields = tuple(_field(names, name) for name in names if name in taken)
    return DataDescription(
        fields, {"root": "array"} if is_root else {}, samples, listed, tuple(notes),
        details={"consolidated": True} if _is_consolidated(path) else {},
    )  # fmt: skip


def _is_table(names: dict[str, _Member], name: str) -> bool:
    """Whether an array is the table of extents of a variable-length array beside it."""
    shape, dtype = names[name].stored.shape, names[name].stored.dtype
    return (
        name.endswith(EXTENTS_SUFFIX)
        and name.removesuffix(EXTENTS_SUFFIX) in names
        and dtype == EXTENT.name
        and shape is not None
        and shape[1:] == (2,)
    )


def _basis(largest: _Member, taken: set[str]) -> str:
    """The note that names the axis of samples."""
    named = f" ({largest.dims[0]})" if largest.dims and largest.dims[0] else ""
    return (
        f"samples are the first axis{named} of {counted(len(taken), 'array')}: the largest, {largest.stored.name}, "
        f"has {counted(largest.rows, 'row')}"
    )


def _reason(array: _Member, samples: int) -> str:
    if array.rows != samples:
        return f"its first axis has {array.rows} rows, not {samples}"
    return f"its first axis is {array.dims[0] if array.dims else 'another'}"


def _field(names: dict[str, _Member], name: str) -> FieldConfig:
    stored = names[name].stored
    shape = stored.shape or ()
    table = names.get(name + EXTENTS_SUFFIX)
    mean = 0.0
    if table is not None and _is_table(names, name + EXTENTS_SUFFIX):
        mean = max(shape[0] / table.rows, 1e-3)
    return FieldConfig(name, stored.dtype, list(shape[1:]), length_mean=round(mean, 3))


def _is_consolidated(path: Path) -> bool:
    """Whether the metadata of all nodes are also in one file."""
    if (path / _CONSOLIDATED).is_file():
        return True
    version_3 = path / METADATA[0]
    return version_3.is_file() and bool(json.loads(version_3.read_bytes()).get("consolidated_metadata"))
