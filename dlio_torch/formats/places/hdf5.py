"""Places of the arrays of an HDF5 file, from the file's own tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.places.base import ArrayPlaces, Ints, Listed, Pieces, Strided
from dlio_torch.formats.places.chunked import Chunked, Stored, runs_of
from dlio_torch.formats.places.filters import KNOWN

_OTHER_WAY = "set loader.engine=dataloader, which reads through the HDF5 library"


def places_of(
    array: h5py.Dataset, path: Path, extents: tuple[Ints, Ints] | None = None, select: Sequence[int] = ()
) -> ArrayPlaces:
    """Where the samples of an array lie.

    Args:
        array: open; of the right type and shape.
        path: its file.
        extents: first row and number of rows of each sample; ``None``: a sample is one row.
        select: indices along the second axis that are read, growing; empty: all.

    Raises:
        DataError: the array is stored in a way that only the library reads.
    """
    found = stored(array, path)
    if isinstance(found, Stored):
        return Chunked(found, extents, select)
    offset, itemsize = found, array.dtype.itemsize
    row = math.prod(array.shape[1:]) * itemsize
    if extents is None:
        parts = None
        if select:
            runs = runs_of(array.shape[1:], array.shape[1:], itemsize, select)
            parts = Pieces(runs.source, runs.lengths, runs.to)
        return Strided(path, offset, row, parts)
    first, count = extents
    limit = offset + array.shape[0] * row
    return Listed(path, offset + first * row, count * row, row, variable=True, limit=limit)


def stored(array: h5py.Dataset, path: Path) -> Stored | int:
    """The chunks of an array; of one that is not in chunks, its first byte in the file.

    Args:
        array: open.
        path: its file.

    Raises:
        DataError: it is stored in a way that only the library reads.
    """
    if array.file.userblock_size:
        raise DataError(f"{path} begins with a user block, which shifts its addresses", hint=_OTHER_WAY)
    properties = array.id.get_create_plist()
    layout = properties.get_layout()
    if layout == h5py.h5d.CHUNKED:
        return _chunks(array, path, properties)
    offset: int | None = array.id.get_offset()
    if layout != h5py.h5d.CONTIGUOUS or offset is None or properties.get_external_count():
        raise DataError(f"{path}: {array.name} lies in no stretch of bytes of this file", hint=_OTHER_WAY)
    return offset


def _chunks(array: h5py.Dataset, path: Path, properties: h5py.h5p.PropDCID) -> Stored:
    filters = []
    for number in range(properties.get_nfilters()):
        code, _, _, name = properties.get_filter(number)
        if code not in KNOWN:
            raise DataError(
                f"{path}: {array.name} is stored with filter {code} ({name.decode(errors='replace')})",
                hint=f"{', '.join(KNOWN.values())} can be read by their places; {_OTHER_WAY}",
            )
        filters.append(KNOWN[code])
    chunk, shape = array.chunks, array.shape
    grid = [-(-a // b) for a, b in zip(shape, chunk, strict=True)]
    offsets, sizes, skipped = (np.full(math.prod(grid), value, np.int64) for value in (-1, 0, 0))
    strides = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]

    def take(info: h5py.h5d.StoreInfo) -> None:
        at = sum(c // b * s for c, b, s in zip(info.chunk_offset, chunk, strides, strict=True))
        offsets[at], sizes[at], skipped[at] = info.byte_offset, info.size, info.filter_mask

    if hasattr(array.id, "chunk_iter"):
        array.id.chunk_iter(take)
    else:  # an HDF5 library before 1.12.3
        for number in range(array.id.get_num_chunks()):
            take(array.id.get_chunk_info(number))
    size, whole = path.stat().st_size, math.prod(chunk) * array.dtype.itemsize
    wrong = (sizes < 0) | (sizes > size) | (offsets > size - sizes)
    if wrong.any() or (not filters and bool((sizes[offsets >= 0] != whole).any())):
        raise DataError(f"{path}: the chunks of {array.name} do not fit into the file", hint="the file is damaged")
    return Stored(path, array.name, shape, chunk, array.dtype.itemsize, offsets, sizes, skipped, tuple(filters))
