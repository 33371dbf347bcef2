"""Description of a Zarr store of unknown origin, from the metadata of its nodes."""

from __future__ import annotations

import json
import os
import warnings
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.core.row_arrays import RowArray, described_by_rows
from dlio_torch.formats.zarr.facts import METADATA
from dlio_torch.formats.zarr.reader import codec_names
from dlio_torch.formats.zarr.zarr_library import DAMAGE, native, need_zarr, reading

_ROOT = "data"  # name of the field of a store that is one array
_CONSOLIDATED = ".zmetadata"


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
    notes = [note for _, note in arrays if note]
    notes += [f"only the first {MOST} nodes of the store were looked at"] if len(nodes) >= MOST else []
    return described_by_rows(
        [array for array, _ in arrays],
        {"root": "array"} if nodes[0] == ("", True) else {},
        notes,
        {"consolidated": True} if _is_consolidated(path) else {},
    )


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


def _array(path: Path, name: str) -> tuple[RowArray, str]:
    """The array ``name`` of a store, with a note where zarr-python cannot open it; and a note on its shards."""
    import zarr

    try:
        array = zarr.open_array(str(path), path=name, mode="r")
        dtype = np.dtype(array.dtype)
    except DAMAGE as error:
        reason = " ".join(str(error).split())[:200]
        return RowArray(StoredArray(name or _ROOT, "unknown", note=f"zarr-python cannot open it: {reason}")), ""
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
    shards = f"{stored.name} lies in shards of {list(array.shards)}" if array.shards else ""
    return RowArray(stored, _dims(array)), shards


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


def _is_consolidated(path: Path) -> bool:
    """Whether the metadata of all nodes are also in one file."""
    if (path / _CONSOLIDATED).is_file():
        return True
    version_3 = path / METADATA[0]
    return version_3.is_file() and bool(json.loads(version_3.read_bytes()).get("consolidated_metadata"))
