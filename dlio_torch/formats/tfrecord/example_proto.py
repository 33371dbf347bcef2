"""Encoder and decoder of the wire format of ``tf.train.Example``; decoded arrays are views of the record.

An Example is a protocol buffer, ``Example { Features { map<string, Feature> } }``, where a Feature holds
a list of byte strings, of floats or of integers (tensorflow/core/example/feature.proto).  A general parser
copies every byte string; here an array that was stored as one is a view of the record.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.batch import ArraySpec, Sample

Kind = Literal["bytes", "floats", "integers"]
Octets = npt.NDArray[np.uint8]
Piece = bytes | Octets
"""Bytes to write: a one-dimensional piece, whose length is its number of bytes."""

_NUMBERS: dict[Kind, int] = {"bytes": 1, "floats": 2, "integers": 3}  # fields of message Feature
_KINDS: dict[int, Kind] = {number: kind for kind, number in _NUMBERS.items()}
_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5  # wire types
_SIZES = {_FIXED64: 8, _FIXED32: 4}
_FIRST, _SECOND = 1 << 3 | _LENGTH, 2 << 3 | _LENGTH  # tags of the two fields that nested messages have
_GROUPS = np.arange(10)  # a 64-bit number takes at most ten groups of seven bits
_FEW = 16  # bytes below which NumPy costs more than it saves
_WORD = (1 << 64) - 1
_NO_EXAMPLE = "the record is not an Example proto"


@dataclass(frozen=True)
class Feature:
    """Storage of one array of a sample as a feature.

    Attributes:
        spec: the array.
        kind: one byte string of its memory (row-major, little-endian), or a list of its numbers.
    """

    spec: ArraySpec
    kind: Kind


# --- writing ---


def encode(features: Sequence[Feature], sample: Sample) -> list[Piece]:
    """Encodes a sample as an Example with features in the given order; arrays are not copied.

    Returns:
        Bytes and arrays that make the message when written one after another.
    """
    pieces: list[Piece] = []
    total = 0
    for feature in features:
        array = sample[feature.spec.name]
        memory = np.ascontiguousarray(array).reshape(-1)
        stored: Piece = _pack(memory.view(np.uint64)) if feature.kind == "integers" else memory.view(np.uint8)
        name = feature.spec.name.encode()
        # From the inside out: each message begins with its tag and length.
        head = bytes([_FIRST]) + _varint(len(stored))
        head = bytes([_NUMBERS[feature.kind] << 3 | _LENGTH]) + _varint(len(head) + len(stored)) + head
        head = bytes([_SECOND]) + _varint(len(head) + len(stored)) + head
        head = bytes([_FIRST]) + _varint(len(name)) + name + head
        head = bytes([_FIRST]) + _varint(len(head) + len(stored)) + head
        pieces += [head, stored]
        total += len(head) + len(stored)
    return [bytes([_FIRST]) + _varint(total), *pieces]


def _varint(value: int) -> bytes:
    """Encodes a non-negative number as a varint."""
    octets = bytearray()
    while value > 0x7F:
        octets.append(value & 0x7F | 0x80)
        value >>= 7
    octets.append(value)
    return bytes(octets)


def _pack(values: npt.NDArray[np.uint64]) -> bytes:
    """Encodes many numbers as varints; a negative number takes ten bytes."""
    groups = (values[:, None] >> (7 * _GROUPS).astype(np.uint64) & np.uint64(0x7F)).astype(np.uint8)
    used = groups != 0
    used[:, 0] = True
    last = 9 - used[:, ::-1].argmax(axis=1)[:, None]
    groups |= (last > _GROUPS).astype(np.uint8) << 7
    packed: bytes = groups[last >= _GROUPS].tobytes()
    return packed


def packed_lengths(values: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Bytes of the integer list that stores each row of ``values``; int64 of ``(rows,)``."""
    above = values.reshape(len(values), -1, 1).view(np.uint64) >> (7 * _GROUPS[1:]).astype(np.uint64)
    lengths: npt.NDArray[np.int64] = values.reshape(len(values), -1).shape[1] + (above != 0).sum(axis=(1, 2))
    return lengths


# --- reading ---


