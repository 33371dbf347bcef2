"""Description of a Silo file of unknown origin, from the tables of its HDF5 driver."""

from __future__ import annotations

import math
from contextlib import closing
from pathlib import Path

import h5py

from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.data_description import DataDescription, OpenQuestion, StoredArray
from dlio_torch.formats.core.row_arrays import RowArray, described_by_rows
from dlio_torch.formats.hdf5.file import reading
from dlio_torch.formats.hdf5.guard import has_signature
from dlio_torch.formats.silo.layout import open_driver
from dlio_torch.formats.silo.library import SiloFile

_OWN = ("..", ".silo", "_fileinfo", "_hdf5libinfo", "_silolibinfo")  # the library's entries in each file


def describe(path: Path) -> DataDescription:
    """Describes a file: plain arrays are listed; meshes and other objects of Silo are named.

    Args:
        path: a Silo file.

    Raises:
        DataError: it is none, or damaged.
        MissingPackageError: the library of Silo is not installed.
    """
    SiloFile(path).close()
    if not has_signature(path):
        question = OpenQuestion(
            "the arrays of a Silo file of another driver than HDF5 cannot be listed",
            "dataset.fields=[{name: data, dtype: float32, shape: [64]}]",
        )
        return DataDescription(questions=(question,))
    with closing(open_driver(path)) as file, reading(file, path):
        return described_by_rows([_array(file, name) for name in file if name not in _OWN])


def _array(file: h5py.File, name: str) -> RowArray:
    """An entry at the top of the file; links are not followed."""
    if not isinstance(file.get(name, getlink=True), h5py.HardLink):
        return RowArray(StoredArray(name, "link", note="a link to another object"))
    item = file[name]
    if isinstance(item, h5py.Group):
        return RowArray(StoredArray(name, "directory", note="arrays in directories of a Silo file are not read"))
    if not isinstance(item, h5py.Dataset):
        return RowArray(StoredArray(name, "object", note="a mesh, variable or other object of Silo, not a plain array"))
    kind, shape, note = item.dtype.name, item.shape, ""
    if kind not in DTYPES or not item.dtype.isnative:
        note = f"type {item.dtype} cannot be read into tensors"
    elif not shape or not math.prod(shape):
        note = "it is empty"
    stored = StoredArray(name, kind, shape, stored_bytes=item.id.get_storage_size(), note=note)
    return RowArray(stored)
