"""Open TFRecord files, for format ``tfrecord`` and for coordinate lists."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from dlio_torch.errors import DataError
from dlio_torch.formats.core.direct_file import DirectReads, open_direct
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.tfrecord.stream import DeflatedBytes, FileBytes, Pread, RecordStream


class RecordFile:
    """Open TFRecord file.

    Args:
        path: of the file.
        transfer_size: bytes of one read call.
        compressed: its content is a gzip or zlib stream.
        verify: check both checksums of each record.
        direct: read past the page cache.

    Attributes:
        descriptor: of the open file; -1 when it is closed.
        pread: reads it.

    Raises:
        OSError: the file cannot be opened.
        DataError: its file system does not permit direct reads.
    """

    def __init__(self, path: Path, transfer_size: int, *, compressed: bool, verify: bool, direct: bool) -> None:
        self._path = path
        self._transfer_size = transfer_size
        self._compressed = compressed
        self._verify = verify
        self.descriptor = open_direct(path) if direct else os.open(path, os.O_RDONLY)
        self.pread: Pread = DirectReads(path) if direct else os.pread

    def records(self) -> RecordStream:
        """Stream of records from the start; nothing is read before the first record is requested."""
        stream = (
            DeflatedBytes(self.descriptor, self._transfer_size, self._path, self.pread)
            if self._compressed
            else FileBytes(self.descriptor, self._transfer_size, self.pread)
        )
        return RecordStream(stream, self._path, verify=self._verify)

    def begun(self, content: str) -> RecordStream:
        """Same as :meth:`records`, but with the first transfer already read.

        Args:
            content: name of what the records hold, for the error.

        Raises:
            DataError: there are none, or the first is damaged.
        """
        records = self.records()
        if records.peek() is None:
            raise DataError(f"{self._path} holds no {content}", hint="remove the file, or choose another dataset.path")
        return records

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        if self.descriptor >= 0:
            os.close(self.descriptor)
            self.descriptor = -1


@contextmanager
def opened(
    path: Path, transfer_size: int, *, compressed: bool, verify: bool = True, direct: bool = False
) -> Iterator[RecordFile]:
    """Context manager that closes a file of records only if the body fails.

    Raises:
        DataError: whatever the system refuses, in one line that names the file.
    """
    with os_errors(path):
        file = RecordFile(path, transfer_size, compressed=compressed, verify=verify, direct=direct)
        try:
            yield file
        except BaseException:
            file.close()
            raise
