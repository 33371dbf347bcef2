"""Inspection of the arrays of an HDF5 file from its metadata alone."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import h5py

from dlio_torch.errors import DataError
from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.hdf5.file import open_file, reading
from dlio_torch.formats.hdf5.tree import MOST_MEMBERS, members

_HINT = "the file is damaged; replace the file"
_CHUNK_CACHE = 1 << 20
_FILTERS = {
    1: "gzip", 2: "shuffle", 3: "fletcher32", 4: "szip", 5: "nbit", 6: "scaleoffset",
    307: "bzip2", 32000: "lzf", 32001: "blosc", 32004: "lz4", 32008: "bitshuffle", 32013: "zfp", 32015: "zstd",
    32017: "sz", 32024: "sz3", 32026: "blosc2",
}  # fmt: skip
"""Registered filter numbers of HDF5 (github.com/HDFGroup/hdf5_plugins) and their names."""


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add the file's arrays to ``content``; entries that were read before an error stay.

    Soft and external links are counted and not followed, objects with several names are listed once.

    Args:
        path: the file.
        content: gets ``datasets``, each ``path``, ``dtype``, ``shape``, ``chunks``, ``filters``, ``stored_bytes``,
            ``logical_bytes``, ``offset`` (where contiguous data begin), ``attributes``; ``groups``, ``links`` (not
            followed), ``attributes``, ``complete``.

    Raises:
        DataError: the file is damaged.
    """
    content |= {"datasets": [], "groups": 0, "links": 0, "attributes": 0, "complete": False}
    file = open_file(path, _CHUNK_CACHE)
    with reading(file, path):
        content["attributes"] += len(file.attrs)
        for number, member in enumerate(members(file)):
            if number >= MOST_MEMBERS or len(content["datasets"]) >= MOST:
                file.close()
                return
            if member.problem:
                raise DataError(f"{path}: {member.path} cannot be opened: {member.problem}", hint=_HINT)
            if member.item is None:
                content["links"] += 1
            elif isinstance(member.item, h5py.Group):
                content["groups"] += 1
                content["attributes"] += len(member.item.attrs)
            elif isinstance(member.item, h5py.Dataset):
                content["datasets"].append(_dataset(member.path, member.item))
        content["complete"] = True
    file.close()


def _dataset(path: str, dataset: h5py.Dataset) -> dict[str, Any]:
    layout = dataset.id.get_create_plist()
    # The extent and the size of a virtual dataset may depend on files that it refers to.
    in_this_file = layout.get_layout() != h5py.h5d.VIRTUAL
    shape = list(dataset.shape) if in_this_file and dataset.shape is not None else None
    return {
        "path": path,
        "dtype": _dtype(dataset),
        "shape": shape,
        "chunks": list(dataset.chunks) if in_this_file and dataset.chunks else None,
        "filters": [filter_name(layout.get_filter(number)) for number in range(layout.get_nfilters())],
        "stored_bytes": dataset.id.get_storage_size() if in_this_file else None,
        "logical_bytes": math.prod(shape) * dataset.id.get_type().get_size() if shape is not None else None,
        "offset": dataset.id.get_offset() if in_this_file else None,
        "attributes": len(dataset.attrs),
    }


def _dtype(dataset: h5py.Dataset) -> str:
    try:
        return str(dataset.dtype)
    except TypeError:  # a type that NumPy has not
        return "unknown"


def filter_name(entry: tuple[int, int, tuple[int, ...], bytes]) -> str:
    """Name of a filter of an array, with the level of gzip.

    Args:
        entry: number, flags, values and name, as ``get_filter`` of the creation property list returns them.
    """
    number, _, values, name = entry
    known = _FILTERS.get(number) or name.decode(errors="replace") or f"filter {number}"
    return f"{known} {values[0]}" if number == 1 and values else known
