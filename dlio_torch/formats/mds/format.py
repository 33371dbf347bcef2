"""Format ``mds``: shards of MosaicML Streaming, read without its library.

A file is a shard; ``index.json`` beside the shards of a folder describes them to the library.  The samples of a shard
are read as ``StreamingDataset`` reads them from its local folder: the file is opened for each.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.format import FileInfo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.mds.encodings import encoding_of, parsed, prefix_sizes
from dlio_torch.formats.mds.facts import INDEX
from dlio_torch.formats.mds.index import check_complete, read_index, shard_config, write_index
from dlio_torch.formats.mds.layout import layout_of
from dlio_torch.formats.mds.reader import MdsReader
from dlio_torch.formats.mds.sample_columns import SampleColumns, sample_bytes
from dlio_torch.formats.mds.shard import WORD, ShardHead, StoredColumn, read_head
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

_PIECE_BYTES = 1 << 20  # of samples that one thread makes at a time
_AHEAD = 8
_MOST_BYTES = (1 << 32) - 1  # that an offset reaches


class MdsFormat(FieldFormat):
    """The arrays of ``dataset.fields`` as columns of ``.mds`` shards."""

    name: ClassVar[str] = "mds"
    suffix: ClassVar[str] = ".mds"
    has_layout: ClassVar[bool] = True
    writes_at_once: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        for spec in self._specs:
            if not encoding_of(spec):
                raise ConfigError(
                    f"dataset.fields: {spec.name}: MDS has no encoding for dtype={spec.dtype}",
                    hint="use another dtype, such as uint8",
                )

    def _stored(self) -> list[tuple[int, ArraySpec, StoredColumn]]:
        """Number, field and column of each array, in the order of storage, which is that of their names."""
        stored = []
        for number, spec in enumerate(self._specs):
            encoding = encoding_of(spec)
            stored.append((number, spec, StoredColumn(spec.name, encoding, parsed(encoding).size)))
        return sorted(stored, key=lambda entry: entry[1].name)

    def _sizes(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Bytes of ``count`` samples from ``first`` on."""
        sizes = np.zeros(count, np.int64)
        for number, spec, column in self._stored():
            if column.size is not None:
                sizes += column.size
                continue
            rows = self.rows(number, first, count)
            sizes += WORD + rows * int(np.prod(spec.shape, dtype=np.int64)) * spec.dtype.itemsize
            if column.parsed.kind == "ragged":
                sizes += prefix_sizes(spec, rows)
        return sizes

    def _config(self) -> bytes:
        columns = tuple(column for _, _, column in self._stored())
        return json.dumps(shard_config(columns), sort_keys=True).encode()

    def stored_bytes(self) -> float:
        samples = max(1, self.config.samples_per_file)
        looked_at = min(samples, 1000)
        return WORD + (2 * WORD + len(self._config())) / samples + float(self._sizes(0, looked_at).mean())

    def listed(self, name: str) -> list[str]:
        return [*super().listed(name), f"{name[: name.rfind('/') + 1]}{INDEX}"]

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        stored, config = self._stored(), self._config()
        sizes = self._sizes(first_sample, num_samples)
        begin = WORD * (num_samples + 2) + len(config)
        if begin + sizes.sum() > _MOST_BYTES:
            raise ConfigError(
                f"dataset.samples_per_file={num_samples} makes a shard of {begin + sizes.sum()} bytes, but its offsets "
                f"reach {_MOST_BYTES}",
                hint="lower dataset.samples_per_file and raise dataset.num_files",
            )
        step = max(1, int(_PIECE_BYTES // max(1, sizes.mean())))

        def piece(low: int) -> bytes:
            count = min(step, num_samples - low)
            columns = [self.content(number, first_sample + low, count) for number, _, _ in stored]
            pairs = [(spec, column) for _, spec, column in stored]
            return b"".join(sample_bytes(pairs, arrays) for arrays in zip(*columns, strict=True))

        offsets = begin + np.concatenate([[0], np.cumsum(sizes)])
        with path.open("wb") as file:
            file.write(np.array([num_samples], "<u4").tobytes() + offsets.astype("<u4").tobytes() + config)
            for samples in in_order(pool, piece, range(0, num_samples, step), _AHEAD):
                file.write(samples)

    def index_folder(self, folder: Path, names: Sequence[str]) -> None:
        write_index(folder, list(names))

    def select(self, folder: Path, names: Sequence[str]) -> Sequence[str]:
        check_complete(folder, names)
        return names

    def inspect(self, path: Path) -> FileInfo:
        columns, head = self._read(path)
        return FileInfo(head.num_samples, {"columns": {c.name: c.encoding for c in columns.columns}})

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        index = read_index(path.parent)
        if index is None or path.name not in index:
            columns, head = self._read(path)
            return MdsReader(columns, head.num_samples)
        entry = index[path.name]
        try:
            size = os.stat(path).st_size
        except OSError as error:
            raise open_error(path, error) from error
        if size != entry.bytes:
            raise DataError(
                f"{path} has {size} bytes, but {path.parent / INDEX} says {entry.bytes}",
                hint="the shard is incomplete or of another data set; replace it",
            )
        return MdsReader(SampleColumns.of(path, entry.columns, self._specs), entry.samples)

    def layout(self, path: Path) -> FileLayout:
        return layout_of(*self._read(path))

    def _read(self, path: Path) -> tuple[SampleColumns, ShardHead]:
        head = read_head(path)
        return SampleColumns.of(path, head.columns, self._specs), head
