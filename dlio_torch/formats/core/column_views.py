"""NumPy views of the buffers of a pyarrow array."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.cell_types import numpy_name

if TYPE_CHECKING:
    import pyarrow as pa


class BitView:
    """Elements of a column of truth values, eight in a byte.

    Raises:
        ValueError: the buffer is smaller than the column.
    """

    def __init__(self, array: pa.Array) -> None:
        self._octets = octets_of(array.buffers()[1])
        self._offset = array.offset
        if len(self._octets) * 8 < array.offset + len(array):
            raise ValueError("a buffer is smaller than its column")

    def __getitem__(self, part: slice) -> npt.NDArray[Any]:
        low, high = self._offset + part.start, self._offset + part.stop
        bits = np.unpackbits(self._octets[low // 8 : -(-high // 8)], bitorder="little")
        return bits[low % 8 : low % 8 + high - low].view(np.bool_)


def octets_of(buffer: pa.Buffer | None) -> npt.NDArray[np.uint8]:
    """The bytes of a buffer, which may be missing."""
    return np.empty(0, np.uint8) if buffer is None or not buffer.size else np.frombuffer(buffer, np.uint8)


def number_view(array: pa.Array) -> npt.NDArray[Any]:
    """The elements of a column of numbers.

    Raises:
        ValueError: the buffer is smaller than the column.
    """
    dtype = np.dtype(numpy_name(array.type))
    if not len(array):
        return np.empty(0, dtype)
    return np.frombuffer(array.buffers()[1], dtype, array.offset + len(array))[array.offset :]


def first_elements(array: pa.Array) -> npt.NDArray[Any]:
    """First element of each list, string or binary cell, and the end of the last one's."""
    import pyarrow as pa

    types, kind = pa.types, array.type
    large = types.is_large_list(kind) or types.is_large_binary(kind) or types.is_large_string(kind)
    dtype = np.dtype(np.int64 if large else np.int32)
    if not len(array):
        return np.zeros(1, dtype)
    return np.frombuffer(array.buffers()[1], dtype, array.offset + len(array) + 1)[array.offset :]
