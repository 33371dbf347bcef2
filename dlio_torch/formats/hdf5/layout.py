"""Layout of the arrays of an HDF5 file, read from the file's own tables."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.codecs import KNOWN, TURNED
from dlio_torch.formats.core.layout import ArrayLayout, Extents, StridedLayout
from dlio_torch.formats.core.layout_chunks import Chunked, ChunkTable, runs_of
from dlio_torch.formats.core.layout_in_memory import HeldRows, held
from dlio_torch.formats.core.layout_rows import RowExtents, Spaced, SpacedRows

_OTHER_WAY = "set loader.engine=dataloader, which reads through the HDF5 library"


def array_layout(
    array: h5py.Dataset, path: Path, extents: RowExtents | None = None, select: Sequence[int] = ()
) -> ArrayLayout:
    """The layout of an open HDF5 array.

    Args:
        array: open; of the right type and shape.
        path: its file.
        extents: first row and number of rows of each sample; ``None``: a sample is one row.
        select: indices along the second axis that are read, growing; empty: all.

    Raises:
        DataError: the array is stored in a way that only the library reads.
    """
    unwritten = _without_extent(array, path, extents) if not select else None
    if unwritten is not None:
        return unwritten
    storage = stored(array, path)
    if isinstance(storage, ChunkTable):
        return Chunked(storage, extents, select)
    offset, itemsize = storage, array.dtype.itemsize
    row = math.prod(array.shape[1:]) * itemsize
    turned = 1 if array.dtype.isnative else itemsize
    if select:
        runs = runs_of(array.shape[1:], array.shape[1:], itemsize, select)
        parts = np.full(len(runs.to), turned, np.int64)
        return StridedLayout(
            path, offset, row, Extents(runs.source, runs.lengths, runs.to, parts if turned > 1 else None)
        )
    return SpacedRows(Spaced(path, array.name, offset, row, row, array.shape[0], turned), extents)


def _without_extent(array: h5py.Dataset, path: Path, extents: RowExtents | None) -> ArrayLayout | None:
    """Layout of an array without an extent in the file (compact or never written); ``None`` if it has an extent."""
    properties = array.id.get_create_plist()
    layout = properties.get_layout()
    if layout == h5py.h5d.COMPACT:  # it lies in the file's own tables, which were read
        content = array[:].astype(array.dtype.newbyteorder("="))
        return held(path, content) if extents is None else HeldRows(path, array.name, content, extents)
    never = layout == h5py.h5d.CONTIGUOUS and array.id.get_offset() is None and not properties.get_external_count()
    return Chunked(_unwritten(array, path, properties), extents) if never else None


def _fill(array: h5py.Dataset, properties: h5py.h5p.PropDCID) -> bytes | None:
    """Fill value that HDF5 returns for elements that were never written; ``None``: undefined."""
    if properties.get_fill_time() == h5py.h5d.FILL_TIME_NEVER or not properties.fill_value_defined():
        return None
    fill = np.zeros((), array.dtype.newbyteorder("="))
    properties.get_fill_value(fill)
    return fill.tobytes()


def _unwritten(array: h5py.Dataset, path: Path, properties: h5py.h5p.PropDCID) -> ChunkTable:
    """Layout of a contiguous array without an extent in its file, treated as unwritten chunks of one row."""
    missing, zero = np.full(array.shape[0], -1, np.int64), np.zeros(array.shape[0], np.int64)
    chunk = (1, *array.shape[1:])
    fill = _fill(array, properties)
    return ChunkTable(path, array.name, array.shape, chunk, array.dtype.itemsize, missing, zero, zero, (), fill)


def stored(array: h5py.Dataset, path: Path) -> ChunkTable | int:
    """The chunk table of a chunked array, or the file offset of a contiguous array.

    Args:
        array: open.
        path: its file.

    Raises:
        DataError: it is stored in a way that only the library reads.
    """
    if array.file.userblock_size:
        raise DataError(f"{path} begins with an HDF5 user block, which shifts all addresses", hint=_OTHER_WAY)
    properties = array.id.get_create_plist()
    layout = properties.get_layout()
    if layout == h5py.h5d.CHUNKED:
        return _chunks(array, path, properties)
    offset: int | None = array.id.get_offset()
    if layout != h5py.h5d.CONTIGUOUS or offset is None or properties.get_external_count():
        raise DataError(f"{path}: {array.name} is not stored as one extent of this file", hint=_OTHER_WAY)
    return offset


def _chunks(array: h5py.Dataset, path: Path, properties: h5py.h5p.PropDCID) -> ChunkTable:
    filters = []
    for number in range(properties.get_nfilters()):
        code, _, _, name = properties.get_filter(number)
        if code not in KNOWN:
            raise DataError(
                f"{path}: {array.name} is stored with HDF5 filter {code} ({name.decode(errors='replace')}), which "
                "loader.engine=decoupled cannot undo",
                hint=f"use only the filters {', '.join(KNOWN.values())}, or {_OTHER_WAY}",
            )
        filters.append(KNOWN[code])
    chunk, shape = array.chunks, array.shape
    grid = [-(-a // b) for a, b in zip(shape, chunk, strict=True)]
    offsets, sizes, skipped = (np.full(math.prod(grid), value, np.int64) for value in (-1, 0, 0))
    strides = [math.prod(grid[axis + 1 :]) for axis in range(len(grid))]

    def take(info: h5py.h5d.StoreInfo) -> None:
        index = sum(c // b * s for c, b, s in zip(info.chunk_offset, chunk, strides, strict=True))
        offsets[index], sizes[index], skipped[index] = info.byte_offset, info.size, info.filter_mask

    if hasattr(array.id, "chunk_iter"):
        array.id.chunk_iter(take)
    else:  # an HDF5 library before 1.12.3
        for number in range(array.id.get_num_chunks()):
            take(array.id.get_chunk_info(number))
    size, whole = path.stat().st_size, math.prod(chunk) * array.dtype.itemsize
    wrong = (sizes < 0) | (sizes > size) | (offsets > size - sizes) | ((offsets >= 0) & (sizes == 0))
    if wrong.any() or (not filters and bool((sizes[offsets >= 0] != whole).any())):
        raise DataError(
            f"{path}: chunks of {array.name} lie beyond the end of the file",
            hint="the file is damaged; generate or fetch the file again",
        )
    if not array.dtype.isnative:  # as if the first filter had turned them
        filters.insert(0, TURNED)
        skipped <<= 1
    return ChunkTable(
        path, array.name, array.shape, chunk, array.dtype.itemsize, offsets, sizes, skipped, tuple(filters),
        _fill(array, properties),
    )  # fmt: skip
