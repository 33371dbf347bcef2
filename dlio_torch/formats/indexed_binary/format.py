"""Format ``indexed_binary``: flat files of the elements of all samples, located by an index file.

The layout and the calls are Megatron-LM's: ``access=file`` opens, seeks, reads and closes the ``.bin`` for
each piece (its --no-mmap-bin-files), ``access=mmap`` copies pieces out of the mapped file.  With
``document_mean`` samples of a fixed length are cut from documents in shuffled order, as its GPTDataset cuts them
(:mod:`dlio_torch.formats.indexed_binary.gpt_index`); one that crosses a boundary is read in a piece for each
document.  Without an index the file is records of equal size, as the binary rows of DLRM.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import closing
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.buffered_file import companion_path
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.format import FileInfo, MpiIo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.indexed_binary.file import BinFile, DirectFile, MappedFile, ReadFile
from dlio_torch.formats.indexed_binary.gpt_content import document_tokens
from dlio_torch.formats.indexed_binary.gpt_index import EXTRA, GptCache, GptIndex, build_gpt_index
from dlio_torch.formats.indexed_binary.index import CODES, MAX_LENGTH, SUFFIX, SequenceIndex, read_index, write_index
from dlio_torch.formats.indexed_binary.options import BinaryConfig
from dlio_torch.formats.indexed_binary.reader import BinaryReader, DocumentReader, RecordReader, SequenceReader
from dlio_torch.iotrace.recorder.spans import NULL, Recorder
from dlio_torch.ownership.names import literal

_BLOCK = 1 << 20  # samples whose lengths are drawn at a time
_DOCUMENTS = 1  # stream of the lengths of documents
SHORTEST = 2
"""Minimum number of elements of a document."""


class IndexedBinaryFormat(FieldFormat):
    """The one array of ``dataset.fields`` in ``.bin`` files."""

    name: ClassVar[str] = "indexed_binary"
    suffix: ClassVar[str] = ".bin"
    reads_direct: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True
    mpi_io: ClassVar[MpiIo] = "extents"
    writes_at_once: ClassVar[bool] = True
    layout_version: ClassVar[int] = 2

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: BinaryConfig = config.of(BinaryConfig)
        super().__init__(config, seed)
        options = self.options
        if len(self._specs) > 1:
            raise ConfigError(
                f"dataset.fields names {len(self._specs)} arrays, but a sample of dataset.format={self.name} has one "
                "array",
                hint="describe the sample by one field",
            )
        self._spec = self._specs[0]
        # Types that an index does not know are stored as bytes.
        self._element = self._spec.dtype if self._spec.dtype.name in CODES else np.dtype(np.uint8)
        self._row = math.prod(self._spec.shape) * self._spec.dtype.itemsize // self._element.itemsize
        if options.index and self._row > MAX_LENGTH:
            raise ConfigError(
                f"dataset.fields: {self._spec.name} has {self._row} elements, but an index allows at most "
                f"{MAX_LENGTH} per sample",
                hint="set dataset.binary.index=false, or a smaller shape",
            )
        if self._spec.variable and not options.index:
            raise ConfigError(
                f"dataset.binary.index=false cannot be used with the variable-length field {self._spec.name!r}: "
                "records without an index have equal sizes",
                hint="set dataset.binary.index=true",
            )
        if config.direct_io and options.access == "mmap":
            raise ConfigError(
                "dataset.direct_io=true cannot be used with dataset.binary.access=mmap: mapped files use the page "
                "cache",
                hint="set dataset.binary.access=file, or dataset.direct_io=false",
            )
        if options.document_mean > 0 and (self._spec.variable or not options.index):
            raise ConfigError(
                f"dataset.binary.document_mean={options.document_mean:g} needs samples of a fixed length and an index",
                hint="set dataset.binary.document_mean=0, or give the field a shape and no length_mean",
            )
        if 0 < options.document_mean < SHORTEST:
            raise ConfigError(
                f"dataset.binary.document_mean={options.document_mean:g} is below the minimum of {SHORTEST} elements "
                "per document",
                hint=f"set dataset.binary.document_mean to {SHORTEST} or more, or to 0 to store samples as single "
                "documents",
            )

    def layout_options(self) -> dict[str, Any]:
        options = self.options
        return {
            **super().layout_options(),
            "index": options.index,
            "documents": [options.document_mean, options.document_stdev],
        }

    def stored_bytes(self) -> float:
        if not self.options.index:
            return self.sample_bytes()
        if self.options.document_mean <= 0:
            return self.sample_bytes() + 20
        documents = self._row / self.options.document_mean  # of a sample
        return self.sample_bytes() + 24 * documents + 12  # with the document, sample and shuffle index

    def companion_files(self, path: str) -> Sequence[str]:
        if not self.options.index:
            return []
        place = Path(path)
        caches = self._cache(place).paths() if self.options.document_mean > 0 else []
        return [str(companion) for companion in (companion_path(place, self.suffix, SUFFIX), *caches)]

    def listed(self, name: str) -> list[str]:
        folder = name[: name.rfind("/") + 1]
        names = [f"{name}{literal(suffix)}" for suffix in (self.suffix, *((SUFFIX,) if self.options.index else ()))]
        # The names of the caches begin with a hash of the path.
        return names + ([f"{folder}*{ending}" for ending in GptCache.ENDINGS] if self.options.document_mean > 0 else [])

    def _cache(self, path: Path) -> GptCache:
        return GptCache(companion_path(path, self.suffix, ""), self._row, self.seed)

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        place = companion_path(path, self.suffix, SUFFIX)
        if self.options.document_mean > 0:
            documents = self._documents(first_sample, num_samples * self._row + EXTRA)
            gpt = build_gpt_index(documents, self._row, self.seed)
            write_index(place, self._element, len(documents), lambda: [documents])
            self._cache(path).save(gpt)
            with path.open("wb") as file:
                for tokens in document_tokens(self.column(0), self._row, documents, gpt, first_sample, pool):
                    file.write(tokens.data)
            return
        if self.options.index:
            write_index(place, self._element, num_samples, lambda: self._lengths(first_sample, num_samples))
        with path.open("wb") as file:
            self.write_pieces(file, 0, first_sample, num_samples, pool)

    def _lengths(self, first: int, count: int) -> Iterator[npt.NDArray[np.int64]]:
        """Elements of each sample of a file, in blocks, since the lengths of 10**8 samples do not fit into memory."""
        for low in range(first, first + count, _BLOCK):
            yield self.rows(0, low, min(_BLOCK, first + count - low)) * self._row

    def _documents(self, first: int, elements: int) -> npt.NDArray[np.int64]:
        """Elements of the documents that a file's samples are cut from, in file order; the last document is truncated.

        Empty documents are left out and an end-of-document token is appended to each (Megatron-LM,
        tools/preprocess_data.py, ``Encoder.encode``), so that none has fewer than two.
        """
        options = self.options
        mean = options.document_mean
        drawn = np.zeros(0, np.int64)
        while drawn.sum() < elements:
            more = 16 + int((elements - drawn.sum()) / mean)
            lengths = payload.document_lengths(
                self.seed, _DOCUMENTS, first + len(drawn), more, mean, options.document_stdev, (SHORTEST, MAX_LENGTH)
            )
            drawn = np.concatenate([drawn, lengths])
        ends = np.cumsum(drawn)
        last = int(np.searchsorted(ends, elements))
        drawn[last] -= ends[last] - elements
        return drawn[: last + 1]

    def inspect(self, path: Path) -> FileInfo:
        with closing(self._open(path)) as reader:
            return FileInfo(reader.num_samples, reader.describe())

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return self._open(path)

    def layout(self, path: Path) -> FileLayout:
        with closing(self._open(path)) as reader:
            return FileLayout(reader.num_samples, {self._spec.name: reader.layout()})

    def _open(self, path: Path) -> BinaryReader:
        options = self.options
        if not path.exists():
            raise open_error(path, FileNotFoundError())
        reading: type[BinFile] = DirectFile if self.config.direct_io else ReadFile
        file = MappedFile(path) if options.access == "mmap" else reading(path)  # before the index, as Megatron-LM
        try:
            if not options.index:
                return RecordReader(file, self._spec)
            index = self._index(path)
            if options.document_mean <= 0:
                return SequenceReader(file, self._spec, index)
            return DocumentReader(file, self._spec, index, self._gpt(path, index))
        except BaseException:
            file.close()
            raise

    def _gpt(self, path: Path, index: SequenceIndex) -> GptIndex:
        try:
            cached = self._cache(path).load()
        except DataError as error:
            raise DataError(f"{path} has no usable index of samples: {error.message}", hint=error.hint) from error
        # Of data from elsewhere, every process makes its own.
        return cached if cached is not None else build_gpt_index(index.lengths, self._row, self.seed)

    def _index(self, path: Path) -> SequenceIndex:
        place = companion_path(path, self.suffix, SUFFIX)
        try:
            index = read_index(place)
        except DataError as error:
            raise DataError(f"{path} has no usable index: {error.message}", hint=error.hint) from error
        if index.dtype != self._element:
            raise DataError(
                f"{path}: the index states element type {index.dtype}, but dataset.fields expect {self._element}",
                hint="correct the dtype in dataset.fields",
            )
        return index
