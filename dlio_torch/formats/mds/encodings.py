"""Encodings of MDS columns, as far as a column becomes an array: the stored type of a field, and back.

The names and byte layouts are those of MosaicML Streaming (streaming/base/format/mds/encodings.py).  An ``ndarray``
without a shape stores, before its elements, one byte (axes << 2 | width of a length: 0 for uint8 to 3 for uint64) and
the lengths of its axes.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.batch import ArraySpec

Ints = npt.NDArray[np.int64]

NUMBERS = (*(f"{sign}int{bits}" for sign in ("u", "") for bits in (8, 16, 32, 64)), "float16", "float32", "float64")
"""Element types of scalars and arrays."""
BYTES = ("bytes", "str", "jpeg", "png", "pil", "json", "pkl", "str_int", "str_float", "str_decimal")
"""Encodings of any length that are delivered as their bytes."""
PICKLE = "pkl"
_NDARRAY = "ndarray"
_WIDTHS = (1, 2, 4, 8)  # bytes of the length of an axis


@dataclass(frozen=True)
class Encoding:
    """A parsed encoding.

    Attributes:
        kind: ``number`` or ``array`` of a fixed shape, ``ragged`` array without one, ``bytes``, or ``other``, which
            cannot be read as an array.
        dtype: name of the element type; empty for ``other``.
        shape: of a fixed array; a number has none.
    """

    kind: str
    dtype: str = ""
    shape: tuple[int, ...] = ()

    @property
    def size(self) -> int | None:
        """Stored bytes; ``None``: they differ from sample to sample."""
        if self.kind not in ("number", "array"):
            return None
        return math.prod(self.shape) * np.dtype(self.dtype).itemsize

    def fits(self, spec: ArraySpec) -> bool:
        """Whether a column of this encoding is the array that a field describes."""
        if self.dtype != spec.dtype.name:
            return False
        if self.kind == "bytes":
            return spec.variable and spec.shape == ()
        if self.kind == "ragged":
            return spec.variable
        return not spec.variable and self.shape == spec.shape


def parsed(encoding: str) -> Encoding:
    """Parses the name of an encoding, such as ``uint16``, ``jpeg:90`` or ``ndarray:float32:3,224,224``."""
    name, _, rest = encoding.partition(":")
    if encoding == "int":
        return Encoding("number", "int64")
    if encoding in NUMBERS:
        return Encoding("number", encoding)
    if name in BYTES:
        return Encoding("bytes", "uint8")
    dtype, _, lengths = rest.partition(":")
    if name != _NDARRAY or dtype not in NUMBERS:
        return Encoding("other")
    if not lengths:
        return Encoding("ragged", dtype)
    if not all(length.isascii() and length.isdigit() and int(length) for length in lengths.split(",")):
        return Encoding("other")
    return Encoding("array", dtype, tuple(map(int, lengths.split(","))))


def encoding_of(spec: ArraySpec) -> str:
    """Name of the encoding that stores a field; empty: there is none for its element type."""
    dtype = spec.dtype.name
    if dtype not in NUMBERS:
        return ""
    if spec.variable:
        return "bytes" if dtype == "uint8" and spec.shape == () else f"{_NDARRAY}:{dtype}"
    return f"{_NDARRAY}:{dtype}:{','.join(map(str, spec.shape))}" if spec.shape else dtype


def shape_prefix(spec: ArraySpec, rows: int) -> bytes:
    """The bytes before the elements of a ragged array of so many rows."""
    shape = (rows, *spec.shape)
    code = _code(np.array([max(shape)]))[0]
    return bytes([len(shape) << 2 | int(code)]) + np.array(shape).astype(f"<u{_WIDTHS[code]}").tobytes()


def prefix_bytes(spec: ArraySpec, sizes: Ints) -> Ints:
    """Bytes before the elements of ragged arrays, from the bytes of each with them; 0: no such array has this size."""
    row = math.prod(spec.shape) * spec.dtype.itemsize
    prefixes = np.zeros(len(sizes), np.int64)
    for code, width in enumerate(_WIDTHS):
        prefix = 1 + (1 + len(spec.shape)) * width
        rows, rest = np.divmod(sizes - prefix, row)
        largest = np.maximum(rows, max(spec.shape, default=0))
        prefixes[(rest == 0) & (rows > 0) & (_code(largest) == code)] = prefix
    return prefixes


def prefix_sizes(spec: ArraySpec, rows: Ints) -> Ints:
    """Bytes before the elements of ragged arrays of so many rows each."""
    widths = np.array(_WIDTHS)[_code(np.maximum(rows, max(spec.shape, default=0)))]
    sizes: Ints = 1 + (1 + len(spec.shape)) * widths
    return sizes


def _code(largest: npt.NDArray[Any]) -> npt.NDArray[np.intp]:
    """Width code of an array whose longest axis has this length."""
    return np.searchsorted(np.array([1 << 8, 1 << 16, 1 << 32]), largest, side="right")
