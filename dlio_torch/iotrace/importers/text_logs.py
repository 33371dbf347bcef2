"""Reads text logs, compressed or not, up to the first damaged byte."""

from __future__ import annotations

import gzip
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import IO

from dlio_torch.errors import DataError

_GZIP = b"\x1f\x8b"
# Longest line that is read in one piece: a damaged log may have no line ends at all.
_LONGEST = 1 << 22


def is_gzip(path: Path) -> bool:
    """Whether a file is compressed by gzip, whatever its name."""
    with _opened(path) as file:
        return file.read(2) == _GZIP


def head(path: Path, size: int = 1 << 16) -> bytes:
    """The first bytes of a file, decompressed; fewer if the file is shorter or damaged.

    Raises:
        DataError: the file cannot be opened.
    """
    if not is_gzip(path):
        with _opened(path) as file:
            return file.read(size)
    text = b""
    try:
        with gzip.open(path) as stream:
            while len(text) < size:
                # Small pieces: what comes before damage is kept.
                piece = stream.read1(4096)
                if not piece:
                    break
                text += piece
    except (OSError, EOFError, zlib.error):
        pass
    return text[:size]


def lines(path: Path, notes: list[str]) -> Iterator[bytes]:
    """Yields the lines of a file, decompressed; a gzip file may have several members.

    Args:
        path: the file.
        notes: a sentence is added where the compressed data ends early.

    Raises:
        DataError: the file cannot be read.
    """
    number = 0
    try:
        with gzip.open(path) if is_gzip(path) else _opened(path) as file:
            while line := file.readline(_LONGEST):
                number += 1
                yield line
    except (EOFError, zlib.error, gzip.BadGzipFile) as error:
        notes.append(f"{path.name}: the compressed data ends or is damaged after {number} lines ({error})")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror or error}") from error


def _opened(path: Path) -> IO[bytes]:
    try:
        return open(path, "rb")
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", hint="check the path") from error
