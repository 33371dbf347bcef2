"""Layout of the records of an uncompressed TFRecord file.

Native code reads and takes apart what is usual.  A record that it gives up goes through the decoder of the faithful
path, which then says what is wrong with it, or reads it after all.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import Sample
from dlio_torch.formats.core.layout import FileLayout, Ints, RecordLayout, Records, stable_order
from dlio_torch.formats.core.positioned_reads import read_exactly
from dlio_torch.formats.tfrecord.example_proto import Decoder, Feature
from dlio_torch.formats.tfrecord.framing import CRC, FRAMING, HEADER, Checker
from dlio_torch.formats.tfrecord.index import RecordIndex, read_index, scan
from dlio_torch.formats.tfrecord.options import TfrecordConfig
from dlio_torch.native import NativeUnavailable
from dlio_torch.native.records import NativeRecords, RecordError
from dlio_torch.syserrors import unreadable


class RecordFiles:
    """Locates the records of files; usable by any number of threads.

    Args:
        features: arrays of a record.
        options: of the format.
    """

    def __init__(self, features: Sequence[Feature], options: TfrecordConfig) -> None:
        self._features = features
        self._options = options
        self._native: NativeRecords | None = None
        try:
            kinds = [(feature.spec.name, feature.kind) for feature in features]
            self._native = NativeRecords(kinds, verify=options.verify_crc)
        except NativeUnavailable:  # without a compiler: the faithful decoder, one record after another
            pass

    def __reduce__(self) -> tuple[type[RecordFiles], tuple[Sequence[Feature], TfrecordConfig]]:
        return type(self), (self._features, self._options)  # another process loads the native code again

    def layout(self, path: Path) -> FileLayout:
        """The layout of a file.

        Raises:
            DataError: it is damaged, or its index is another file's.
            OSError: it cannot be read.
        """
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            offsets = self._offsets(path, descriptor)
            if len(offsets) < 2:
                raise DataError(f"{path} holds no records", hint="remove the file, or choose another dataset.path")
            checker = Checker(path, verify=self._options.verify_crc)
            records = _TfrecordLayout(path, descriptor, offsets, self._features, checker, self._native)
            return FileLayout(len(offsets) - 1, {}, records, {path: descriptor})
        except BaseException:
            os.close(descriptor)
            raise

    def _offsets(self, path: Path, descriptor: int) -> Ints:
        size = os.fstat(descriptor).st_size
        index = read_index(path) if self._options.index else None
        if index is not None:
            index.check_size(path, size)
            return index.offsets
        if self._native is not None:
            try:
                return self._native.scan(descriptor, size)
            except RecordError as error:
                if error.errno is not None:
                    raise OSError(error.errno, os.strerror(error.errno)) from error
        scanned: RecordIndex = scan(descriptor, Checker(path, verify=self._options.verify_crc))
        return scanned.offsets


class _TfrecordLayout(RecordLayout):
    """Layout of the records of one file.

    Args:
        path: the file.
        descriptor: of the open file.
        offsets: first byte of each record, and the end of the file.
        features: arrays of a record.
        checker: checks single records.
        native: reads many.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        offsets: Ints,
        features: Sequence[Feature],
        checker: Checker,
        native: NativeRecords | None,
    ) -> None:
        self.path = path
        self._descriptor = descriptor
        self._offsets = offsets
        self._features = features
        self._checker = checker
        self._native = native
        self._native_file = None if native is None else native.file_row(descriptor)
        self._rows = [int(np.prod(feature.spec.shape)) * feature.spec.dtype.itemsize for feature in features]
        self._fixed = None if any(feature.spec.variable for feature in features) else np.array([self._rows], np.int64)
        self._lock = threading.Lock()
        self._known: Ints | None = None  # sizes that were looked up, -1: not yet

    def sizes(self, rows: Ints) -> Ints:
        if self._fixed is not None:
            return np.repeat(self._fixed, len(rows), axis=0)
        with self._lock:
            if self._known is None:
                self._known = np.full((len(self._offsets) - 1, len(self._features)), -1, np.int64)
            known = self._known
        missing = np.unique(rows[known[rows, 0] < 0])
        if len(missing):
            known[missing] = self._measured(missing)  # by two threads at once it is the same twice
        return known[rows]

    def _measured(self, rows: Ints) -> Ints:
        offsets = self._offsets[rows]
        spans = self._offsets[rows + 1] - offsets
        sizes = np.zeros((len(rows), len(self._features)), np.int64)
        done = 0
        while done < len(rows):
            failed = done
            if self._native is not None:
                try:
                    sizes[done:] = self._native.measure(self._descriptor, offsets[done:], spans[done:])
                    break
                except RecordError as error:
                    failed = done + error.record
                    if failed > done:
                        sizes[done:failed] = self._native.measure(
                            self._descriptor, offsets[done:failed], spans[done:failed]
                        )
            sample = self._decoded(int(rows[failed]), int(offsets[failed]), int(spans[failed]))
            sizes[failed] = [sample[feature.spec.name].nbytes for feature in self._features]
            done = failed + 1
        self._check_sizes(rows, sizes)
        return sizes

    def _check_sizes(self, rows: Ints, sizes: Ints) -> None:
        for number, (feature, row) in enumerate(zip(self._features, self._rows, strict=True)):
            lengths = sizes[:, number]
            wrong = lengths % row != 0 if feature.spec.variable else lengths != row
            if wrong.any():  # the decoder says it in its own words
                record = int(rows[int(wrong.argmax())])
                offset = int(self._offsets[record])
                self._decoded(record, offset, int(self._offsets[record + 1]) - offset)

    def plan(self, rows: Ints, into: Ints) -> Records:
        if len(rows) and int(rows.max()) >= len(self._offsets) - 1:
            raise DataError(
                f"{self.path} holds {len(self._offsets) - 1} samples, but sample {int(rows.max())} (from 0) was "
                "requested",
                hint="the file was replaced or truncated; remove the file and generate the data again",
            )
        order = stable_order(rows)
        rows = rows[order]
        offsets = self._offsets[rows]
        spans = self._offsets[rows + 1] - offsets
        return Records(offsets, spans, np.ascontiguousarray(into[order]), self.sizes(rows), self)

    def read(self, records: Records, low: int, high: int, base: int, request: int) -> None:
        offsets, spans, sizes = records.offsets[low:high], records.spans[low:high], records.sizes[low:high]
        to = records.to[low:high] + base
        done = 0
        while done < len(offsets):
            failed = done
            if self._native is not None:
                try:
                    self._native.read(
                        self._descriptor, offsets[done:], spans[done:], to[done:], sizes[done:], request
                    )  # fmt: skip
                    return
                except RecordError as error:
                    if error.errno is not None:
                        raise unreadable(self.path, OSError(error.errno, os.strerror(error.errno))) from error
                    failed = done + error.record
            self._put(int(offsets[failed]), int(spans[failed]), to[failed], sizes[failed])
            done = failed + 1

    def native_file(self) -> Ints | None:
        return self._native_file

    def _put(self, offset: int, span: int, to: Ints, sizes: Ints) -> None:
        """Decodes one record with the Python decoder."""
        number = int(np.searchsorted(self._offsets, offset))
        sample = self._decoded(number, offset, span)
        for feature, address, size in zip(self._features, to.tolist(), sizes.tolist(), strict=True):
            array = np.ascontiguousarray(sample[feature.spec.name])
            if array.nbytes != size:
                raise self._checker.damaged(number, offset, "the record changed while it was read")
            ctypes.memmove(address, array.ctypes.data, size)

    def _decoded(self, number: int, offset: int, span: int) -> Sample:
        stored = read_exactly(self._descriptor, offset, span)
        length = self._checker.header(stored[: HEADER.size], number, offset)
        if length != span - FRAMING or len(stored) < span:
            raise self._checker.damaged(
                number, offset, f"the record has {length} bytes, but the index states {span - FRAMING}"
            )
        data = np.frombuffer(stored, np.uint8)[HEADER.size : span - CRC.size]
        self._checker.data(data, stored[span - CRC.size :], number, offset)
        try:
            return Decoder(self._features).decode(data, align=False)
        except ValueError as error:
            raise DataError(
                f"{self.path}: record {number} at byte {offset}: {error}",
                hint="correct dataset.fields, or replace the file",
            ) from error
