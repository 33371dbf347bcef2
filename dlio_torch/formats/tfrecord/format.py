"""Format ``tfrecord``: TFRecord files with one Example proto per sample, read as TensorFlow reads them.

``stream`` reads a file as TensorFlow does, from its start in pieces of ``transfer_size``; an index beside the
file (``dataset.tfrecord.index``) is for the reading of single samples (:mod:`dlio_torch.formats.tfrecord.reader`).

Arrays are byte strings of their memory, except integers of 64 bits, which are lists of integers as
labels are, and those that ``dataset.tfrecord.float_lists`` names.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from concurrent.futures import Executor
from contextlib import closing
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.format import FileInfo
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.layout_in_memory import held_samples
from dlio_torch.formats.core.ordered_map import in_order
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.tfrecord.example_proto import Feature, Kind, Piece, encode
from dlio_torch.formats.tfrecord.framing import FRAMING, crc32c, deflated, gzipped, view_of
from dlio_torch.formats.tfrecord.index import INDEX, RecordIndex
from dlio_torch.formats.tfrecord.layout import RecordFiles
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.formats.tfrecord.reader import TfrecordReader
from dlio_torch.formats.tfrecord.record_block import SMALL, by_columns, one_by_one
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

CLASSES = 1000
"""Exclusive upper limit of generated integers, which are 0 to 999 like the labels of ImageNet."""

_BLOCK_BYTES = 1 << 20  # payload made by one task
_AHEAD_BYTES = 64 << 20  # payload held in memory while a file is written
_TRIAL_BYTES = 256 << 10


class TfrecordFormat(FieldFormat):
    """Arrays of ``dataset.fields`` as features of Example protos."""

    name: ClassVar[str] = "tfrecord"
    suffix: ClassVar[str] = ".tfrecord"
    writes_at_once: ClassVar[bool] = True
    reads_direct: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: TfrecordConfig = config.of(TfrecordConfig)
        super().__init__(config, seed)
        crc32c()  # a missing package is told before anything is written
        self._compressibility = self.options.compressibility
        self._check_options()
        self._features = [Feature(spec, self._kind(spec)) for spec in self._specs]

    def _check_options(self) -> None:
        options = self.options
        unknown = sorted(set(options.float_lists) - {spec.name for spec in self._specs})
        if unknown:
            raise ConfigError(
                f"dataset.tfrecord.float_lists names {unknown[0]!r}, which is not a field of dataset.fields",
                hint="correct the name in dataset.tfrecord.float_lists, or add the field",
            )

    def _kind(self, spec: ArraySpec) -> Kind:
        if spec.name not in self.options.float_lists:
            return "integers" if spec.dtype == np.int64 else "bytes"
        if spec.dtype != np.float32:
            raise ConfigError(
                f"dataset.fields: {spec.name}: dtype={spec.dtype.name} cannot be stored as a list of floats "
                "(dataset.tfrecord.float_lists)",
                hint=f"set dtype=float32, or remove {spec.name} from dataset.tfrecord.float_lists",
            )
        return "floats"

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        del options["transfer_size"], options["verify_crc"]  # belong to reading
        if self.options.compression == "none":
            del options["compression_level"]
        return options

    # --- content ---

    def content(self, number: int, first: int, count: int) -> list[npt.NDArray[np.generic]]:
        return [self._stored(number, array) for array in super().content(number, first, count)]

    def _stored(self, number: int, values: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
        return (
            (values.view(np.uint64) % CLASSES).view(np.int64) if self._features[number].kind == "integers" else values
        )

    def stored_bytes(self) -> float:
        total = float(FRAMING)
        for number, feature in enumerate(self._features):
            size = self.field_bytes(number)
            if feature.kind == "integers":
                size /= 4  # all but the first 128 of the classes take two bytes of eight
            # Tags and lengths of the messages around a byte string of this size.
            around = len(feature.spec.name) + 2 + 5 * (1 + -(-max(1, int(size).bit_length()) // 7))
            total += size * self._ratio(number) + around
        return total

    def _ratio(self, number: int) -> float:
        """Compression ratio of a field (stored bytes / bytes in memory), from a trial."""
        if self.options.compression == "none":
            return 1.0
        memory = self.content(number, 0, 1)[0].reshape(-1)
        trial = replace(self._features[number].spec, shape=(), variable=True)
        piece = encode([replace(self._features[number], spec=trial)], {trial.name: memory[: _TRIAL_BYTES // 8]})[2]
        return len(zlib.compress(view_of(piece), self.options.compression_level)) / len(piece)

    # --- writing ---

    def companions(self) -> tuple[str, ...]:
        """Suffixes of the companion files that ``write`` creates; each is appended to the name of the file."""
        return (INDEX,) if self.options.index else ()

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        lengths: list[npt.NDArray[np.int64]] = []

        def records() -> Iterator[memoryview]:
            for pieces, sizes in self._records(first_sample, num_samples, pool):
                lengths.append(sizes)
                yield from map(view_of, pieces)

        with path.open("wb", buffering=_BLOCK_BYTES) as file:
            if self.options.compression != "none":
                stream = gzipped if self.options.compression == "gzip" else deflated
                file.writelines(stream(records(), self.options.compression_level, pool))
            else:
                file.writelines(records())
        if self.options.index:
            index = RecordIndex(np.cumsum([0, *np.concatenate(lengths)], dtype=np.int64))
            path.with_name(path.name + INDEX).write_text(index.text(), encoding="ascii")

    def _records(
        self, first_sample: int, num_samples: int, pool: Executor
    ) -> Iterator[tuple[list[Piece], npt.NDArray[np.int64]]]:
        """Yields groups of framed records and the bytes of each record; the threads of ``pool`` generate them."""
        step = max(1, int(_BLOCK_BYTES // max(1.0, self.sample_bytes())))
        ahead = max(4, int(_AHEAD_BYTES // max(_BLOCK_BYTES, self.sample_bytes())))
        fields = range(len(self._specs))
        small = self.sample_bytes() <= SMALL and not any(spec.variable for spec in self._specs)

        def block(low: int) -> tuple[list[Piece], npt.NDArray[np.int64]]:
            first, count = first_sample + low, min(step, num_samples - low)
            if not small:
                return one_by_one(self._features, [self.content(number, first, count) for number in fields])
            rows = [self._stored(number, self.column(number).elements(first, count)) for number in fields]
            return by_columns(self._features, [elements.reshape(count, -1) for elements in rows])

        yield from in_order(pool, block, range(0, num_samples, step), ahead)

    # --- reading ---

    def inspect(self, path: Path) -> FileInfo:
        reader = self._open(path)
        try:
            features = {name: [array.dtype.name, *array.shape] for name, array in next(reader.samples()).items()}
            return FileInfo(reader.count(), {"compression": self.options.compression, "features of record 0": features})
        finally:
            reader.close()

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return self._open(path)

    def _open(self, path: Path) -> TfrecordReader:
        return TfrecordReader(path, self._features, self.options, direct=self.config.direct_io)

    @cached_property
    def _record_files(self) -> RecordFiles:
        return RecordFiles(self._features, self.options)

    def layout(self, path: Path) -> FileLayout:
        """The layout of a file; a compressed file is held in memory, since no sample can be decompressed alone."""
        with os_errors(path):
            if self.options.compression == "none":
                return self._record_files.layout(path)
            with closing(self._open(path)) as reader:
                arrays, count = held_samples(path, self._specs, reader.samples())
            return FileLayout(count, arrays, read_bytes=path.stat().st_size)

    def stream(self, reader: Reader) -> Iterator[Sample]:
        if not isinstance(reader, TfrecordReader):
            return super().stream(reader)
        return reader.samples()
