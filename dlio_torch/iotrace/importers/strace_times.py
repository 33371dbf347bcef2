"""Absolute times of the lines of strace, and the merge of logs of several threads."""

from __future__ import annotations

import heapq
import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlio_torch.iotrace.importers import strace_lines
from dlio_torch.iotrace.importers.text_logs import lines

_PID = re.compile(r"\.(?P<pid>\d+)(?:\.gz)?$")
_Line = tuple[int, int | None, bytes]


class StampedLines:
    """Time in ns, thread and rest of each line, in order of time.

    Args:
        files: one log of ``strace -f``, or the files that ``strace -ff`` writes, one per thread.

    Attributes:
        cut: remarks on logs that end early.
        timeless: number of lines without a time.
        relative: whether the logs do not tell the day.
    """

    def __init__(self, files: Sequence[Path]) -> None:
        self._files = files
        self.cut: list[str] = []
        self.timeless = 0
        self.relative = False

    def __iter__(self) -> Iterator[_Line]:
        """Reads the lines, once."""
        streams = [self._stamped(file) for file in self._files]
        return streams[0] if len(streams) == 1 else heapq.merge(*streams, key=lambda event: event[0])

    def _stamped(self, file: Path) -> Iterator[_Line]:
        match = _PID.search(file.name)
        pid = None if match is None else int(match["pid"])
        now, days, last_daily = 0, 0, None
        for line in lines(file, self.cut):
            stamp, rest = strace_lines.stamp(line.rstrip(b"\r\n"))
            if stamp.time_ns is None:
                self.timeless += not strace_lines.is_remark(rest)
                continue
            if stamp.relative:
                now += stamp.time_ns
                self.relative = True
            elif stamp.daily:
                days += 0 if last_daily is None else strace_lines.following_day(last_daily, stamp.time_ns)
                last_daily, now = stamp.time_ns, stamp.time_ns + days
                self.relative = True
            else:
                now = stamp.time_ns
            yield now, stamp.tid if stamp.tid is not None else pid, rest
