"""Parser of the BP5 index: metadata are FFS records, whose fields ``mmd.0`` describes."""

from __future__ import annotations

import math
import re
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from dlio_torch.formats.adios2.block import Block, Unread

_HEADER = 64  # bytes of the index before its records
_MINOR, _COLUMNS = 38, 40  # bytes in it: minor version, and whether the arrays were written in column-major order
_DESCRIPTIONS = "mmd.0"
_ID = 12  # bytes of the name of a description
_BEFORE = 24  # bytes before the content of a record: name of its description, length, padding
_ALIGNED = 8  # bytes to whose multiples a record is filled up
_FORMAT, _PART, _FIELD = struct.Struct(">HBBBBH"), struct.Struct("<2sBBIIiBBHHBB2sH"), struct.Struct("<IIii")
_OWN = ("BitFieldCount", "BitField", "DataBlockSize")  # fields that are no variables
_GLOBAL = re.compile(r"BPG_(\d+)_(\d+)_(.*)", re.DOTALL)  # bytes of an element, type, name
# Type -> NumPy's name of it.
_TYPES = {
    1: "int8", 2: "int16", 3: "int32", 4: "int64", 5: "uint8", 6: "uint16", 7: "uint32", 8: "uint64", 9: "float32",
    10: "float64", 15: "int8",
}  # fmt: skip
_PLAIN = re.compile(r"MetaArray(MM\d+)?")
_LIMITS = "MinMax"
_WANTED = ("Dims", "BlockCount", "DBCount", "Shape", "Count", "Offset", "DataBlockLocation")


@dataclass(frozen=True)
class _Step:
    """Extents of one step: bytes of its metadata, and of its data."""

    begin: int
    size: int
    data: int


@dataclass(frozen=True)
class _Field:
    name: str
    kind: str
    size: int
    offset: int


def read_bp5(folder: Path, index: bytes, metadata: bytes, names: Sequence[str]) -> dict[str, list[list[Block]]]:
    """Read the blocks of variables from a BP5 index; see :func:`~dlio_torch.formats.adios2.index.read_blocks`.

    Raises:
        Unread: it says something that is not understood.
        OSError: a file of the folder cannot be read.
        struct.error, LookupError, ValueError: it is damaged.
    """
    if index[_MINOR] != 2:
        raise Unread(f"the BP5 index has minor version {index[_MINOR]}; only minor version 2 is supported")
    if index[_COLUMNS] != ord("n"):
        raise Unread("the arrays were written in column-major order")
    descriptions = dict(_described((folder / _DESCRIPTIONS).read_bytes()))
    blocks_by_name: dict[str, list[list[Block]]] = {name: [] for name in names}
    for step in _steps(index):
        total, size, _ = struct.unpack_from("<3Q", metadata, step.begin)
        if total != step.size - 8:
            raise ValueError(f"a step has {step.size - 8} bytes of metadata but states {total} bytes")
        first = step.begin + 3 * 8
        record = metadata[first : first + size]
        (length,) = struct.unpack_from("<Q", record, _ID)
        end = length + _BEFORE
        if not 0 <= size - end < _ALIGNED or len(record) != size:
            raise ValueError(f"a metadata record has {size} bytes but its content states {end} bytes")
        for name, blocks in _variables(record[_BEFORE:end], descriptions[record[:_ID]], step.data, names):
            blocks_by_name[name].append(blocks)
    return blocks_by_name


def _steps(index: bytes) -> Iterator[_Step]:
    place = _HEADER
    while place < len(index):
        kind, size = struct.unpack_from("<BQ", index, place)
        numbers = struct.unpack_from(f"<{size // 8}Q", index, place + 9)
        place += 9 + size
        if kind == ord("w") and (numbers[0] != 1 or numbers[2] != 1):
            raise Unread(
                f"{numbers[0]} processes wrote the folder to {numbers[2]} data files; only one process and one file "
                "are supported"
            )
        if kind == ord("s"):
            begin, length, flushes, data = numbers[:4]
            if flushes:
                raise Unread("a step was written in several flushes; only one flush per step is supported")
            yield _Step(begin, length, data)