class Decoder:
    """Decoder of records into samples.

    Args:
        features: arrays to take; others that a record holds are passed over.

    Attributes:
        lead: position in the last record of the largest array that wants alignment: where that byte of a
            record is aligned in memory, the array need not be copied.
    """

    def __init__(self, features: Sequence[Feature]) -> None:
        self._features = [(feature, feature.spec.name.encode()) for feature in features]
        self.lead = 0

    def decode(self, record: Octets, *, align: bool = True) -> Sample:
        """Decodes the arrays of a record as views of its memory.

        Args:
            record: an Example, uint8 of shape (bytes,), contiguous.
            align: copy an array that is not aligned.

        Raises:
            ValueError: it is no Example, or an array is missing or of another size; says which.
        """
        view = record.data
        features = wire_features(view)
        sample: Sample = {}
        largest = 0
        for feature, key in self._features:
            name, entry = feature.spec.name, features.get(key)
            if entry is None:
                known = ", ".join(sorted(other.decode(errors="replace") for other in features)) or "none"
                raise ValueError(f"the record has no feature {name!r}; its features are: {known}")
            kind, low, high = entry
            if kind != feature.kind:
                raise ValueError(f"feature {name!r} is a list of {kind}, but dataset.fields expect {feature.kind}")
            spans = value_spans(view, low, high)
            if kind == "bytes" and len(spans) != 1:
                raise ValueError(f"feature {name!r} holds {len(spans)} values instead of one")
            # Numbers may lie packed in one span, or each in its own.
            start, end = spans[0] if len(spans) == 1 else (0, 0)
            stored = record[start:end] if len(spans) < 2 else np.concatenate([record[i:j] for i, j in spans])
            array = _shaped(_unpack(stored) if kind == "integers" else stored, feature.spec)
            if kind != "integers" and feature.spec.dtype.itemsize > 1:
                if end - start > largest:
                    largest, self.lead = end - start, start
                if align and not array.flags.aligned:
                    array = array.copy()
            sample[name] = array
        return sample


def _shaped(stored: npt.NDArray[np.generic], spec: ArraySpec) -> npt.NDArray[np.generic]:
    """Shapes a feature's stored numbers or bytes as its array."""
    row = spec.dtype.itemsize
    for length in spec.shape:
        row *= length
    size = stored.nbytes
    if size % row if spec.variable else size != row:
        raise ValueError(
            f"feature {spec.name!r} has {size} bytes, but dataset.fields expect "
            f"{'a multiple of ' if spec.variable else ''}{row} bytes ({spec.dtype.name} of shape {list(spec.shape)})"
        )
    return stored.view(spec.dtype).reshape((size // row, *spec.shape) if spec.variable else spec.shape)


def _unpack(stored: Octets) -> npt.NDArray[np.int64]:
    """Decodes adjacent varints."""
    if len(stored) <= _FEW:
        view, offset, values = stored.data, 0, []
        while offset < len(view):
            value, offset = _number(view, offset, len(view))
            values.append(value & _WORD)
        return np.array(values, np.uint64).view(np.int64)
    ends = np.flatnonzero(stored < 0x80) + 1
    lengths = np.diff(ends, prepend=0)
    if len(ends) == 0 or ends[-1] != len(stored) or lengths.max() > len(_GROUPS):
        raise ValueError(_NO_EXAMPLE)
    starts = ends - lengths
    shifts = 7 * (np.arange(len(stored)) - np.repeat(starts, lengths))
    groups = (stored & 0x7F).astype(np.uint64) << shifts.astype(np.uint64)
    return np.add.reduceat(groups, starts).view(np.int64)


def wire_features(view: memoryview) -> dict[bytes, tuple[Kind, int, int]]:
    """Kind and span of each feature's list by name; for a repeated name, those of the last occurrence."""
    lists: dict[bytes, tuple[Kind, int, int]] = {}
    for features, start, end in _fields(view, 0, len(view)):
        if features != _FIRST:
            continue
        for entry, low, high in _fields(view, start, end):
            if entry != _FIRST:
                continue
            name, value = b"", (0, 0)
            for tag, begin, stop in _fields(view, low, high):
                if tag == _FIRST:
                    name = bytes(view[begin:stop])
                elif tag == _SECOND:
                    value = begin, stop
            for tag, begin, stop in _fields(view, *value):
                if tag & 7 == _LENGTH and tag >> 3 in _KINDS:
                    lists[name] = _KINDS[tag >> 3], begin, stop
    return lists


def value_spans(view: memoryview, low: int, high: int) -> list[tuple[int, int]]:
    """Spans of the values of a list between ``low`` and ``high``: of each byte string, or of packed or single numbers.

    Raises:
        ValueError: it is no such list.
    """
    return [(start, end) for tag, start, end in _fields(view, low, high) if tag >> 3 == 1]


def _fields(view: memoryview, offset: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yields tag and value span of each field of the message between ``offset`` and ``end``."""
    while offset < end:
        tag, offset = _number(view, offset, end)
        wire = tag & 7
        if wire == _LENGTH:
            length, offset = _number(view, offset, end)
        elif wire == _VARINT:
            length = _number(view, offset, end)[1] - offset
        else:
            length = _SIZES.get(wire, end)
        if tag < 8 or length > end - offset:
            raise ValueError(_NO_EXAMPLE)
        yield tag, offset, offset + length
        offset += length


def _number(view: memoryview, offset: int, end: int) -> tuple[int, int]:
    """Returns the varint at ``offset`` and the position after it."""
    value = shift = 0
    while offset < end and shift < 70:
        byte: int = view[offset]
        offset += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, offset
        shift += 7
    raise ValueError(_NO_EXAMPLE)
