"""Where the variables of an open netCDF file lie: by the header of a classic one, by HDF5's tables in netCDF-4.

The netCDF library says what the variables are, as on the faithful path, so that nothing else is taken for one.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from contextlib import closing

import h5py
import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.layout import ArrayPlaces
from dlio_torch.formats.core.layout_rows import Extents, Spaced, SpacedRows
from dlio_torch.formats.hdf5 import layout as hdf5
from dlio_torch.formats.hdf5.file import open_file
from dlio_torch.formats.netcdf.classic_header import Layout
from dlio_torch.formats.netcdf.file import NcFile, Rows

_OTHER_WAY = "set loader.engine=dataloader, which reads through the netCDF library"
_CACHE_BYTES = 1 << 20
_BESIDE = "_nc4_non_coord_"  # before the name of a variable that is called as a dimension and is none of its own


def places_of_variables(
    file: NcFile, arrays: Mapping[str, Rows], extents: Mapping[str, Extents]
) -> dict[str, ArrayPlaces]:
    """The places of the samples of each array.

    Args:
        file: open; the library is held.
        arrays: its variables, by the names of the arrays.
        extents: of the variable-length ones, first row and number of rows of each sample.

    Raises:
        DataError: an array is stored in a way that only the library reads.
        OSError: the file cannot be read.
    """
    if file.layout is not None:
        return {name: _classic(file, file.layout, rows, extents.get(name)) for name, rows in arrays.items()}
    if file.dataset.disk_format != "HDF5":
        raise DataError(
            f"{file.path} is stored as {file.dataset.disk_format}, not as HDF5 or a classic file", hint=_OTHER_WAY
        )
    with closing(open_file(file.path, _CACHE_BYTES)) as stored:
        return {name: _hdf5(stored, file, rows, extents.get(name)) for name, rows in arrays.items()}


def _classic(file: NcFile, layout: Layout, rows: Rows, extents: Extents | None) -> ArrayPlaces:
    where = layout.variables.get(rows.name)
    if where is None:  # the library spells names in Unicode's normal form
        raise DataError(f"{file.path}: its header spells {rows.name!r} in another way", hint=_OTHER_WAY)
    size = where.size if where.step else where.size // max(1, rows.count)
    turned = where.element if sys.byteorder == "little" else 1
    return SpacedRows(Spaced(file.path, rows.name, where.begin, where.step or size, size, rows.count, turned), extents)


def _hdf5(stored: h5py.File, file: NcFile, rows: Rows, extents: Extents | None) -> ArrayPlaces:
    group, _, name = rows.name.rpartition("/")
    inside: h5py.Group = stored[group or "/"]
    array = inside[_BESIDE + name if _BESIDE + name in inside else name]
    found: np.dtype[np.generic] = rows.variable.dtype
    if array.dtype.newbyteorder("=") != found.newbyteorder("="):
        raise DataError(f"{file.path}: {rows.name} is stored as {array.dtype}, read as {found}", hint=_OTHER_WAY)
    if array.shape != tuple(rows.variable.shape):
        raise DataError(
            f"{file.path}: {rows.name} has shape {list(rows.variable.shape)}, {list(array.shape)} of it stored: its "
            "unlimited dimension has grown since",
            hint=_OTHER_WAY,
        )
    return hdf5.places_of(array, file.path, extents)
