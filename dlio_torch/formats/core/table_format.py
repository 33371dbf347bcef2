"""Base of formats of tables that pyarrow writes: generates the columns of ``dataset.fields``."""

from __future__ import annotations

import math
from abc import abstractmethod
from concurrent.futures import Executor
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.core.array_format import FieldFormat
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.table_errors import need_pyarrow

if TYPE_CHECKING:
    import pyarrow as pa

_TRIAL_BYTES = 1 << 20


class TableFormat(FieldFormat):
    """A format whose samples are the rows of a table.

    Attributes:
        library: module of pyarrow that the format needs.
        reading: names of the options that only concern reading.
    """

    writes_at_once: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True
    may_crash: ClassVar[bool] = True
    library: ClassVar[str]
    reading: ClassVar[tuple[str, ...]] = ()

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        super().__init__(config, seed)
        need_pyarrow(self.name, self.library)

    def layout_options(self) -> dict[str, Any]:
        return {key: value for key, value in super().layout_options().items() if key not in self.reading}

    @abstractmethod
    def column_type(self, spec: ArraySpec) -> pa.DataType:
        """Type of the column that holds the generated arrays of ``spec``."""

    def trial_rows(self, most: int) -> int:
        """Rows of a trial table of about 1 MiB, at most ``most``."""
        return max(1, min(most, int(_TRIAL_BYTES // max(1.0, self.sample_bytes()))))

    def columns(self, first: int, count: int, pool: Executor | None) -> list[pa.Array]:
        """Columns of ``count`` samples from ``first`` on, made by the threads of ``pool``."""
        columns = []
        for number, spec in enumerate(self._specs):
            if pool is None:
                pieces = self.content(number, first, count)
            else:
                pieces = list(self.blocks(number, first, count, pool))
            flat = np.concatenate([piece.reshape(-1) for piece in pieces])
            ends = np.concatenate([[0], np.cumsum(self.rows(number, first, count))]) * math.prod(spec.shape)
            if spec.variable:
                self.check_elements(spec.name, int(ends[-1]))
            columns.append(_stored_column(self.column_type(spec), flat, ends, count))
        return columns

    def check_elements(self, name: str, count: int) -> None:
        """Raise if the offsets of column ``name`` cannot address so many elements.

        Raises:
            ConfigError: they cannot.
        """


def _stored_column(kind: pa.DataType, flat: Any, ends: Any, count: int) -> pa.Array:
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
