"""Description of larcv3 files: the producers of sparse 2-D images, and the tables of the others."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import h5py

from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.hdf5.describe import describe as describe_arrays
from dlio_torch.formats.hdf5.file import open_file, reading
from dlio_torch.formats.larcv3.events import META, VOXEL_EXTENTS
from dlio_torch.formats.larcv3.options import Larcv3Config
from dlio_torch.formats.larcv3.reader import EVENTS, EXTENTS, group_of, require_events
from dlio_torch.formats.larcv3.size_fit import VOXEL

_TABLES = {"extents": EXTENTS, "voxel_extents": VOXEL_EXTENTS, "image_meta": META, "voxels": VOXEL}
_PREFIX, _SUFFIX = group_of("/").split("/")[0] + "/", "_group"
_OTHER = "not a table of sparse 2-D images, the only ones that are read"


def describe(path: Path) -> DataDescription:
    """Describes one file; every producer of sparse 2-D images is read, in the order of the file.

    Raises:
        DataError: no larcv3 file, or a damaged one.
    """
    stored = describe_arrays(path).arrays
    file = open_file(path, Larcv3Config().chunk_cache_bytes)
    with reading(file, path):
        events = int(require_events(file, path).shape[0])
        groups = [name.removesuffix(_SUFFIX) for name in file[_PREFIX] if name.endswith(_SUFFIX)]
        producers = [name for name in groups if _is_sparse(file, name)]
    file.close()
    if not producers:
        raise DataError(
            f"{path} holds no sparse 2-D images; its producers are: {', '.join(groups) or 'none'}",
            hint="give a larcv3 file with a producer sparse2d_...",
        )
    read = {EVENTS, *(f"{group_of(name)}/{table}" for name in producers for table in _TABLES)}
    notes = ["the HDF5 file has larcv3's tables: dataset.format=hdf5 would see compound arrays, which no tensor holds"]
    if len(producers) > 1:
        first = f"dataset.larcv3.producers=[{{name: {producers[0]}}}]"
        notes.append(f"all {len(producers)} producers of sparse 2-D images are read; {first} reads one")
    return DataDescription(
        options={"producers": [{"name": name} for name in producers]},
        samples=events,
        arrays=tuple(_noted(array, read) for array in stored),
        notes=tuple(notes),
        details={"producers": groups},
    )


def _noted(array: StoredArray, read: set[str]) -> StoredArray:
    return replace(array, note="" if array.name in read else _OTHER)


def _is_sparse(file: h5py.File, producer: str) -> bool:
    """Whether a producer has the four tables of sparse 2-D images, in this file."""
    group = file.get(group_of(producer), getlink=True)
    if not isinstance(group, h5py.HardLink):
        return False
    tables = file[group_of(producer)]
    for name, dtype in _TABLES.items():
        if not isinstance(tables.get(name, getlink=True), h5py.HardLink) or name not in tables:
            return False
        if getattr(tables[name], "dtype", None) != dtype:
            return False
    return True
