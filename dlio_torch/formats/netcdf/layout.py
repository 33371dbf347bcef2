"""Layout of an open netCDF file, from the header of a classic file or the HDF5 tables of a netCDF-4 file.

The netCDF library says what the variables are, as on the faithful path, so that nothing else is taken for one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing

import h5py
import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.layout import ArrayLayout
from dlio_torch.formats.core.layout_rows import RowExtents, Spaced, SpacedRows
from dlio_torch.formats.hdf5.file import open_file
from dlio_torch.formats.hdf5.layout import array_layout
from dlio_torch.formats.netcdf.classic_header import ClassicHeader
from dlio_torch.formats.netcdf.file import NcFile, Rows

_OTHER_WAY = "set loader.engine=dataloader, which reads through the netCDF library"
_CACHE_BYTES = 1 << 20
_BESIDE = "_nc4_non_coord_"  # before the name of a variable that is called as a dimension and is none of its own


def variable_layouts(
    file: NcFile, arrays: Mapping[str, Rows], extents: Mapping[str, RowExtents]
) -> dict[str, ArrayLayout]:
    """The layout of each array of a netCDF file.

    Args:
        file: open; the library is held.
        arrays: its variables, by the names of the arrays.
        extents: of the variable-length ones, first row and number of rows of each sample.

    Raises:
        DataError: an array is stored in a way that only the library reads.
        OSError: the file cannot be read.
    """
    if file.classic_header is not None:
        return {name: _classic(file, file.classic_header, rows, extents.get(name)) for name, rows in arrays.items()}
    if file.dataset.disk_format != "HDF5":
        raise DataError(
            f"{file.path} is stored as {file.dataset.disk_format}, but loader.engine=decoupled reads only HDF5 and "
            "classic netCDF files",
            hint=_OTHER_WAY,
        )
    with closing(open_file(file.path, _CACHE_BYTES)) as stored:
        return {name: _hdf5(stored, file, rows, extents.get(name)) for name, rows in arrays.items()}


def _classic(file: NcFile, header: ClassicHeader, rows: Rows, extents: RowExtents | None) -> ArrayLayout:
    extent = header.variables.get(rows.name)
    if extent is None:  # the library spells names in Unicode's normal form
        raise DataError(
            f"{file.path}: the header of the file spells the variable {rows.name!r} in another way than the netCDF "
            "library",
            hint=_OTHER_WAY,
        )
    size = extent.size if extent.step else extent.size // max(1, rows.count)
    turned = extent.element if sys.byteorder == "little" else 1
    return SpacedRows(
        Spaced(file.path, rows.name, extent.begin, extent.step or size, size, rows.count, turned), extents
    )


def _hdf5(stored: h5py.File, file: NcFile, rows: Rows, extents: RowExtents | None) -> ArrayLayout:
    group, _, name = rows.name.rpartition("/")
    inside: h5py.Group = stored[group or "/"]
    array = inside[_BESIDE + name if _BESIDE + name in inside else name]
    element_type: np.dtype[np.generic] = rows.variable.dtype
    if array.dtype.newbyteorder("=") != element_type.newbyteorder("="):
        raise DataError(
            f"{file.path}: {rows.name} is stored as {array.dtype}, but the netCDF library converts it to "
            f"{element_type}",
            hint=_OTHER_WAY,
        )
    if array.shape != tuple(rows.variable.shape):
        raise DataError(
            f"{file.path}: {rows.name} has shape {list(rows.variable.shape)}, but only {list(array.shape)} is "
            "stored, because its unlimited dimension has grown",
            hint=_OTHER_WAY,
        )
    return array_layout(array, file.path, extents)
