"""File system of ``torch.distributed.checkpoint`` that times flushes and records spans of files."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.filesystem import FileSystem

from dlio_torch.checkpoint.layouts.dcp.part_times import PartTimes
from dlio_torch.checkpoint.layouts.dcp.rank_files import METADATA
from dlio_torch.iotrace.recorder.spans import Recorder


class TimedStream:
    """A file that is written; the library asks for its descriptor to flush it, and closes it then.

    Args:
        stream: the file.
        tells: whether the library asks for the position after the last write, as it does after each tensor.  Writes of
            tensors are many, and then cost nothing more.
    """

    def __init__(self, stream: Any, *, tells: bool) -> None:
        self._stream = stream
        self.write = stream.write if tells else self._counted_write
        """Writes bytes, and returns their number."""
        self.written = 0
        """Bytes written."""
        self.flush_began_ns = 0
        """Begin of the flush; 0: the file was not flushed."""
        self.end_ns = 0
        """End of the last write or flush; 0: the file is open."""

    def tell(self) -> int:
        """The position, which is the end of what was written."""
        self.written = self._stream.tell()
        return self.written

    def fileno(self) -> int:
        """The descriptor; the flush begins."""
        descriptor: int = self._stream.fileno()
        self.flush_began_ns = time.perf_counter_ns()
        return descriptor

    def close(self) -> None:
        """Close the file."""
        self.end()
        self._stream.close()

    def end(self) -> None:
        """Take the time: nothing more is written or flushed."""
        self.end_ns = self.end_ns or time.perf_counter_ns()

    def _counted_write(self, data: Any) -> int:
        count: int = self._stream.write(data)
        self.written += count
        return count

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)


class TimedFileSystem(FileSystem):
    """``FileSystem`` with the same system calls.

    Args:
        times: gets the times of flushes.
        recorder: records spans ``write`` and ``fsync`` of each file that is written, and ``read`` of each that is read.
        step: training step of the save; -1: none.

    Attributes:
        reading: path of the file that was opened last for reading.
    """

    def __init__(self, times: PartTimes, recorder: Recorder, step: int = -1) -> None:
        self._times, self._recorder, self._step = times, recorder, step
        self.reading: str | None = None

    @contextlib.contextmanager
    def create_stream(self, path: str | os.PathLike[str], mode: str) -> Iterator[Any]:
        """Open a file."""
        if mode != "wb":
            self.reading = str(path)
            with self._recorder.span("read", file=str(path)), super().create_stream(path, mode) as stream:
                yield stream
            return
        begin = time.perf_counter_ns()
        with super().create_stream(path, mode) as stream:
            timed = TimedStream(stream, tells=METADATA not in Path(path).name)
            yield timed
            timed.end()
        self._record(str(path), begin, timed)

    def _record(self, path: str, begin: int, timed: TimedStream) -> None:
        written = timed.flush_began_ns or timed.end_ns
        self._recorder.add("write", begin, written, step=self._step, file=path, bytes=timed.written)
        self._times.file_bytes.append(timed.written)
        if timed.flush_began_ns:
            self._times.add_flush(timed.end_ns - written)
            self._recorder.add("fsync", written, timed.end_ns, step=self._step, file=path, bytes=timed.written)
