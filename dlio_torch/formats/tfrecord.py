"""TFRecord files: one Example proto a sample, as TensorFlow's pipelines keep and read them.

``stream`` reads a file as TensorFlow does, from its start in pieces of ``transfer_size``.  Single samples
are read by an index, which lies beside the file (``dataset.tfrecord.index``) or is made from the records'
headers when it is first needed; in a compressed file they are reached by reading on from where the last
one was, or again from the start.

Arrays are byte strings of their memory, except integers of 64 bits, which are lists of integers as
labels are, and those that ``dataset.tfrecord.float_lists`` names.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from contextlib import contextmanager
from dataclasses import replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig, TfrecordConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.base import FileInfo, Reader, open_error
from dlio_torch.formats.batch import ArraySpec, BatchBuffer, Sample
from dlio_torch.formats.fieldformat import FieldFormat
from dlio_torch.formats.tfexample import Decoder, Feature, Kind, Octets, Piece, encode
from dlio_torch.formats.tfrecord_index import INDEX, Index, read_exactly, read_index, scan
from dlio_torch.formats.tfrecord_io import CRC, FRAMING, HEADER, Checker, crc32c, frame, gzipped, in_order, view_of
from dlio_torch.formats.tfrecord_stream import FileBytes, GzipBytes, Records
from dlio_torch.trace.spans import NULL, Recorder

CLASSES = 1000
"""Generated integers are 0 to 999, as the labels of ImageNet."""

_BLOCK_BYTES = 1 << 20  # payload made by one task
_AHEAD_BYTES = 64 << 20  # payload held in memory while a file is written
_TRIAL_BYTES = 256 << 10


class TfrecordFormat(FieldFormat):
    """Arrays of ``dataset.fields`` as features of Example protos."""

    name: ClassVar[str] = "tfrecord"
    suffix: ClassVar[str] = ".tfrecord"

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        crc32c()  # a missing package is told before anything is written
        self._options = config.tfrecord
        self._compressibility = self._options.compressibility
        self._check_options()
        self._features = [Feature(spec, self._kind(spec)) for spec in self._specs]

    def _check_options(self) -> None:
        options = self._options
        unknown = sorted(set(options.float_lists) - {spec.name for spec in self._specs})
        if unknown:
            raise ConfigError(
                f"dataset.tfrecord.float_lists names {unknown[0]!r}, which dataset.fields does not have",
                hint="correct the name",
            )
        if options.compression_level > 9:
            raise ConfigError(
                f"dataset.tfrecord.compression_level={options.compression_level} is no gzip level",
                hint="levels are 0 to 9",
            )
        if options.compressibility > 1:
            raise ConfigError(
                f"dataset.tfrecord.compressibility={options.compressibility} is no share",
                hint="0 is random, 1 is all zero",
            )

    def _kind(self, spec: ArraySpec) -> Kind:
        if spec.name not in self._options.float_lists:
            return "integers" if spec.dtype == np.int64 else "bytes"
        if spec.dtype != np.float32:
            raise ConfigError(
                f"dataset.fields: {spec.name}: dtype={spec.dtype.name} cannot be a list of floats",
                hint="set dtype=float32, or take it out of dataset.tfrecord.float_lists",
            )
        return "floats"

    def layout_options(self) -> dict[str, Any]:
        options = super().layout_options()
        del options["transfer_size"], options["verify_crc"]  # belong to reading
        if self._options.compression == "none":
            del options["compression_level"]
        return options

    # --- content ---

    def content(self, number: int, first: int, count: int) -> list[npt.NDArray[np.generic]]:
        made = super().content(number, first, count)
        if self._features[number].kind == "integers":
            return [(array.view(np.uint64) % CLASSES).view(np.int64) for array in made]
        return made

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
        """Compressed size of a field over its own size: a trial tells."""
        if self._options.compression == "none":
            return 1.0
        memory = self.content(number, 0, 1)[0].reshape(-1)
        trial = replace(self._features[number].spec, shape=(), variable=True)
        piece = encode([replace(self._features[number], spec=trial)], {trial.name: memory[: _TRIAL_BYTES // 8]})[2]
        return len(zlib.compress(view_of(piece), self._options.compression_level)) / len(piece)

    # --- writing ---

    def companions(self) -> tuple[str, ...]:
        """What the names of the files that ``write`` leaves beside its own have behind its name."""
        return (INDEX,) if self._options.index else ()

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        offsets = [0]

        def records() -> Iterator[memoryview]:
            for record in self._records(first_sample, num_samples, pool):
                offsets.append(offsets[-1] + sum(len(piece) for piece in record))
                yield from map(view_of, record)

        with path.open("wb", buffering=_BLOCK_BYTES) as file:
            if self._options.compression == "gzip":
                file.writelines(gzipped(records(), self._options.compression_level, pool))
            else:
                file.writelines(records())
        if self._options.index:
            index = Index(np.array(offsets, np.int64))
            path.with_name(path.name + INDEX).write_text(index.text(), encoding="ascii")

    def _records(self, first_sample: int, num_samples: int, pool: Executor) -> Iterator[list[Piece]]:
        """The framed records, made by the threads of ``pool``."""
        step = max(1, int(_BLOCK_BYTES // max(1.0, self.sample_bytes())))
        ahead = max(4, int(_AHEAD_BYTES // max(_BLOCK_BYTES, self.sample_bytes())))

        def block(low: int) -> list[list[Piece]]:
            first, count = first_sample + low, min(step, num_samples - low)
            columns = [self.content(number, first, count) for number in range(len(self._specs))]
            names = [spec.name for spec in self._specs]
            return [
                frame(encode(self._features, dict(zip(names, arrays, strict=True))))
                for arrays in zip(*columns, strict=True)
            ]

        for made in in_order(pool, block, range(0, num_samples, step), ahead):
            yield from made

    # --- reading ---

    def inspect(self, path: Path) -> FileInfo:
        reader = _TfrecordReader(path, self._features, self._options)
        try:
            features = {name: [array.dtype.name, *array.shape] for name, array in next(reader.samples()).items()}
            return FileInfo(
                reader.count(), {"compression": self._options.compression, "features of record 0": features}
            )
        finally:
            reader.close()

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return _TfrecordReader(path, self._features, self._options)

    def stream(self, reader: Reader) -> Iterator[Sample]:
        if not isinstance(reader, _TfrecordReader):
            return super().stream(reader)
        return reader.samples()


class _TfrecordReader(Reader):
    """An open file.

    Opening it reads the first transfer, which the first pass over the file then uses; or the index, if there
    is to be one.  Nothing else is read before it is asked for, so without an index ``num_samples`` is ``None``.
    """

    def __init__(self, path: Path, features: Sequence[Feature], options: TfrecordConfig) -> None:
        self._path = path
        self._options = options
        self._decoder = Decoder(features)
        self._checker = Checker(path, verify=options.verify_crc)
        self._compressed = options.compression == "gzip"
        self._cursor: Records | None = None  # where single reads of a compressed file have come to
        with self._errors():
            self._descriptor = os.open(path, os.O_RDONLY)
        try:
            with self._errors():
                self._listed = read_index(path) if options.index else None
                if self._listed is not None and not self._compressed:
                    self._listed.check_size(path, os.fstat(self._descriptor).st_size)
                self.num_samples = None if self._listed is None else len(self._listed)
                self._fresh: Records | None = self._records()
                if (self._listed is None or self._compressed) and self._fresh.peek() is None:
                    raise DataError(f"{path} holds no records", hint="remove it, or choose another path")
        except BaseException:
            self.close()
            raise

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise open_error(self._path, error) from error

    def _records(self) -> Records:
        """The records from the start on."""
        size, verify = self._options.transfer_size, self._options.verify_crc
        if self._compressed:
            return Records(GzipBytes(self._descriptor, size, self._path), self._path, verify=verify)
        return Records(FileBytes(self._descriptor, size), self._path, verify=verify)

    def _start(self) -> Records:
        """The same, with what the opening has read, if nobody has used it yet."""
        records, self._fresh = self._fresh or self._records(), None
        return records

    def count(self) -> int:
        """Samples in the file, by a look at every record.

        Raises:
            DataError: a record is damaged, or the index tells of another number.
        """
        if not self._compressed:
            return len(self._index)
        with self._errors():
            records = self._records()
            while records.next(verify=False) is not None:
                pass
        if self._listed is not None:
            self._listed.check_size(self._path, records.offset)
        return records.number

    @cached_property
    def _index(self) -> Index:
        if self._listed is not None:
            return self._listed
        with self._errors():
            return scan(self._descriptor, self._checker)

    def samples(self) -> Iterator[Sample]:
        """All samples, from the first on; passes may overlap."""
        with self._errors():
            records = self._start()
            while (data := records.next(self._decoder.lead)) is not None:
                yield self._decode(data, records.number - 1, records.offset - len(data) - FRAMING)

    def read(self, first: int, count: int, buffer: BatchBuffer, at: int) -> None:
        with self._errors():
            found = self._read_on(first, count) if self._compressed else self._read_span(first, count)
            for position, sample in enumerate(found, at):
                for name, array in sample.items():
                    if name in buffer.fixed:
                        buffer.fixed[name][position] = array
                    else:
                        flags = array.flags
                        buffer.put(name, position, array if flags.writeable and flags.aligned else array.copy())

    def _read_span(self, first: int, count: int) -> Iterator[Sample]:
        """Samples of an uncompressed file: one call for all."""
        if first < 0 or first + count > len(self._index):
            raise self._beyond(first, count, len(self._index))
        offsets = self._index.offsets[first : first + count + 1].tolist()
        begin = offsets[0]
        span = read_exactly(self._descriptor, begin, offsets[-1] - begin)
        memory = np.frombuffer(span, np.uint8)
        for number, (low, high) in enumerate(pairwise(offsets), first):
            start, end = low - begin + HEADER.size, high - begin - CRC.size
            length = self._checker.header(span[start - HEADER.size : start], number, low)
            if length != end - start or len(span) < end + CRC.size:
                raise self._checker.damaged(number, low, f"it has {length} bytes, the index says {end - start}")
            data = memory[start:end]
            self._checker.data(data, span[end : end + CRC.size], number, low)
            yield self._decode(data, number, low, align=False)

    def _read_on(self, first: int, count: int) -> Iterator[Sample]:
        """Samples of a compressed file: on from the last read, or again from the start."""
        if first < 0:
            raise self._beyond(first, count, self.count())
        cursor, self._cursor = self._cursor, None  # of no use after an error
        if cursor is None or cursor.number > first:
            cursor = self._start()
        while cursor.number < first and cursor.next(verify=False) is not None:
            pass
        for _ in range(count):
            data = cursor.next(self._decoder.lead)
            if data is None:
                raise self._beyond(first, count, cursor.number)
            yield self._decode(data, cursor.number - 1, cursor.offset - len(data) - FRAMING)
        self._cursor = cursor

    def _decode(self, data: Octets, number: int, offset: int, *, align: bool = True) -> Sample:
        try:
            return self._decoder.decode(data, align=align)
        except ValueError as error:
            raise DataError(
                f"{self._path}: record {number} at byte {offset}: {error}",
                hint="correct dataset.fields, or replace the file",
            ) from error

    def _beyond(self, first: int, count: int, samples: int) -> DataError:
        return DataError(
            f"{self._path} holds {samples} samples, not sample {first if first < 0 else first + count - 1}",
            hint="the file was replaced or cut; remove it and generate again",
        )

    def close(self) -> None:
        os.close(self._descriptor)
