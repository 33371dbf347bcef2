"""Layout of a Zarr store whose files, chunks or shards of several chunks, hold whole samples."""

from __future__ import annotations

import math
import sys
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.codecs import CRC32C, DEFLATE, GZIP_FILE, TURNED, ZSTD, without_crc32c
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout, Ints
from dlio_torch.formats.core.layout_chunks import Chunked, ChunkTable, runs_of
from dlio_torch.formats.core.layout_parts import PartedLayout
from dlio_torch.formats.core.layout_rows import RowExtents
from dlio_torch.formats.zarr.facts import METADATA
from dlio_torch.formats.zarr.options import ZarrConfig
from dlio_torch.formats.zarr.reader import ZarrReader
from dlio_torch.formats.zarr.zarr_library import native, reading

if TYPE_CHECKING:
    import zarr

_OTHER_WAY = "set loader.engine=dataloader, which reads through zarr-python"
_KNOWN = {"gzip": GZIP_FILE, "zlib": DEFLATE, "zstd": ZSTD, "crc32c": CRC32C}
_ENTRY = np.dtype("<u8")  # of a shard's index: offset and number of bytes of each chunk
_CHECKSUM = 4
_MISSING = (1 << 64) - 1


@dataclass(frozen=True)
class _Encoding:
    """The way in which an array is stored.

    Attributes:
        outer: shape of what is a file: a shard, or a chunk.
        chunk: shape of a chunk.
        filters: names of the codecs of a chunk, in the order of writing.
        index: codecs of a shard's index; ``None``: there are no shards.
        at_end: whether the index is at the end of a shard.
    """

    outer: tuple[int, ...]
    chunk: tuple[int, ...]
    filters: tuple[str, ...]
    index: tuple[str, ...] | None = None
    at_end: bool = True


class ChunkFiles(PartedLayout):
    """Layout of an array of fixed-length samples in many files, each a chunk or a shard of whole samples.

    Args:
        array: the array; only its metadata are used.
        name: its name, for messages.
        path: of the store.
        stored: the way in which it is stored.
    """

    def __init__(self, array: zarr.Array[Any], name: str, path: Path, stored: _Encoding) -> None:
        self.path = path
        self._array, self._name, self._stored = array, name, stored
        itemsize = np.dtype(array.dtype).itemsize
        self._bytes = math.prod(array.shape[1:]) * itemsize
        self._runs = runs_of(array.shape[1:], stored.chunk[1:], itemsize)

    def sizes(self, rows: Ints) -> Ints:
        return np.full(len(rows), self._bytes, np.int64)

    def part_of(self, rows: Ints) -> Ints:
        return rows // self._stored.outer[0]

    def part(self, number: int) -> tuple[ArrayLayout, int]:
        table = _table(self._array, self._name, self.path, self._stored, number)
        return Chunked(table, runs=self._runs), number * self._stored.outer[0]


def store_layout(path: Path, specs: Sequence[ArraySpec], options: ZarrConfig) -> FileLayout:
    """The layout of a store.

    Args:
        path: the store.
        specs: arrays of a sample.
        options: how it is opened.

    Raises:
        DataError: missing or damaged, other arrays than ``specs`` say, or stored in a way that only zarr-python reads.
    """
    layouts: dict[str, ArrayLayout] = {}
    with closing(ZarrReader(path, specs, options)) as reader, reading(path):
        for spec in specs:
            extents = reader.extents(spec) if spec.variable else None
            layouts[spec.name] = _array_layout(reader.array(spec), spec.name, path, extents)
        return FileLayout(reader.num_samples, layouts)


