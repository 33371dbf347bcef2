"""Parser of the BP4 index: ``md.0`` holds, for each step, the characteristics of all blocks."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlio_torch.formats.adios2.block import Block, Unread

_ROW = 64  # bytes of a step in the table of steps, and of what stands before the first
# Type -> NumPy's name of it.
_TYPES = {
    0: "int8", 1: "int16", 2: "int32", 4: "int64", 50: "uint8", 51: "uint16", 52: "uint32", 54: "uint64",
    5: "float32", 6: "float64", 55: "int8",
}  # fmt: skip
# Characteristics of a block.
_VALUE, _MIN, _MAX, _OFFSET, _DIMENSIONS, _PAYLOAD, _FILE, _TIME, _TRANSFORM, _MINMAX = 0, 1, 2, 3, 4, 6, 7, 8, 11, 12


def read_bp4(folder: Path, index: bytes, metadata: bytes, names: Sequence[str]) -> dict[str, list[list[Block]]]:
    """Read the blocks of variables from a BP4 index; see :func:`~dlio_torch.formats.adios2.index.read_blocks`.

    Raises:
        Unread: it says something that is not understood.
        struct.error, LookupError, ValueError: it is damaged.
    """
    blocks_by_name: dict[str, list[list[Block]]] = {name: [] for name in names}
    for row in range(_ROW, len(index), _ROW):
        _, _, groups, variables, attributes, _, _, _ = struct.unpack_from("<8Q", index, row)
        _check_order(_Cursor(metadata, groups, variables))
        cursor = _Cursor(metadata, variables, attributes)
        count, _ = cursor.take("<IQ")
        for _ in range(count):
            name, blocks = _variable(cursor)
            if name in blocks_by_name:
                blocks_by_name[name].append([_block(*block, name) for block in blocks])
    return blocks_by_name


class _Cursor:
    """Read position in a range of bytes."""

    def __init__(self, data: bytes, place: int, end: int) -> None:
        if not 0 <= place <= end <= len(data):
            raise ValueError(f"an entry at bytes {place} to {end} does not fit into {len(data)} bytes of metadata")
        self.data, self.place, self.end = data, place, end

    def take(self, form: str) -> tuple[int, ...]:
        self.place += struct.calcsize(form)
        if self.place > self.end:
            raise ValueError(f"an entry of the metadata is cut at byte {self.end}")
        return struct.unpack_from(form, self.data, self.place - struct.calcsize(form))

    def part(self, size: int) -> _Cursor:
        """Returns a cursor over the next ``size`` bytes and skips them."""
        self.place += size
        if self.place > self.end:
            raise ValueError(f"an entry of the metadata is cut at byte {self.end}")
        return _Cursor(self.data, self.place - size, self.place)

    def text(self) -> str:
        (size,) = self.take("<H")
        part = self.part(size)
        return self.data[part.place : part.end].decode()


def _check_order(cursor: _Cursor) -> None:
    """Raise unless every process group says that its arrays were written in row-major order."""
    count, _ = cursor.take("<QQ")
    for _ in range(count):
        group = cursor.part(*cursor.take("<H"))
        group.text()
        if group.take("<B") != (ord("n"),):
            raise Unread("the arrays were written in column-major order")


def _variable(cursor: _Cursor) -> tuple[str, list[tuple[_Cursor, int, int]]]:
    """Name of the next variable, and of each block its characteristics, their number, and its type."""
    entry = cursor.part(*cursor.take("<I"))
    entry.take("<I")
    entry.text()  # of the group
    name = entry.text()
    _, _, kind, count = entry.take("<BBBQ")
    blocks = []
    for _ in range(count):
        number, size = entry.take("<BI")
        blocks.append((entry.part(size), number, kind))
    return name, blocks


def _block(cursor: _Cursor, number: int, kind: int, name: str) -> Block:
    """Parse the characteristics of one block."""
    if kind not in _TYPES:
        raise Unread(f"variable {name} has the unsupported ADIOS2 type number {kind}")
    size = np.dtype(_TYPES[kind]).itemsize
    file = payload = None
    axes: list[tuple[int, ...]] = []
    for _ in range(number):
        (characteristic,) = cursor.take("<B")
        if characteristic == _DIMENSIONS:
            count, _ = cursor.take("<BH")
            axes = [cursor.take("<3Q") for _ in range(count)]
        elif characteristic == _PAYLOAD:
            (payload,) = cursor.take("<Q")
        elif characteristic == _FILE:
            (file,) = cursor.take("<I")
        elif characteristic == _TIME:
            cursor.take("<I")
        elif characteristic == _OFFSET:
            cursor.take("<Q")
        elif characteristic in (_VALUE, _MIN, _MAX):
            cursor.part(size)
        elif characteristic == _MINMAX:
            (parts,) = cursor.take("<H")
            cursor.part(2 * size + (9 + 2 * len(axes) + 2 * parts * size if parts > 1 else 0))
        elif characteristic == _TRANSFORM:
            raise Unread(f"variable {name} is compressed")
        else:
            raise Unread(f"variable {name} has the unsupported characteristic number {characteristic}")
    if cursor.place != cursor.end or file is None or payload is None or not axes:
        raise ValueError(f"the characteristics of variable {name} contradict each other")
    lengths, shape, start = zip(*axes, strict=True)
    return Block(shape, start, lengths, _TYPES[kind], file, payload)
