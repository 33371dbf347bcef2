"""Types of the columns of Arrow tables: the arrays of samples that their cells hold.

Parquet files, Arrow files and whatever else pyarrow reads into tables share these rules.  A string is its UTF-8 bytes,
an image of a Hugging Face data set (a struct of ``bytes`` and ``path``) is its bytes, and an extension type is its
storage.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from dlio_torch.formats.core.array_specs import DTYPES

if TYPE_CHECKING:
    import pyarrow as pa

    from dlio_torch.formats.core.batch import ArraySpec

CONTENT = "bytes"
"""Member of a struct that holds the content of an encoded image or sound."""

_FLOATS = {"halffloat": "float16", "float": "float32", "double": "float64"}
_EXTENSION = b"ARROW:extension:metadata"


@dataclass(frozen=True)
class CellType:
    """Type of the cells of a column.

    Attributes:
        sizes: elements of each level of lists, outermost first; ``None``: they differ.  Empty: cells are scalars.
        dtype: of the elements, a name in ``DTYPES``; empty: no tensor can hold them.
        problem: why they cannot be read, and the remedy; empty: they can.
    """

    sizes: tuple[int | None, ...] = ()
    dtype: str = ""
    problem: str = ""

    @property
    def variable(self) -> bool:
        """Whether the number of rows differs from cell to cell, and nothing else does."""
        return bool(self.sizes) and self.sizes[0] is None and None not in self.sizes[1:]

    def fits(self, spec: ArraySpec) -> bool:
        """Whether cells may hold the arrays that ``spec`` describes; only reading tells the lengths of lists.

        A single level of lists may hold arrays of several axes, flattened.
        """
        if self.dtype != spec.dtype.name:
            return False
        if not spec.shape and not spec.variable:
            return not self.sizes
        inner = spec.shape if spec.variable else spec.shape[1:]
        if len(self.sizes) <= 1:
            size = self.sizes[0] if self.sizes else 0
            return size is None or (size > 0 and (spec.variable or size == math.prod(spec.shape)))
        fixed = zip(self.sizes[1:], inner, strict=False)
        return len(inner) == len(self.sizes) - 1 and all(size in (None, length) for size, length in fixed)


def cell_type(kind: pa.DataType, metadata: Mapping[bytes, bytes] | None = None) -> CellType:
    """The cells of a column of this type.

    Args:
        kind: of the column.
        metadata: of its field, which names the extension type where that is not registered.
    """
    import pyarrow as pa

    types = pa.types
    if isinstance(kind, pa.BaseExtensionType):
        return _shaped(cell_type(kind.storage_type), getattr(kind, "shape", None))
    if types.is_dictionary(kind):
        return cell_type(kind.value_type)
    if is_text(kind):
        return CellType((None,), "uint8")
    if types.is_fixed_size_binary(kind):
        return CellType((kind.byte_width,), "uint8")
    if is_list(kind):
        size = kind.list_size if types.is_fixed_size_list(kind) else None
        return _shaped(_listed(size, cell_type(kind.value_type), kind), _stated_shape(metadata or {}))
    if types.is_struct(kind):
        return _of_struct(kind)
    if types.is_boolean(kind) or types.is_integer(kind) or types.is_floating(kind):
        name = numpy_name(kind)
        return CellType((), name) if name in DTYPES else CellType(problem=f"no tensor holds {kind}")
    return CellType(problem=_remedy(kind))


def numpy_name(kind: pa.DataType) -> str:
    """Name of the NumPy type of numbers and truth values; pyarrow's own conversion imports pandas."""
    return _FLOATS.get(str(kind), str(kind))


def is_text(kind: pa.DataType) -> bool:
    """Whether cells are strings or bytes of any length."""
    import pyarrow as pa

    types = pa.types
    plain = types.is_binary(kind) or types.is_string(kind)
    return bool(plain or types.is_large_binary(kind) or types.is_large_string(kind) or is_view(kind))


def is_view(kind: pa.DataType) -> bool:
    """Whether cells are strings or bytes that lie anywhere in several buffers; older pyarrow has no such type."""
    return str(kind) in ("string_view", "binary_view")


def is_list(kind: pa.DataType) -> bool:
    """Whether cells are lists, of any length or of one."""
    import pyarrow as pa

    return bool(pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind))


def _listed(size: int | None, element: CellType, kind: pa.DataType) -> CellType:
    if element.problem:
        return CellType(problem=element.problem)
    value = kind.value_type
    import pyarrow as pa

    if is_text(value) or pa.types.is_dictionary(value) or (value.num_fields and not is_list(value)):
        return CellType(problem=f"lists of {value}: store one value in a cell, or numbers instead")
    return CellType((size, *element.sizes), element.dtype)


def _of_struct(kind: pa.DataType) -> CellType:
    position = kind.get_field_index(CONTENT)
    if position >= 0 and is_text(kind.field(position).type):
        return CellType((None,), "uint8")
    members = ", ".join(kind.field(number).name for number in range(kind.num_fields))
    return CellType(problem=f"a struct: store its members ({members}) as columns of their own")


def _shaped(cells: CellType, shape: Any) -> CellType:
    """The type with the lengths that an extension type states."""
    if cells.problem or not shape:
        return cells
    return CellType(tuple(shape), cells.dtype)


def _stated_shape(metadata: Mapping[bytes, bytes]) -> list[int | None] | None:
    """Shape that the metadata of a Hugging Face array type state, such as ``[[3, 4], "float32"]``."""
    try:
        stated = json.loads(metadata[_EXTENSION])
    except (KeyError, ValueError):
        return None
    shape = stated[0] if isinstance(stated, list) and stated else None
    sound = isinstance(shape, list) and all(size is None or (type(size) is int and size > 0) for size in shape)
    return shape if sound else None


def _remedy(kind: pa.DataType) -> str:
    import pyarrow as pa

    types = pa.types
    if types.is_temporal(kind):
        return f"{kind}: no tensor holds times; store them as int64"
    if types.is_decimal(kind):
        return f"{kind}: no tensor holds decimals; store them as float64 or int64"
    if types.is_null(kind):
        return "the column has no values"
    return f"no tensor holds {kind}; store numbers, strings or lists of numbers"
