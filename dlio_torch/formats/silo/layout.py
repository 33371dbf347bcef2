"""Layout of Silo files of the HDF5 driver, in which each array is an HDF5 array of the same name.

The Silo library says what the arrays are, as on the faithful path, so that nothing else is taken for one.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import h5py
import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.layout import ArrayLayout
from dlio_torch.formats.core.layout_rows import RowExtents
from dlio_torch.formats.hdf5.file import DAMAGE, open_file
from dlio_torch.formats.hdf5.guard import has_signature
from dlio_torch.formats.hdf5.layout import array_layout
from dlio_torch.formats.silo.library import SiloArray, stored_type

_OTHER_WAY = "set loader.engine=dataloader, which reads through the Silo library"
_CACHE_BYTES = 1 << 20


def open_driver(path: Path) -> h5py.File:
    """Open a Silo file through HDF5.

    Raises:
        DataError: another driver wrote it, PDB's for example.
    """
    if not has_signature(path):
        raise DataError(
            f"{path} was not written by Silo's HDF5 driver, so that the offsets of its arrays are unknown",
            hint=_OTHER_WAY,
        )
    return open_file(path, _CACHE_BYTES)


def silo_array_layout(
    file: h5py.File, array: SiloArray, dtype: np.dtype[Any], path: Path, extents: RowExtents | None
) -> ArrayLayout:
    """The layout of one Silo array.

    Args:
        file: open.
        array: the same array as Silo has it.
        dtype: of its elements in memory.
        path: the file.
        extents: first row and number of rows of each sample; ``None``: a sample is one row.

    Raises:
        DataError: it is stored in a way that only the library reads.
    """
    try:
        stored = file[array.name]
        kind, wanted = stored.dtype, np.dtype(stored_type(dtype))
        # Characters are unsigned in the file, and have the same bytes.
        same = kind.itemsize == wanted.itemsize and (kind.kind == "f") == (wanted.kind == "f") and kind.kind in "iuf"
        if not same or stored.shape != array.stored_shape:
            raise DataError(
                f"{path}: {array.name} is stored as {kind}{list(stored.shape)}, but Silo reads it as "
                f"{wanted}{list(array.stored_shape)}",
                hint=_OTHER_WAY,
            )
        return array_layout(stored, path, extents)
    except DAMAGE as error:
        raise DataError(
            f"{path}: {array.name} cannot be found: {error}",
            hint="the file is damaged; generate or fetch the file again",
        ) from error