def _array_layout(array: zarr.Array[Any], name: str, path: Path, extents: RowExtents | None) -> ArrayLayout:
    """The layout of an open array; of a variable-length one with the rows of each sample."""
    stored = _stored(array, name, path)
    files = [-(-length // part) for length, part in zip(array.shape, stored.outer, strict=True)]
    if math.prod(files) == 1:
        return Chunked(_table(array, name, path, stored, 0), extents)
    if math.prod(files[1:]) > 1 or extents is not None:
        cut = "that are cut along other axes than the first" if math.prod(files[1:]) > 1 else "and has variable lengths"
        raise DataError(
            f"{path}: array {name} lies in {math.prod(files)} files, a chunk or shard each, {cut}",
            hint=f"{_OTHER_WAY}, or store whole samples in each file (dataset.zarr.shard_bytes)",
        )
    return ChunkFiles(array, name, path, stored)


def _table(array: zarr.Array[Any], name: str, path: Path, stored: _Encoding, number: int) -> ChunkTable:
    """The chunks of an array in one of its files, and their places there.

    Args:
        array: open.
        name: its name, for messages.
        path: of the store.
        stored: the way in which it is stored; a file holds whole rows.
        number: of the file along the first axis.

    Raises:
        DataError: the file is damaged.
    """
    itemsize = np.dtype(array.dtype).itemsize
    rows = min(stored.outer[0], array.shape[0] - number * stored.outer[0])
    shape = (rows, *array.shape[1:])
    file = path / array.path / array.metadata.encode_chunk_key((number, *(0 for _ in shape[1:])))
    grid = tuple(-(-length // part) for length, part in zip(shape, stored.chunk, strict=True))
    missing: Ints = np.full(math.prod(grid), -1, np.int64)
    offsets, sizes = missing, np.zeros(len(missing), np.int64)
    if file.is_file():
        offsets, sizes = _places(file, name, grid, stored)
        plain = math.prod(stored.chunk) * itemsize + _CHECKSUM * stored.filters.count(CRC32C)
        packed = {DEFLATE, GZIP_FILE, ZSTD} & set(stored.filters)
        if not packed and bool((sizes[offsets >= 0] != plain).any()):
            raise DataError(
                f"{file}: a chunk of array {name} does not have {plain} bytes",
                hint="the store is damaged; generate or fetch the store again",
            )
    else:  # never written: all elements have the fill value
        folder = path / array.path
        file = next((folder / metadata for metadata in METADATA if (folder / metadata).is_file()), folder)
    fill = np.asarray(array.fill_value if array.fill_value is not None else 0).astype(native(np.dtype(array.dtype)))
    return ChunkTable(
        file, name, shape, stored.chunk, itemsize, offsets, sizes, np.zeros(len(offsets), np.int64), stored.filters,
        fill.tobytes(),
    )  # fmt: skip


def _places(file: Path, name: str, grid: tuple[int, ...], stored: _Encoding) -> tuple[Ints, Ints]:
    """First byte and number of bytes of each chunk in its file; -1 and 0 where it was never written."""
    with os_errors(file):
        size = file.stat().st_size
        if stored.index is None:
            return np.zeros(1, np.int64), np.array([size], np.int64)
        inner = tuple(length // part for length, part in zip(stored.outer, stored.chunk, strict=True))
        length = math.prod(inner) * 2 * _ENTRY.itemsize + _CHECKSUM * len(stored.index)
        with file.open("rb") as opened:
            opened.seek(max(0, size - length) if stored.at_end else 0)
            index = memoryview(opened.read(length))
    label = f"{file}: the index of the shard of array {name}"
    if stored.index:
        index = without_crc32c(index, label)
    if len(index) != math.prod(inner) * 2 * _ENTRY.itemsize:
        raise DataError(f"{label} is incomplete", hint="the store is damaged; generate or fetch the store again")
    entries = np.frombuffer(index, _ENTRY).reshape(*inner, 2)[tuple(slice(count) for count in grid)].reshape(-1, 2)
    there = (entries != _MISSING).any(axis=1)
    begin, count = entries[:, 0], entries[:, 1]
    if bool(((begin > size) | (count > size - np.minimum(begin, size)) | (count == 0))[there].any()):
        raise DataError(f"{label} points beyond its end", hint="the store is damaged; generate or fetch it again")
    return (
        np.where(there, begin, 0).astype(np.int64) - np.where(there, 0, 1),
        np.where(there, count, 0).astype(np.int64),
    )


def _stored(array: zarr.Array[Any], name: str, path: Path) -> _Encoding:
    metadata: Any = array.metadata.to_dict()
    if metadata["zarr_format"] == 2:
        if metadata["order"] != "C" and array.ndim > 1:
            raise _refused(path, name, "in Fortran (column-major) order")
        codecs = [*(metadata["filters"] or ()), *([metadata["compressor"]] if metadata["compressor"] else ())]
        turned = () if np.dtype(array.dtype).isnative else (TURNED,)
        return _Encoding(array.chunks, array.chunks, (*turned, *_filters([c["id"] for c in codecs], name, path)))
    codecs = metadata["codecs"]
    outer = tuple(metadata["chunk_grid"]["configuration"]["chunk_shape"])
    if len(codecs) != 1 or codecs[0]["name"] != "sharding_indexed":
        return _Encoding(outer, outer, _of_codecs(codecs, np.dtype(array.dtype), name, path))
    shard = codecs[0]["configuration"]
    index = _of_codecs(shard["index_codecs"], np.dtype(np.uint64), name, path)
    if index not in ((), (CRC32C,)):
        raise _refused(path, name, "with an encoded index of its shard")
    return _Encoding(
        outer, tuple(shard["chunk_shape"]), _of_codecs(shard["codecs"], np.dtype(array.dtype), name, path), index,
        shard.get("index_location", "end") == "end",
    )  # fmt: skip


def _of_codecs(codecs: Sequence[dict[str, Any]], dtype: np.dtype[Any], name: str, path: Path) -> tuple[str, ...]:
    """Filters of version 3: the codec ``bytes``, and behind it those of bytes."""
    if codecs[0]["name"] != "bytes":
        raise _refused(path, name, f"with the codec {codecs[0]['name']}")
    endian = codecs[0].get("configuration", {}).get("endian", sys.byteorder)
    turned = (TURNED,) if endian != sys.byteorder and dtype.itemsize > 1 else ()
    return (*turned, *_filters([codec["name"] for codec in codecs[1:]], name, path))


def _filters(names: Sequence[str], name: str, path: Path) -> list[str]:
    for codec in names:
        if codec not in _KNOWN:
            raise _refused(path, name, f"with the codec {codec}")
    return [_KNOWN[codec] for codec in names]


def _refused(path: Path, name: str, way: str) -> DataError:
    return DataError(
        f"{path}: array {name} is stored {way}, which loader.engine=decoupled cannot read",
        hint=f"use only the codecs bytes, {', '.join(sorted(_KNOWN))}, or {_OTHER_WAY}",
    )
