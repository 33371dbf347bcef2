"""Columns of Arrow tables that hold generated samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    import pyarrow as pa


def stored_column(kind: pa.DataType, flat: Any, ends: Any, count: int) -> pa.Array:
    """Converts the elements of consecutive samples to a column.

    Args:
        kind: of the column: scalars, lists, lists of one length, or bytes.
        flat: all elements, of shape ``(elements,)``.
        ends: first element of each sample, and the end of the last one's; int64.
        count: number of samples.
    """
    import pyarrow as pa

    types = pa.types
    if types.is_fixed_size_binary(kind):
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(flat)])
    if types.is_binary(kind) or types.is_large_binary(kind):
        offsets = ends.astype(np.int64 if types.is_large_binary(kind) else np.int32)
        return pa.Array.from_buffers(kind, count, [None, pa.py_buffer(offsets), pa.py_buffer(flat)])
    values = pa.array(flat)
    if types.is_large_list(kind):
        return pa.LargeListArray.from_arrays(pa.array(ends), values, type=kind)
    if types.is_list(kind):
        return pa.ListArray.from_arrays(pa.array(ends.astype(np.int32)), values, type=kind)
    return pa.FixedSizeListArray.from_arrays(values, type=kind) if types.is_fixed_size_list(kind) else values
