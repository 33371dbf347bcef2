"""Reader of TFRecord files: as a stream from start to end like TensorFlow, or by single samples.

Single samples are read by an index, which lies beside the file or is made from the records' headers when it
is first needed; in a compressed file they are reached by reading on from where the last one was, or again
from the start.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import cached_property
from itertools import pairwise
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import BatchBuffer, Sample
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.positioned_reads import read_exactly
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.tfrecord.example_proto import Decoder, Feature, Octets
from dlio_torch.formats.tfrecord.file import opened
from dlio_torch.formats.tfrecord.framing import CRC, FRAMING, HEADER, Checker
from dlio_torch.formats.tfrecord.index import RecordIndex, read_index, scan
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.formats.tfrecord.stream import RecordStream


class TfrecordReader(Reader):
    """Reader of one open TFRecord file.

    Opening it reads the first transfer, which the first pass over the file then uses; or the index, if there
    is to be one.  Nothing else is read before it is asked for, so without an index ``num_samples`` is ``None``.
    """

    def __init__(self, path: Path, features: Sequence[Feature], options: TfrecordConfig, *, direct: bool) -> None:
        self._path = path
        self._decoder = Decoder(features)
        self._checker = Checker(path, verify=options.verify_crc)
        self._compressed = options.compression != "none"
        self._cursor: RecordStream | None = None  # where single reads of a compressed file have come to
        with opened(
            path,
            options.transfer_size,
            compressed=self._compressed,
            verify=options.verify_crc,
            direct=direct,
        ) as self._file:
            self._listed = read_index(path) if options.index else None
            if self._listed is not None and not self._compressed:
                self._listed.check_size(path, os.fstat(self._file.descriptor).st_size)
            self.num_samples = None if self._listed is None else len(self._listed)
            looks = self._listed is None or self._compressed
            self._fresh: RecordStream | None = self._file.begun("records") if looks else self._file.records()

    def _start(self) -> RecordStream:
        """Stream of records from the start; the first call continues with the data that opening the file has read."""
        records, self._fresh = self._fresh or self._file.records(), None
        return records

    def count(self) -> int:
        """Number of samples, counted by visiting every record.

        Raises:
            DataError: a record is damaged, or the index tells of another number.
        """
        if not self._compressed:
            return len(self._index)
        with os_errors(self._path):
            records = self._file.records()
            while records.next(verify=False) is not None:
                pass
        if self._listed is not None:
            self._listed.check_size(self._path, records.offset)
        return records.number

    @cached_property
    def _index(self) -> RecordIndex:
        if self._listed is not None:
            return self._listed
        with os_errors(self._path):
            return scan(self._file.descriptor, self._checker, self._file.pread)

    def samples(self) -> Iterator[Sample]:
        """Yields all samples from the first on; several iterations may overlap."""
        with os_errors(self._path):
            records = self._start()
            while (data := records.next(self._decoder.lead)) is not None:
                yield self._decode(data, records.number - 1, records.offset - len(data) - FRAMING)

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        with os_errors(self._path):
            samples = self._read_on(first, count) if self._compressed else self._read_span(first, count)
            for slot, sample in enumerate(samples, position):
                for name, array in sample.items():
                    if name in buffer.fixed:
                        buffer.fixed[name][slot] = array
                    else:
                        flags = array.flags
                        buffer.put(name, slot, array if flags.writeable and flags.aligned else array.copy())

    def _read_span(self, first: int, count: int) -> Iterator[Sample]:
        """Reads consecutive samples of an uncompressed file by one call."""
        if first < 0 or first + count > len(self._index):
            raise self._beyond(first, count, len(self._index))
        offsets = self._index.offsets[first : first + count + 1].tolist()
        begin = offsets[0]
        span = read_exactly(self._file.descriptor, begin, offsets[-1] - begin, self._file.pread)
        memory = np.frombuffer(span, np.uint8)
        for number, (low, high) in enumerate(pairwise(offsets), first):
            start, end = low - begin + HEADER.size, high - begin - CRC.size
            length = self._checker.header(span[start - HEADER.size : start], number, low)
            if length != end - start or len(span) < end + CRC.size:
                raise self._checker.damaged(
                    number, low, f"the record has {length} bytes, but the index states {end - start}"
                )
            data = memory[start:end]
            self._checker.data(data, span[end : end + CRC.size], number, low)
            yield self._decode(data, number, low, align=False)

    def _read_on(self, first: int, count: int) -> Iterator[Sample]:
        """Reads samples of a compressed file, continuing after the last read or from the start again."""
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
            f"{self._path} holds {samples} samples, but sample {first if first < 0 else first + count - 1} (from 0) "
            "was requested",
            hint="the file was replaced or truncated; remove the file and generate the data again",
        )

    def close(self) -> None:
        self._file.close()
