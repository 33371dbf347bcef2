"""The two files of a recording process: records in a shared mapping, and a table of names as JSON lines."""

from __future__ import annotations

import errno
import json
import math
import mmap
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from dlio_torch.iotrace.events.span_format import RECORD

UNIT = math.lcm(RECORD.size, mmap.ALLOCATIONGRANULARITY)
"""Bytes. Mappings start at multiples of this, and no record crosses from one mapping into the next."""

Segment = tuple[Iterator[int], Any]
"""Offsets of free records, and their buffer."""
NO_SEGMENT: Segment = (iter(()), b"")


def create_span_files(directory: Path, stem: str) -> tuple[int, int]:
    """Creates the files for records and for names; returns their descriptors.

    A process id that occurs again gets a number behind it.
    """
    number = 1
    while True:
        path = directory / (stem if number == 1 else f"{stem}-{number}")
        try:
            records_fd = os.open(f"{path}.spans", os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        except FileExistsError:
            number += 1
            continue
        return records_fd, os.open(f"{path}.names", os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o666)


def map_segment(descriptor: int, offset: int, size: int) -> Segment:
    """Extends the file of records by ``size`` bytes and maps them.

    Raises:
        OSError: the file system has no space, or cannot map files.
    """
    # Without reserved blocks a full disk would end the process with SIGBUS at some later store.
    os.posix_fallocate(descriptor, offset, size)
    return iter(range(0, size, RECORD.size)), mmap.mmap(descriptor, size, offset=offset)


def buffer_in_memory() -> Segment:
    """A segment without a file, whose records are dropped."""
    return iter(range(0, UNIT, RECORD.size)), bytearray(UNIT)


def json_line(value: dict[str, Any]) -> bytes:
    """One line of the table of names."""
    # ASCII escapes carry any file name, undecodable bytes (lone surrogates) included.
    return json.dumps(value, separators=(",", ":")).encode("ascii") + b"\n"


def write_line(descriptor: int, line: bytes) -> None:
    """Writes a whole line, also if the kernel accepts only a part of it at once.

    Raises:
        OSError: the file system takes only a part of it.
    """
    if os.write(descriptor, line) < len(line):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
