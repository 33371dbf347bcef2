"""Dataset of records that are read file by file from start to end."""

from __future__ import annotations

import time
from collections import OrderedDict
from collections.abc import Iterator
from typing import Any

from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.data.order.stream_plan import Numbers
from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import Batch, BatchBuffer, Sample, samples_of
from dlio_torch.formats.core.format import Format
from dlio_torch.syserrors import unreadable

Record = tuple[int, Sample]  # number of the sample in the data set, and its arrays
StoredRecord = tuple[int, Any]  # the same before it is decoded
# A file, the first sample that is read of it, the number of this sample in the data set, and the samples in the order
# in which they are wanted, counted from this one.
Piece = tuple[int, int, int, "range | Numbers"]


class StreamDataset(SampleDataset):
    """Dataset of one split, read file by file from start to end.

    A file is opened when its first sample is asked for and closed after its last.  With ``unit="file"`` it is
    read by one library call for each array and kept in memory until its samples are used up, and so is a block of it
    with ``unit="block"``; else as ``Format.stream`` reads it.
    """

    def __init__(self, *args: Any, unit: str = "sample", **options: Any) -> None:
        super().__init__(*args, unit=unit, **options)
        self._whole_pieces = unit != "sample"

    def records(self, piece: Piece) -> Iterator[StoredRecord]:
        """Yields the requested samples of a file; :meth:`decoded` gives their arrays.

        Raises:
            DataError: the file is missing, damaged, or holds another number of samples.
        """
        return self._whole(*piece) if self._whole_pieces else self._streamed(*piece)

    @property
    def decodes(self) -> bool:
        """Whether records are decoded after they are read."""
        return not self._whole_pieces and type(self._format).decoded is not Format.decoded

    def decoded(self, record: StoredRecord) -> Record:
        """A record with its arrays.

        Raises:
            DataError: it cannot be decoded.
        """
        began = time.perf_counter_ns()
        number, stored = record
        sample = self._format.decoded(stored)
        self._recorder.add("decode", began, time.perf_counter_ns())
        return number, sample

    def check(self, batch: Batch) -> None:
        """Compare a batch with the generated content.

        Raises:
            DataError: it holds other content.
        """
        self._check(batch)

    def _streamed(self, file: int, begin: int, first: int, rows: range | Numbers) -> Iterator[StoredRecord]:
        add, clock = self._recorder.add, time.perf_counter_ns
        reader, path = self._reader(file, OrderedDict())
        try:
            samples = self._format.stored(reader)
            for row in rows:
                began = clock()
                sample = next(samples, None)
                add("read", began, clock(), file=path)
                if sample is None:
                    raise _miscounted(path, f"{row}", len(rows))
                yield first + int(row), sample
            # What the application does when no record is left, such as a read at the end of the file.
            if next(samples, None) is not None:
                raise _miscounted(path, f"more than {len(rows)}", len(rows))
        except OSError as error:
            raise unreadable(path, error) from error
        finally:
            reader.close()

    def _whole(self, file: int, begin: int, first: int, rows: range | Numbers) -> Iterator[Record]:
        buffer = BatchBuffer(self._specs, range(first, first + len(rows)))
        reader, path = self._reader(file, OrderedDict())
        try:
            began = time.perf_counter_ns()
            reader.read(begin, len(rows), buffer, 0)
            self._recorder.add("read", began, time.perf_counter_ns(), file=path)
        except OSError as error:
            raise unreadable(path, error) from error
        finally:
            reader.close()
        records = list(samples_of(buffer.finish(), self._specs))
        for row in rows:
            yield records[row]


def _miscounted(path: str, actual: str, expected: int) -> DataError:
    return DataError(
        f"{path} holds {actual} samples, expected {expected}",
        hint="the file was replaced or damaged; remove the file and generate the data again",
    )
