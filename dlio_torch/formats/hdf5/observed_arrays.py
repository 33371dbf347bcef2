"""Arrays of HDF5 files that a recorded program read, found by the byte ranges of its read calls."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt
import pandas as pd

from dlio_torch.formats.core.data_description import StoredArray
from dlio_torch.formats.core.recreation import ObservedReads
from dlio_torch.formats.hdf5.file import open_file, reading
from dlio_torch.formats.hdf5.options import Hdf5Config

_AGAIN = 0.05  # share of reads of chunks that a chunk cache would have answered
_HELD = 0.5  # part of a cache that certainly holds what was read last
_PART_OF_ROW = 0.75  # of the bytes of a row; a program that reads less reads a box of it

Ints = npt.NDArray[np.int64]


def names_read(reads: ObservedReads, arrays: Sequence[StoredArray]) -> list[str]:
    """Names of the arrays in whose bytes read calls begin, in the order of ``arrays``; empty: the calls do not tell.

    Calls on the first file are taken, since the files are alike.
    """
    calls = _of_samples(reads)
    calls = calls[calls["file"] == str(reads.files[0])]
    offsets = calls["offset"].to_numpy()
    extents = _extents(reads.files[0], [array.name for array in arrays])
    return [name for name, (starts, ends) in extents.items() if _inside(offsets, starts, ends).any()]


def array_opens(reads: ObservedReads, arrays: Sequence[StoredArray], cache_bytes: int) -> str:
    """Evidence that the program opens an array for each read; empty: there is none.

    An array that is closed loses its chunk cache, so that chunks are read again soon after; a contiguous array that is
    opened when it is read has its header read after elements of the array before it.

    Args:
        reads: the calls; those on the first file are taken.
        arrays: those that are read.
        cache_bytes: size of the chunk cache of an array.
    """
    calls = _of_samples(reads)
    calls = calls[calls["file"] == str(reads.files[0])]
    extents = _extents(reads.files[0], [array.name for array in arrays])
    is_element = np.zeros(len(calls), bool)
    for starts, ends in extents.values():
        is_element |= _inside(calls["offset"].to_numpy(), starts, ends)
    if any(array.chunks for array in arrays):
        return _chunks_again(calls[is_element], arrays, cache_bytes)
    late = sum(
        bool((~mask[np.argmax(mask) :]).any())
        for mask in (is_element[rows] for rows in calls.groupby("pid").indices.values())
        if mask.any()
    )
    return f"{late} processes read the header of an array after elements of another one" if late else ""


def _chunks_again(elements: pd.DataFrame, arrays: Sequence[StoredArray], cache_bytes: int) -> str:
    """Evidence that chunks are read again although the cache would hold them."""
    chunk = max(int(np.prod(array.chunks)) * np.dtype(array.dtype).itemsize for array in arrays if array.chunks)
    number = elements.groupby("pid").cumcount()
    distance = number.groupby([elements["pid"], elements["offset"]]).diff()
    again = int((distance * chunk * len(arrays) < _HELD * cache_bytes).sum())
    return f"{again} of {len(elements)} chunks were read again soon after" if again > _AGAIN * len(elements) else ""


def crop_of(arrays: Sequence[StoredArray], reads: ObservedReads) -> tuple[int, ...] | None:
    """Shape of the boxes that samples are out of the arrays; ``None``: samples are rows.

    The first array that a batch holds decides.  It is a box if it has the axes of a whole array and is smaller, and
    the program has more samples than rows; or if it is smaller than a row, and less than a row is read for it.
    """
    if not arrays or not reads.arrays or not arrays[0].shape or any(a.shape != arrays[0].shape for a in arrays):
        return None
    shape, box = arrays[0].shape, _without_ones(reads.arrays[0].shape, len(arrays[0].shape))
    rows = shape[0] * len(reads.files)
    if len(box) == len(shape) and _fits(box, shape) and box[1:] != shape[1:]:
        return box if reads.samples != rows or box[0] > 1 else None
    if len(box) == len(shape) - 1 and _fits(box, shape[1:]) and box != shape[1:] and _reads_part(arrays, reads):
        return (1, *box)
    return None


def _without_ones(shape: tuple[int, ...], axes: int) -> tuple[int, ...]:
    """The shape without leading axes of length 1, such as that of channels, down to ``axes`` of them."""
    while len(shape) > axes and shape[0] == 1:
        shape = shape[1:]
    return shape


def _fits(box: tuple[int, ...], shape: tuple[int, ...]) -> bool:
    return all(length <= edge for length, edge in zip(box, shape, strict=True))


def _reads_part(arrays: Sequence[StoredArray], reads: ObservedReads) -> bool:
    """Whether fewer bytes are read for a sample than rows of the arrays have in the file."""
    calls, samples = reads.read_calls, reads.samples_read()
    moved = calls[calls["sample"] >= 0]["bytes"].sum()
    row = sum((array.stored_bytes or 0) / (array.shape or (1,))[0] for array in arrays)
    return bool(samples and moved / samples < _PART_OF_ROW * row)


def _of_samples(reads: ObservedReads) -> pd.DataFrame:
    """Read calls for samples; all read calls if it is not known which are."""
    calls = reads.read_calls
    of_samples = calls[(calls["dataset"] >= 0)] if "dataset" in calls else calls
    return of_samples if len(of_samples) else calls


def _extents(path: Path, names: Sequence[str]) -> dict[str, tuple[Ints, Ints]]:
    """Begins and ends of the stored elements of arrays, sorted; an array without any is left out."""
    extents: dict[str, tuple[Ints, Ints]] = {}
    file = open_file(path, Hdf5Config().chunk_cache_bytes)
    with reading(file, path):
        for name in names:
            starts, sizes = _stored(file[name])
            if len(starts):
                order = np.argsort(starts)
                extents[name] = starts[order], starts[order] + sizes[order]
    file.close()
    return extents


def chunk_sizes(path: Path, name: str) -> Ints:
    """Bytes of each stored chunk of an array; empty: it has none."""
    starts, ends = _extents(path, [name]).get(name, (np.empty(0, np.int64),) * 2)
    return ends - starts


def _stored(array: h5py.Dataset) -> tuple[Ints, Ints]:
    """Offsets and sizes of the pieces of an array."""
    pieces: list[tuple[int, int]] = []
    if array.chunks is not None:
        array.id.chunk_iter(lambda info: pieces.append((info.byte_offset, info.size)))
    elif array.id.get_offset() is not None:
        pieces.append((array.id.get_offset(), array.id.get_storage_size()))
    pairs = np.array(pieces, np.int64).reshape(-1, 2)
    return pairs[:, 0], pairs[:, 1]


def _inside(offsets: npt.NDArray[np.int64], starts: Ints, ends: Ints) -> npt.NDArray[np.bool_]:
    """Whether each offset is in one of the pieces."""
    place = np.searchsorted(starts, offsets, side="right") - 1
    return (place >= 0) & (offsets < ends[np.maximum(place, 0)])
