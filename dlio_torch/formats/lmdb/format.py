"""Format ``lmdb``: memory-mapped B+ trees, one entry for each array of a sample, read as vision data sets are.

``env = lmdb.open(path, readonly=True, lock=False, readahead=False, meminit=False)`` and
``with env.begin() as txn: txn.get(key)`` map the file and read by page faults: a value that is larger than half a page
lies in pages of its own.  Values are the bytes of arrays, or whatever the file has, as ``uint8``.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.format import FileInfo, MpiIo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.lmdb.entry_keys import check_keys, entry_key
from dlio_torch.formats.lmdb.facts import DATA, LOCK
from dlio_torch.formats.lmdb.layout import file_layout
from dlio_torch.formats.lmdb.options import LmdbConfig
from dlio_torch.formats.lmdb.reader import LmdbReader
from dlio_torch.formats.lmdb.shared_environments import data_file, library
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

_PAGE = os.sysconf("SC_PAGE_SIZE")
_PAGE_HEADER = 16
_NODE_HEADER = 8
_POINTER = 2
_PAGE_NUMBER = 8
_META_PAGES = 2
_BRANCHES = 100  # leaf pages below a branch page, about
_SPARE = 4 << 20  # of the map, for pages that commits leave behind
_COMMIT_BYTES = 64 << 20


class LmdbFormat(FieldFormat):
    """Arrays of ``dataset.fields`` as values of an LMDB environment."""

    name: ClassVar[str] = "lmdb"
    suffix: ClassVar[str] = ".lmdb"
    members: ClassVar[tuple[str, ...]] = (DATA, LOCK)
    has_layout: ClassVar[bool] = True
    in_folders: ClassVar[bool] = True
    may_crash: ClassVar[bool] = True
    mpi_io: ClassVar[MpiIo] = "extents"
    writes_at_once: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: LmdbConfig = config.of(LmdbConfig)
        super().__init__(config, seed)
        library()
        check_keys(self.options, self._specs, generated=config.path is None)
        if not self.options.subdir:
            vars(self).update(in_folders=False, members=())

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        for name in ("readahead", "lock", "max_readers", "other_entries"):  # belong to reading
            del options[name]
        return options

    def is_there(self, path: Path) -> bool:
        return data_file(path).is_file()

    def files(self, path: Path) -> list[Path]:
        return [data_file(path)]

    def stored_size(self, path: str) -> int | None:
        return super().stored_size(str(data_file(Path(path))))

    # --- writing ---

    def stored_bytes(self) -> float:
        count = self.config.samples_per_file
        nodes, values = [], 0
        for number, spec in enumerate(self._specs):
            size = int(self.field_bytes(number))
            node = _NODE_HEADER + size + (len(entry_key(self.options, spec, 0)) if self.options.key else 0)
            if node > (_PAGE - _PAGE_HEADER) // 2 - _POINTER:  # the value gets pages of its own
                values += -(-(size + _PAGE_HEADER) // _PAGE)
                node += _PAGE_NUMBER - size
            nodes.append(node + node % 2 + _POINTER)  # nodes begin at even bytes
        whole = (_PAGE - _PAGE_HEADER) // max(nodes) * max(nodes)  # what whole nodes take of a page
        leaves = -(-count * sum(nodes) // whole)
        branches = (leaves > 1) + leaves // _BRANCHES
        return values * _PAGE + (leaves + branches + _META_PAGES) * _PAGE / count

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        lmdb = library()
        environment = lmdb.open(
            str(path), map_size=self._map_bytes(first_sample, num_samples), subdir=self.options.subdir, lock=False
        )
        try:
            transaction, waiting = environment.begin(write=True), 0
            last = b""
            for key, value in self._entries(first_sample, num_samples, pool):
                transaction.put(key, value, append=key > last)
                last, waiting = max(last, key), waiting + len(value)
                if waiting > _COMMIT_BYTES:
                    transaction.commit()
                    transaction, waiting = environment.begin(write=True), 0
            transaction.commit()
        finally:
            environment.close()

    def _map_bytes(self, first: int, count: int) -> int:
        """Size of the map, which the file states: more than its content can take."""
        content = 0
        for number, spec in enumerate(self._specs):
            rows = self.rows(number, first, count) * int(np.prod(spec.shape, dtype=np.int64)) * spec.dtype.itemsize
            content += int((-(-(rows + _PAGE_HEADER) // _PAGE) * _PAGE).sum()) + count * _PAGE // 2
        return -(-(content * 5 // 4 + _SPARE) // _PAGE) * _PAGE

    def _entries(self, first: int, count: int, pool: Executor) -> Iterator[tuple[bytes, memoryview]]:
        """Keys and values, sample by sample."""
        columns = [self._values(number, first, count, pool) for number in range(len(self._specs))]
        for index, values in enumerate(zip(*columns, strict=True)):
            for spec, value in zip(self._specs, values, strict=True):
                yield entry_key(self.options, spec, index), value

    def _values(self, number: int, first: int, count: int, pool: Executor) -> Iterator[memoryview]:
        """Bytes of field ``number`` of each sample."""
        spec = self._specs[number]
        ends = np.cumsum(self.rows(number, first, count))
        block, begun, low = b"", 0, 0
        row = int(np.prod(spec.shape, dtype=np.int64)) * spec.dtype.itemsize
        pieces = self.blocks(number, first, count, pool)
        for end in ends.tolist():
            while end * row > begun + len(block):
                begun += len(block)
                block = next(pieces).tobytes()
            yield memoryview(block)[low * row - begun : end * row - begun]
            low = end

    # --- reading ---

    def inspect(self, path: Path) -> FileInfo:
        with closing(LmdbReader(path, self.options, self._specs)) as reader:
            return FileInfo(reader.num_samples, reader.check_ends())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return LmdbReader(path, self.options, self._specs)

    def layout(self, path: Path) -> FileLayout:
        return file_layout(path, self.options, self._specs)