def _described(content: bytes) -> Iterator[tuple[bytes, dict[str, list[_Field]]]]:
    """Name of each description, and the fields of its parts by their names; the record itself is the part ``""``."""
    place = 0
    while place < len(content):
        named, size = struct.unpack_from("<QQ", content, place)
        begin = place + 16 + named
        place = begin + size
        if place > len(content):
            raise ValueError(f"{_DESCRIPTIONS} is cut at byte {len(content)}")
        yield content[begin - named : begin], dict(_parts(content[begin:place]))


def _parts(body: bytes) -> Iterator[tuple[str, list[_Field]]]:
    _, order, version, others, _, _ = _FORMAT.unpack_from(body)
    if order != 0 or version != 2:
        raise Unread(
            f"the FFS metadata have byte order {order} and version {version}; only byte order 0 and version 2 are "
            "supported"
        )
    place = _FORMAT.size
    for number in range(others + 1):
        low, _, _, name, count, _, pointer, _, _, _, _, _, high, _ = _PART.unpack_from(body, place)
        if pointer != 8:
            raise Unread(f"the FFS metadata have addresses of {pointer} bytes; only 8 bytes are supported")
        part = body[place:]
        fields = [_FIELD.unpack_from(part, _PART.size + _FIELD.size * i) for i in range(count)]
        converted = [
            _Field(_text(part, field), _text(part, kind), size, offset) for field, kind, size, offset in fields
        ]
        yield _text(part, name) if number else "", converted
        place += int.from_bytes(low, "big") + (int.from_bytes(high, "big") << 16)


def _text(part: bytes, place: int) -> str:
    return part[place : part.index(b"\0", place)].decode()


def _variables(
    record: bytes, parts: dict[str, list[_Field]], data: int, names: Sequence[str]
) -> Iterator[tuple[str, list[Block]]]:
    """Name and blocks of each requested global array that a record contains."""
    fields = parts[""]
    if tuple(field.name for field in fields[:3]) != _OWN:
        raise Unread("the FFS metadata begin with unknown fields")
    words, bits, size = struct.unpack_from("<3Q", record)
    present = int.from_bytes(_numbers_bytes(record, bits, words), "little")
    for number, field in enumerate(fields[3:]):
        matched = _GLOBAL.fullmatch(field.name)
        if matched is None or matched[3] not in names or not present >> number & 1:
            continue
        name = matched[3]
        if _PLAIN.fullmatch(field.kind) is None:
            raise Unread(f"variable {name} is stored as {field.kind} (compressed, or derived from other variables)")
        kind = _TYPES.get(int(matched[2]))
        if kind is None or np.dtype(kind).itemsize != int(matched[1]):
            raise Unread(
                f"variable {name} has the unsupported ADIOS2 type number {matched[2]} with {matched[1]} bytes per "
                "element"
            )
        inner = {member.name: member.offset for member in parts[field.kind]}
        yield name, list(_blocks(record, field.offset, inner, kind, data, size))


def _blocks(record: bytes, begin: int, inner: dict[str, int], kind: str, data: int, size: int) -> Iterator[Block]:
    dims, blocks, both, *places = (struct.unpack_from("<Q", record, begin + inner[name])[0] for name in _WANTED)
    if not dims or both != dims * blocks or 0 in places:
        raise ValueError("the counts in the metadata of a variable contradict each other")
    if _LIMITS in inner:  # least and greatest element of each block; the library looks there without a check
        (place,) = struct.unpack_from("<Q", record, begin + inner[_LIMITS])
        _numbers_bytes(record, place, 2 * blocks * np.dtype(kind).itemsize // 8)
    shape, counts, starts, offsets = (
        struct.unpack(f"<{number}Q", _numbers_bytes(record, place, number))
        for place, number in zip(places, (dims, both, both, blocks), strict=True)
    )
    for number, offset in enumerate(offsets):
        of = slice(number * dims, (number + 1) * dims)
        length = math.prod(counts[of]) * np.dtype(kind).itemsize
        if offset + length > size:
            raise ValueError(
                f"a block of {length} bytes at byte {offset} goes beyond the {size} data bytes of its step"
            )
        yield Block(shape, starts[of], counts[of], kind, 0, data + offset)


def _numbers_bytes(record: bytes, place: int, count: int) -> bytes:
    """Returns the bytes of ``count`` numbers of 8 bytes each."""
    if count > len(record) // 8 or place + 8 * count > len(record):
        raise ValueError(
            f"{count} numbers of 8 bytes at byte {place} go beyond a metadata record of {len(record)} bytes"
        )
    return record[place : place + 8 * count]
