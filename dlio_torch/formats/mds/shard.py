"""Head of an MDS shard: the number of samples, their offsets, and the columns.

Layout (streaming/base/format/mds/writer.py, ``encode_joint_shard``; little-endian): the number of samples (u32), the
first byte of each sample and the end of the last one (u32 each), a JSON object with the columns, the samples.  A sample
is the bytes of each column of variable size (u32 each), and then its columns.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.mds.encodings import Encoding, parsed

WORD = 4
"""Bytes of a number in the head."""
VERSION = 2
_MOST_CONFIG = 1 << 20  # bytes of the JSON object


@dataclass(frozen=True)
class StoredColumn:
    """A column of a shard.

    Attributes:
        name: its name.
        encoding: as the file names it.
        size: stored bytes; ``None``: they stand before each sample.
    """

    name: str
    encoding: str
    size: int | None

    @cached_property
    def parsed(self) -> Encoding:
        """The encoding, taken apart."""
        return parsed(self.encoding)


@dataclass(frozen=True)
class ShardHead:
    """Head of a shard.

    Attributes:
        columns: in the order of storage.
        offsets: first byte of each sample, and the end of the last one; int64 of ``(samples + 1,)``.
    """

    columns: tuple[StoredColumn, ...]
    offsets: npt.NDArray[np.int64]

    @property
    def num_samples(self) -> int:
        """Number of samples."""
        return len(self.offsets) - 1


def read_head(path: Path) -> ShardHead:
    """Reads the head of a shard and checks it against the size of the file.

    Raises:
        DataError: missing, no shard, or damaged.
    """
    with os_errors(path), path.open("rb", buffering=0) as file:
        size = path.stat().st_size
        first = np.frombuffer(file.read(2 * WORD).ljust(2 * WORD, b"\0"), "<u4")
        count, begin = int(first[0]), int(first[1])
        table = (count + 2) * WORD
        if not table < begin <= min(size, table + _MOST_CONFIG):
            raise _damaged(path, "the file does not begin with the offsets of its samples")
        rest = file.read(begin - 2 * WORD)
    if len(rest) != begin - 2 * WORD:
        raise _damaged(path, "the file ends inside the offsets of its samples")
    offsets = np.append(np.int64(begin), np.frombuffer(rest, "<u4", count)).astype(np.int64)
    if (np.diff(offsets) < 0).any() or offsets[-1] != size:
        raise _damaged(path, f"the offsets of its {count} samples do not fit the file's {size} bytes")
    try:
        config = json.loads(rest[table - 2 * WORD :])
    except (ValueError, RecursionError) as error:
        raise _damaged(path, "the file does not describe its columns") from error
    return ShardHead(columns_of(config, path), offsets)


def read_sizes(path: Path, begins: npt.NDArray[np.int64], columns: int) -> npt.NDArray[np.int64]:
    """Bytes of the columns of variable size, which stand before each sample; int64 of ``(samples, columns)``.

    Args:
        path: the shard.
        begins: first byte of each sample.
        columns: number of such columns.

    Raises:
        DataError: the file ends inside a sample, or cannot be read.
    """
    sizes = np.zeros((len(begins), columns), np.int64)
    with os_errors(path), path.open("rb", buffering=0) as file:
        for row, begin in enumerate(begins.tolist()):
            head = os.pread(file.fileno(), WORD * columns, begin)
            if len(head) < WORD * columns:
                raise _damaged(path, f"the file ends inside sample {row}")
            sizes[row] = np.frombuffer(head, "<u4")
    return sizes


def columns_of(config: Any, path: Path) -> tuple[StoredColumn, ...]:
    """The columns that a JSON object describes.

    Args:
        config: the object; of a shard, or of its entry in ``index.json``.
        path: of the file that holds it, for the error.

    Raises:
        DataError: it describes none, or is of another version.
    """
    if not isinstance(config, Mapping):
        raise _damaged(path, "the columns are not described")
    if (version := config.get("version"), kind := config.get("format")) != (VERSION, "mds"):
        raise DataError(
            f"{path}: the samples are stored as {kind!r}, version {version!r}, but only 'mds', version {VERSION}, is "
            "supported",
            hint="write the data by MDSWriter of MosaicML Streaming",
        )
    lists = [config.get(f"column_{key}") for key in ("names", "encodings", "sizes")]
    names, encodings, sizes = (entry if isinstance(entry, list) else [] for entry in lists)
    if not names or not len(names) == len(encodings) == len(sizes):
        raise _damaged(path, "the lists of the columns do not belong to each other")
    columns = []
    for name, encoding, size in zip(names, encodings, sizes, strict=True):
        sound = isinstance(name, str) and isinstance(encoding, str)
        if not sound or not (size is None or (type(size) is int and 0 < size < 1 << 32)):
            raise _damaged(path, "a column has no name, no encoding, or no valid size")
        columns.append(StoredColumn(name, encoding, size))
    return tuple(columns)


def _damaged(path: Path, problem: str) -> DataError:
    return DataError(
        f"{path} cannot be read as an MDS shard: {problem}",
        hint="the file is damaged, incomplete or of another format; replace it or correct dataset.format",
    )
