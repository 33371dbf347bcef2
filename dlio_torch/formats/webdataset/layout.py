"""Layout of tar shards for the decoupled engine: members as extents, or samples as records that are decoded."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.jpeg_decoder import plain_jpeg_decoder
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout, Ints, Listed, RecordLayout, Records
from dlio_torch.formats.core.layout_in_memory import held, held_samples
from dlio_torch.formats.core.positioned_reads import read_into
from dlio_torch.formats.webdataset.member_codec import array_of, rows_fit
from dlio_torch.formats.webdataset.members import SampleMember
from dlio_torch.formats.webdataset.options import WebdatasetConfig
from dlio_torch.formats.webdataset.payload_headers import npy_header
from dlio_torch.formats.webdataset.reader import read_all
from dlio_torch.formats.webdataset.samples import Selection, ShardIndex, read_index
from dlio_torch.formats.webdataset.tar_headers import is_plain, tar_errors
from dlio_torch.native.memory import address_of
from dlio_torch.syserrors import unreadable


def shard_layout(path: Path, members: Sequence[SampleMember], options: WebdatasetConfig) -> FileLayout:
    """The layout of a shard; a compressed one is held in memory, since no sample can be unpacked alone.

    Raises:
        DataError: it is damaged, or a member is missing.
    """
    with tar_errors(path):
        if not is_plain(path):
            arrays, count = held_samples(path, [m.spec for m in members], read_all(path, members, options))
            return FileLayout(count, arrays, read_bytes=path.stat().st_size)
        index = read_index(path, Selection(members, skip=options.missing == "skip"))
        if not len(index):
            raise DataError(f"{path} holds no samples", hint="remove the file, or choose another dataset.path")
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        try:
            heads = _npy_heads(path, descriptor, members, index)
            if any(member.decoded and member.kind == "image" for member in members):
                records = _SampleRecords(path, descriptor, members, options, index, index.sizes - heads)
                return FileLayout(len(index), {}, records, {path: descriptor})
            arrays, read = {}, 0
            limit = os.fstat(descriptor).st_size
            for number, member in enumerate(members):
                starts, sizes = index.offsets[:, number] + heads[:, number], index.sizes[:, number] - heads[:, number]
                if member.decoded and member.kind == "integer":
                    arrays[member.spec.name] = _held_integers(path, descriptor, member, options, index, number)
                    read += int(sizes.sum())
                else:
                    variable = member.spec.variable
                    arrays[member.spec.name] = Listed(
                        path, starts, sizes, member.row_bytes, variable=variable, limit=limit
                    )
            return FileLayout(len(index), arrays, None, {path: descriptor}, read_bytes=read)
        except BaseException:
            os.close(descriptor)
            raise


def _held_integers(
    path: Path, descriptor: int, member: SampleMember, options: WebdatasetConfig, index: ShardIndex, number: int
) -> ArrayLayout:
    """Layout of integers, which are stored as text: decoded now."""
    values = [
        array_of(
            member,
            index.keys[row][number],
            os.pread(descriptor, int(index.sizes[row, number]), int(index.offsets[row, number])),
            options.decode,
            f"{path}: sample {index.names[row]}",
        )
        for row in range(len(index))
    ]
    return held(path, np.array(values, member.spec.dtype))


def _npy_heads(path: Path, descriptor: int, members: Sequence[SampleMember], index: ShardIndex) -> Ints:
    """Bytes before the elements of each member: of the header of a decoded ``.npy`` member, else 0.

    Raises:
        DataError: an array is not as ``dataset.fields`` describe it, or only NumPy reads it.
    """
    heads = np.zeros_like(index.sizes)
    for number, member in enumerate(members):
        if not member.decoded or member.kind != "npy":
            continue
        for row in range(len(index)):
            offset, size = int(index.offsets[row, number]), int(index.sizes[row, number])
            name = f"{index.keys[row][number]} of sample {index.names[row]}"
            heads[row, number] = _npy_head(path, descriptor, offset, size, member, name)
    return heads


def _npy_head(path: Path, descriptor: int, offset: int, size: int, member: SampleMember, name: str) -> int:
    header = npy_header(descriptor, offset, size, path, name)
    spec = member.spec
    fits = rows_fit(spec, header.shape) if spec.variable else header.shape == spec.shape
    if header.dtype != spec.dtype or not header.dtype.isnative or not fits:
        raise DataError(
            f"{path}: array {name} is {header.dtype}{list(header.shape)}, but dataset.fields expect "
            f"{spec.dtype}{list(spec.shape)}",
            hint="correct dataset.fields",
        )
    if header.fortran_order and sum(length > 1 for length in header.shape) > 1:
        raise DataError(
            f"{path}: array {name} is stored in Fortran order, which only NumPy reads",
            hint="set loader.engine=dataloader",
        )
    return header.bytes


class _SampleRecords(RecordLayout):
    """Layout of samples as records: from the first to the last member that is read, which are then decoded.

    Args:
        path: the shard.
        descriptor: of the open shard.
        members: the members that are read.
        options: of the format.
        index: extents of the members.
        stored: bytes of the elements of those members that are not decoded to images.
    """

    def __init__(
        self,
        path: Path,
        descriptor: int,
        members: Sequence[SampleMember],
        options: WebdatasetConfig,
        index: ShardIndex,
        stored: Ints,
    ) -> None:
        self.path = path
        self._descriptor = descriptor
        self._members = members
        self._options = options
        self._index = index
        self._jpeg = plain_jpeg_decoder() if options.decode == "rgb8" else None
        self._begins = index.offsets.min(axis=1)
        self._ends = (index.offsets + index.sizes).max(axis=1)
        self._sizes = stored.copy()
        for number, member in enumerate(members):
            if not member.spec.variable:
                self._sizes[:, number] = member.row_bytes

    def sizes(self, rows: Ints) -> Ints:
        return self._sizes[rows]

    def plan(self, rows: Ints, into: Ints) -> Records:
        order = np.argsort(rows, kind="stable")
        rows = rows[order]
        begins = self._begins[rows]
        return Records(begins, self._ends[rows] - begins, np.ascontiguousarray(into[order]), self._sizes[rows], self)

    def read(self, records: Records, low: int, high: int, base: int, request: int) -> None:
        for number in range(low, high):
            offset, span = int(records.offsets[number]), int(records.spans[number])
            row = int(np.searchsorted(self._begins, offset))
            stored = self._span(offset, span, request)
            sample = f"{self.path}: sample {self._index.names[row]}"
            for position, member in enumerate(self._members):
                begin = int(self._index.offsets[row, position]) - offset
                content = stored[begin : begin + int(self._index.sizes[row, position])]
                key = self._index.keys[row][position]
                if self._decoded_plain(member, content, base + int(records.to[number, position])):
                    continue
                array = array_of(member, key, bytes(content), self._options.decode, sample)
                array = np.ascontiguousarray(array)
                if array.nbytes != records.sizes[number, position]:
                    raise DataError(f"{sample}: member {key} changed while it was read", hint="read it again")
                ctypes.memmove(base + int(records.to[number, position]), array.ctypes.data, array.nbytes)

    def _decoded_plain(self, member: SampleMember, content: memoryview, to: int) -> bool:
        """Whether native code has decoded an image, straight to the memory of the batch; if not, Pillow must."""
        if self._jpeg is None or not member.decoded or member.kind != "image" or member.spec.variable:
            return False
        address = address_of(np.frombuffer(content, np.uint8))
        header = self._jpeg.header(address, len(content))
        if header is None or member.spec.shape != (header.height, header.width, 3):
            return False
        return self._jpeg.decode(address, len(content), header, to)

    def _span(self, offset: int, span: int, request: int) -> memoryview:
        """The bytes from the first to the last member of a sample."""
        content = memoryview(bytearray(span))
        try:
            got = read_into(self._descriptor, offset, content, request)
        except OSError as error:
            raise unreadable(self.path, error) from error
        if got < span:
            raise DataError(
                f"{self.path} ends within a sample of {span} bytes at byte {offset}",
                hint="the shard was truncated; generate or fetch it again",
            )
        return content
