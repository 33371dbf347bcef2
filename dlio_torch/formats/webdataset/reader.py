"""Reader of tar shards: as a stream through WebDataset's own iterators, or by single members.

Single members are read at the places that an index of the headers tells, which is made at the first such read; in a
compressed shard they are reached by reading on from the last one, or again from the start.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import cached_property
from pathlib import Path
from typing import NamedTuple

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import BatchBuffer, Sample
from dlio_torch.formats.core.buffered_file import open_buffered
from dlio_torch.formats.core.positioned_reads import read_exactly
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.webdataset.member_codec import array_of, webdataset
from dlio_torch.formats.webdataset.members import SampleMember
from dlio_torch.formats.webdataset.options import WebdatasetConfig
from dlio_torch.formats.webdataset.samples import KEY, Selection, ShardIndex, read_index
from dlio_torch.formats.webdataset.tar_headers import is_plain, tar_errors


class StoredSample(NamedTuple):
    """Sample whose members are not decoded.

    Attributes:
        label: shard and name, for errors.
        members: those that are read.
        keys: endings of their names in the shard.
        contents: their bytes.
        images: how images are decoded.
    """

    label: str
    members: Sequence[SampleMember]
    keys: Sequence[str]
    contents: Sequence[bytes]
    images: str

    def decoded(self) -> Sample:
        """The arrays.

        Raises:
            DataError: a member cannot be decoded.
        """
        return {
            member.spec.name: array_of(member, key, content, self.images, self.label)
            for member, key, content in zip(self.members, self.keys, self.contents, strict=True)
        }


class ShardReader(Reader):
    """Reader of one open shard.

    Args:
        path: the shard.
        members: the members that are read.
        options: of the format.

    Raises:
        DataError: the shard cannot be opened.
    """

    num_samples = None  # a tar archive does not state it

    def __init__(self, path: Path, members: Sequence[SampleMember], options: WebdatasetConfig) -> None:
        self._path = path
        self._members = members
        self._options = options
        self._selection = Selection(members, skip=options.missing == "skip")
        self._coming: Iterator[Sample] | None = None  # in a compressed shard, from sample number _next on
        self._next = 0
        with tar_errors(path):
            self._file = self._open()

    def _open(self) -> io.BufferedReader:
        """The open shard; like WebDataset's ``StreamingOpen`` unless the buffer's size is given."""
        size = self._options.buffer_bytes
        return open_buffered(self._path, size) if size else open(self._path, "rb")

    def samples(self) -> Iterator[Sample]:
        """Yields the samples in the order of the shard, by the calls of ``WebDataset(...).decode().to_tuple()``."""
        return (stored.decoded() for stored in self.stored())

    def stored(self) -> Iterator[StoredSample]:
        """Yields the samples in the order of the shard, as they are stored.

        All members are read, as by the library; those that no field names are dropped.

        Raises:
            DataError: the shard is damaged, or a member is missing.
        """
        iterators = webdataset().tariterators
        source = [{"url": str(self._path), "stream": self._file, "local_path": str(self._path)}]
        stored = iterators.group_by_keys(iterators.tar_file_expander(iter(source)))
        while True:
            with tar_errors(self._path):
                sample = next(stored, None)
            if sample is None:
                return
            keys = self._selection.keys(sample, self._path)
            if keys is not None:
                yield self._stored(sample[KEY], keys, [sample[key] for key in keys])

    def _stored(self, name: str, keys: Sequence[str], contents: Sequence[bytes]) -> StoredSample:
        return StoredSample(f"{self._path}: sample {name}", self._members, keys, contents, self._options.decode)

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        for row in range(first, first + count):
            sample = self._sample(row)
            for member in self._members:
                name = member.spec.name
                if member.spec.variable:
                    buffer.put(name, position, sample[name])
                else:
                    buffer.fixed[name][position] = sample[name]
            position += 1

    @cached_property
    def _index(self) -> ShardIndex | None:
        """Extents of the members; ``None``: the shard is compressed."""
        with tar_errors(self._path):
            return read_index(self._path, self._selection) if is_plain(self._path) else None

    def _sample(self, row: int) -> Sample:
        index = self._index
        if index is None:
            return self._streamed(row)
        if not 0 <= row < len(index):
            raise self._beyond(row, len(index))
        extents = zip(index.offsets[row].tolist(), index.sizes[row].tolist(), strict=True)
        stored = [self._content(offset, size) for offset, size in extents]
        return self._stored(index.names[row], index.keys[row], stored).decoded()

    def _content(self, offset: int, size: int) -> bytes:
        """The bytes of one member."""
        with tar_errors(self._path):
            content = read_exactly(self._file.fileno(), offset, size)
        if len(content) < size:
            raise DataError(
                f"{self._path} ends within a member of {size} bytes at byte {offset}",
                hint="the shard is incomplete; generate or fetch it again",
            )
        return content

    def _streamed(self, row: int) -> Sample:
        """A sample of a compressed shard."""
        if self._coming is None or row < self._next:
            self._file.seek(0)
            self._coming, self._next = self.samples(), 0
        while True:
            sample = next(self._coming, None)
            if sample is None or row < 0:
                count, self._coming = self._next, None
                raise self._beyond(row, count)
            self._next += 1
            if self._next == row + 1:
                return sample

    def _beyond(self, row: int, count: int) -> DataError:
        return DataError(
            f"{self._path} holds {count} samples, but sample {row} (from 0) was requested",
            hint="the shard was replaced or truncated; generate or fetch it again",
        )

    def close(self) -> None:
        self._coming = None
        self._file.close()

    def __del__(self) -> None:
        if hasattr(self, "_file"):  # a data set that is collected closes its files so
            self._file.close()


def read_all(path: Path, members: Sequence[SampleMember], options: WebdatasetConfig) -> list[Sample]:
    """All samples of a shard, read from start to end.

    Raises:
        DataError: it is damaged, or a member is missing or cannot be decoded.
    """
    with closing(ShardReader(path, members, options)) as reader:
        return list(reader.samples())
