"""Format ``zarr``: stores of Zarr, version 3 or 2, through zarr-python.

A fixed-length field ``f`` is an array of shape (samples, *shape).  A variable-length one has shape (all rows, *shape),
and beside it lies ``f_extents`` of shape (samples, 2): first row and number of rows.  A store is a folder; each chunk,
or each shard of several chunks, is a file in it.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.chunk_shapes import field_chunk
from dlio_torch.formats.core.format import FileInfo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX, check_table_names, table_of
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.zarr.facts import METADATA
from dlio_torch.formats.zarr.layout import store_layout
from dlio_torch.formats.zarr.options import ZarrConfig
from dlio_torch.formats.zarr.reader import EXTENT, ZarrReader
from dlio_torch.formats.zarr.zarr_library import need_zarr
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.ownership.names import literal

if TYPE_CHECKING:
    import zarr

_BAND_BYTES = 8 << 20  # rows that are handed to the library at a time
_TRIAL_BYTES = 256 << 10
_OF_READING = ("reopen", "concurrency", "max_workers")  # options that do not change the bytes of a store
_GROUP = 66  # bytes of the metadata of a group
_INDEX_ENTRY = 16  # bytes of a chunk's offset and length in a shard's index


class ZarrFormat(FieldFormat):
    """Arrays of ``dataset.fields`` in Zarr stores."""

    name: ClassVar[str] = "zarr"
    suffix: ClassVar[str] = ".zarr"
    has_layout: ClassVar[bool] = True
    in_folders: ClassVar[bool] = True
    may_crash: ClassVar[bool] = True  # numcodecs decodes in C; and no thread of the library is there at a fork
    writes_at_once: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: ZarrConfig = config.of(ZarrConfig)
        super().__init__(config, seed)
        self._compressibility = self.options.compressibility
        need_zarr()
        check_table_names(self._specs)
        for field, spec in zip(config.fields, self._specs, strict=True):
            if self.options.root == "array" and (len(self._specs) > 1 or spec.variable):
                raise ConfigError(
                    "dataset.zarr.root=array means that a store is one array, but dataset.fields names "
                    + (f"{len(self._specs)} arrays" if len(self._specs) > 1 else "a variable-length one"),
                    hint="name one fixed-length field, or set dataset.zarr.root=group",
                )
            field_chunk(field, 1, self.options.chunk_bytes)  # a wrong chunk is told before anything is written

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        for key in _OF_READING:
            del options[key]
        return options

    # --- its files ---

    def is_there(self, path: Path) -> bool:
        return any((path / name).is_file() for name in METADATA)

    def files(self, path: Path) -> list[Path]:
        inside = sorted(Path(parent, name) for parent, _, names in os.walk(path) for name in names)
        return inside or [path / METADATA[0]]

    def stored_size(self, path: str) -> int | None:
        if not self.is_there(Path(path)):
            return None
        try:
            return sum(os.stat(file).st_size for file in self.files(Path(path)))
        except OSError:  # it is being removed
            return None

    def listed(self, name: str) -> list[str]:
        store = f"{name}{literal(self.suffix)}"
        entries = [f"{store}/zarr.json"]
        for array, axes in self._stored():
            parts = array.split("/") if array else []
            for depth in range(1, len(parts) + 1):
                entries.append("/".join([store, *map(literal, parts[:depth]), "zarr.json"]))
            entries.append("/".join([store, *map(literal, parts), "c", *["*"] * axes]))
        return list(dict.fromkeys(entries))

    def _stored(self) -> Iterator[tuple[str, int]]:
        """Name and number of axes of each array in a store."""
        for spec in self._specs:
            yield "" if self.options.root == "array" else spec.name, 1 + len(spec.shape)
            if spec.variable:
                yield spec.name + EXTENTS_SUFFIX, 2

    # --- writing ---

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        import zarr
        from zarr.storage import LocalStore

        store = LocalStore(path)
        if self.options.root == "group":
            zarr.create_group(store, zarr_format=3)
        for number, spec in enumerate(self._specs):
            rows = self.rows(number, first_sample, num_samples)
            chunk, shard = self._chunks(number, int(rows.sum()))
            array = self._create(store, spec.name, (int(rows.sum()), *spec.shape), spec.dtype, chunk, shard)
            whole = shard or chunk
            # A band is whole shards or chunks, so that none is written, read and written again.
            band = whole[0] * max(1, _BAND_BYTES // (math.prod((whole[0], *spec.shape)) * spec.dtype.itemsize))
            start = 0
            for block in in_bands(self.blocks(number, first_sample, num_samples, pool), band):
                array[start : start + len(block)] = block
                start += len(block)
            if spec.variable:
                table = table_of(rows, EXTENT)
                self._create(store, spec.name + EXTENTS_SUFFIX, table.shape, EXTENT, table.shape, None)[...] = table

    def _create(
        self,
        store: Any,
        name: str,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        chunk: tuple[int, ...],
        shard: tuple[int, ...] | None,
    ) -> zarr.Array[Any]:
        import zarr

        return zarr.create_array(
            store,
            name=None if self.options.root == "array" else name,
            shape=shape,
            dtype=dtype,
            chunks=chunk,
            shards=shard,
            compressors=self._codec(),
            filters=None,
            fill_value=0,
            config={"write_empty_chunks": True},  # what is read does not depend on the content
        )

    def _codec(self) -> Any:
        from zarr.codecs import BloscCodec, ZstdCodec

        from dlio_torch.formats.zarr.repeatable_gzip import RepeatableGzipCodec

        level = self.options.compression_level
        codecs: dict[str, Callable[[], Any]] = {
            "none": lambda: None,
            "zstd": lambda: ZstdCodec(level=level),
            "gzip": lambda: RepeatableGzipCodec(level=level),
            "blosc": lambda: BloscCodec(cname="lz4", clevel=level, shuffle="shuffle"),
        }
        return codecs[self.options.compression]()

    def _chunks(self, number: int, rows: int) -> tuple[tuple[int, ...], tuple[int, ...] | None]:
        """Shapes of a chunk and of a shard, if there are shards, of a field's array with ``rows`` rows."""
        field, spec = self.config.fields[number], self._specs[number]
        chunk = field_chunk(field, max(1, rows), self.options.chunk_bytes)
        assert chunk is not None
        if not self.options.shard_bytes:
            return chunk, None
        inner = [-(-length // part) * part for length, part in zip(spec.shape, chunk[1:], strict=True)]
        layer = math.prod([chunk[0], *inner]) * spec.dtype.itemsize
        layers = min(max(1, self.options.shard_bytes // layer), -(-max(1, rows) // chunk[0]))
        return chunk, (chunk[0] * layers, *inner)

    def stored_bytes(self) -> float:
        samples = self.config.samples_per_file
        total = float(_GROUP)
        for number, (field, spec) in enumerate(zip(self.config.fields, self._specs, strict=True)):
            rows = max(1, round(samples * (field.length_mean or 1)))
            chunk, shard = self._chunks(number, rows)
            counts = [-(-length // part) for length, part in zip((rows, *spec.shape), chunk, strict=True)]
            # Chunks at the edges are stored whole.
            size = math.prod(counts) * math.prod(chunk) * spec.dtype.itemsize
            total += size * self._ratio(number, chunk) + (_INDEX_ENTRY * math.prod(counts) if shard else 0)
            total += self._in_memory(spec.name, (rows, *spec.shape), spec.dtype, chunk, shard).nbytes_stored()
            if spec.variable:
                shape = (samples, 2)
                table = self._in_memory(spec.name, shape, EXTENT, shape, None)
                total += table.nbytes_stored() + table.nbytes
        return total / samples

    def _ratio(self, number: int, chunk: tuple[int, ...]) -> float:
        """Compression ratio (stored bytes / bytes in memory) of a trial chunk."""
        if self.options.compression == "none":
            return 1.0
        spec = self._specs[number]
        count = min(math.prod(chunk), max(1, _TRIAL_BYTES // spec.dtype.itemsize))
        samples = max(1, math.ceil(count / max(1.0, self.field_bytes(number) / spec.dtype.itemsize)))
        content = self.column(number).elements(0, samples)[:count]
        if not len(content):
            return 1.0
        array = self._in_memory(spec.name, content.shape, spec.dtype, content.shape, None)
        metadata = array.nbytes_stored()
        array[...] = content
        return float((array.nbytes_stored() - metadata) / content.nbytes)

    def _in_memory(self, name: str, *arguments: Any) -> zarr.Array[Any]:
        """Creates an array of the same layout in memory; arguments are those of ``_create``."""
        from zarr.storage import MemoryStore

        memory: Any = MemoryStore
        return self._create(memory(), name, *arguments)

    # --- reading ---

    def inspect(self, path: Path) -> FileInfo:
        with closing(ZarrReader(path, self._specs, self.options)) as reader:
            # Metadata do not state the bytes of a chunk: the last one is read, as it is what a stopped copy lacks.
            if reader.num_samples:
                reader.read(reader.num_samples - 1, 1, BatchBuffer(self._specs, [0]), 0)
            return FileInfo(reader.num_samples, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return ZarrReader(path, self._specs, self.options)

    def layout(self, path: Path) -> FileLayout:
        return store_layout(path, self._specs, self.options)


def in_bands(blocks: Iterator[npt.NDArray[Any]], rows: int) -> Iterator[npt.NDArray[Any]]:
    """Cuts blocks of rows into blocks of ``rows`` rows each; the last one may have fewer."""
    waiting: list[npt.NDArray[Any]] = []
    present = 0
    for block in blocks:
        waiting.append(block)
        present += len(block)
        if present >= rows:
            joined = np.concatenate(waiting) if len(waiting) > 1 else waiting[0]
            whole = present // rows * rows
            for start in range(0, whole, rows):
                yield joined[start : start + rows]
            waiting, present = [joined[whole:]], present - whole
    if present:
        yield np.concatenate(waiting)
