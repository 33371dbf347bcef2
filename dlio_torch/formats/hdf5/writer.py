"""Writer of HDF5 arrays that generates and compresses chunks outside of the library's global lock.

The library decides where everything lies; then threads make the elements, write or deflate them:

- an array without chunks is one extent of the file from ``get_offset`` on, which plain writes fill;
- chunks are deflated here and handed over as they are stored (``write_direct_chunk``): the same zlib, the same bytes.

Small arrays, and chunks that are stored as they are or by another filter, take the library's ordinary way.
"""

from __future__ import annotations

import itertools
import math
import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.chunk_shapes import chunk_shape
from dlio_torch.formats.core.column import PIECE_BYTES, Column, Octets
from dlio_torch.formats.core.ordered_map import in_order

_SIEVE_BYTES = 64 << 10  # below this HDF5 keeps what is written, and writes it again later
_BAND_BYTES = 256 << 20  # rows of chunks that are held in memory
_TASK_BYTES = 256 << 10  # chunks that one thread deflates at a time
_AHEAD = 8
_BLOCK_BYTES = 8 << 20  # handed to the library at a time: where it places chunks depends on it

Origin = tuple[int, ...]


def write_array(array: h5py.Dataset, path: Path, column: Column, first: int, count: int, pool: Executor) -> None:
    """Write all elements of a newly created array: the content of ``count`` samples from ``first`` on.

    Args:
        array: in its open file; nothing was written to it.
        path: of the file.
        column: where the elements come from.
        first: the first sample.
        count: samples.
        pool: threads that make, write and deflate.
    """
    if array.chunks is None:
        _contiguous(array, path, column, first, count, pool)
    elif array.compression == "gzip" and _band(array) <= _BAND_BYTES:
        _deflated(array, column.pieces(first, count, pool), pool)
    else:
        _through_library(array, column, first, count, pool)


def _through_library(array: h5py.Dataset, column: Column, first: int, count: int, pool: Executor) -> None:
    start = 0
    for block in column.blocks(first, count, pool, _BLOCK_BYTES):
        array[start : start + len(block)] = block
        start += len(block)


# --- without chunks ---


def _contiguous(array: h5py.Dataset, path: Path, column: Column, first: int, count: int, pool: Executor) -> None:
    box = chunk_shape(array.shape[0], array.shape[1:], array.dtype.itemsize, 2 * _SIEVE_BYTES)
    if array.nbytes <= PIECE_BYTES or math.prod(box) * array.dtype.itemsize < _SIEVE_BYTES:
        _through_library(array, column, first, count, pool)
        return
    pieces = column.pieces(first, count, pool)
    # The place is decided when something is written; what is large enough is not written a second time.
    array[tuple(slice(length) for length in box)] = np.zeros(box, array.dtype)
    offset = array.id.get_offset()
    descriptor = os.open(path, os.O_WRONLY)
    try:
        for piece in pieces:
            _write_all(descriptor, piece, offset)
            offset += len(piece)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, octets: Octets, offset: int) -> None:
    view = octets.data
    while view:
        done = os.pwrite(descriptor, view, offset)
        view, offset = view[done:], offset + done


# --- chunks ---


def _band(array: h5py.Dataset) -> int:
    """Bytes of the rows in one layer of chunks."""
    return int(math.prod((array.chunks[0], *array.shape[1:])) * array.dtype.itemsize)


def _deflated(array: h5py.Dataset, pieces: Iterator[Octets], pool: Executor) -> None:
    level = array.compression_opts

    def several(chunks: list[tuple[Origin, npt.NDArray[np.generic]]]) -> list[tuple[Origin, bytes]]:
        return [(origin, zlib.compress(np.ascontiguousarray(content).data, level)) for origin, content in chunks]

    size = math.prod(array.chunks) * array.dtype.itemsize
    per_task = max(1, _TASK_BYTES // size)
    chunks = _chunks(array.shape, array.chunks, _bands(array, pieces))
    tasks = iter(lambda: list(itertools.islice(chunks, per_task)), [])
    for done in in_order(pool, several, tasks, _AHEAD):
        for origin, octets in done:
            array.id.write_direct_chunk(origin, octets)


def _bands(array: h5py.Dataset, pieces: Iterator[Octets]) -> Iterator[npt.NDArray[np.generic]]:
    """Yields the rows of each layer of chunks; the last layer may have fewer."""
    left, rest = array.shape[0], np.empty(0, np.uint8)
    while left > 0:
        rows = min(left, array.chunks[0])
        band = np.empty((rows, *array.shape[1:]), array.dtype)
        room = band.reshape(-1).view(np.uint8)
        while len(room):
            if not len(rest):
                rest = next(pieces)
            taken = min(len(rest), len(room))
            room[:taken] = rest[:taken]
            room, rest = room[taken:], rest[taken:]
        yield band
        left -= rows


def _chunks(
    shape: Sequence[int], chunk: Sequence[int], bands: Iterator[npt.NDArray[np.generic]]
) -> Iterator[tuple[Origin, npt.NDArray[np.generic]]]:
    """Yields first element and content of each chunk; chunks at the array's edges are padded with zeros."""
    across = [range(0, length, part) for length, part in zip(shape[1:], chunk[1:], strict=True)]
    for number, band in enumerate(bands):
        for rest in itertools.product(*across):
            inside = tuple(slice(low, low + part) for low, part in zip((0, *rest), chunk, strict=True))
            content = band[inside]
            if content.shape != tuple(chunk):
                whole = np.zeros(tuple(chunk), band.dtype)
                whole[tuple(map(slice, content.shape))] = content
                content = whole
            yield (number * chunk[0], *rest), content
