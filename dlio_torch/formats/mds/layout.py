"""Layout of MDS shards: the extents of each column in each sample."""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.layout import ArrayLayout, FileLayout, Listed
from dlio_torch.formats.mds.encodings import prefix_bytes
from dlio_torch.formats.mds.sample_columns import SampleColumns
from dlio_torch.formats.mds.shard import WORD, ShardHead, read_sizes


def layout_of(columns: SampleColumns, head: ShardHead) -> FileLayout:
    """Layout of a shard.

    Raises:
        DataError: a sample contradicts the columns.
    """
    begins, lengths = head.offsets[:-1], np.diff(head.offsets)
    starts, sizes = columns.starts_and_sizes(_variable_sizes(columns, begins, lengths))
    total = WORD * len(columns.variable) + sizes.sum(axis=1)
    wrong = np.flatnonzero((total != lengths) | (sizes < 0).any(axis=1))
    if len(wrong):
        row = int(wrong[0])
        raise columns.damaged(row, f"it has {lengths[row]} bytes, but its columns need {total[row]}")
    arrays: dict[str, ArrayLayout] = {}
    for spec, column in zip(columns.specs, columns.positions, strict=True):
        first, size = begins + starts[:, column], sizes[:, column]
        if columns.columns[column].parsed.kind == "ragged":
            prefixes = prefix_bytes(spec, size)
            if not prefixes.all():
                row = int(prefixes.argmin())
                raise columns.damaged(row, f"column {spec.name} of {size[row]} bytes is no array of such rows")
            first, size = first + prefixes, size - prefixes
        row_bytes = math.prod(spec.shape) * spec.dtype.itemsize
        limit = int(head.offsets[-1])
        arrays[spec.name] = Listed(columns.path, first, size, row_bytes, variable=spec.variable, limit=limit)
    return FileLayout(head.num_samples, arrays)


def _variable_sizes(
    columns: SampleColumns, begins: npt.NDArray[np.int64], lengths: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Bytes of the columns of variable size, which are read from the samples only where there are several of them."""
    count = len(columns.variable)
    if count <= 1:
        fixed = sum(column.size or 0 for column in columns.columns)
        return (lengths - fixed - WORD * count)[:, None][:, :count]
    return read_sizes(columns.path, begins, count)
