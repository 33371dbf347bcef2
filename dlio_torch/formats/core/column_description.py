"""Description of the columns of a table: which of them are arrays of a sample, and why the others are not."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.array_specs import specs_of
from dlio_torch.formats.core.cell_types import CONTENT, CellType, cell_type, is_list, is_text, is_view
from dlio_torch.formats.core.column_views import first_elements
from dlio_torch.formats.core.content import MOST
from dlio_torch.formats.core.data_description import StoredArray
from dlio_torch.units import counted

if TYPE_CHECKING:
    import pyarrow as pa

_SHORTEST_MEAN = 0.1
_TYPE_CHARACTERS = 60


@dataclass(frozen=True)
class TableColumn:
    """One column, as the metadata of a file state it.

    Attributes:
        name: of the column.
        kind: its Arrow type.
        rows: number of cells.
        metadata: of its field.
        nulls: number of empty cells; ``None``: not stated.
        mean: mean elements or bytes of a cell of variable length; ``None``: not known.
        has_content: ``False``: images or sounds of which only paths are stored.
        chunk_rows: rows that are stored together.
        compression: name of the codec; empty: none.
        stored_bytes: in the file; ``None``: not stated.
    """

    name: str
    kind: pa.DataType
    rows: int
    metadata: Mapping[bytes, bytes] | None = None
    nulls: int | None = None
    mean: float | None = None
    has_content: bool = True
    chunk_rows: int = 0
    compression: str = ""
    stored_bytes: int | None = None


def describe_columns(
    columns: Sequence[TableColumn], left_out: Mapping[str, str]
) -> tuple[tuple[FieldConfig, ...], tuple[StoredArray, ...]]:
    """Arrays of a sample, and all columns with a note on those that cannot be read.

    Args:
        columns: of the table.
        left_out: reasons to leave a column out, by its name.
    """
    fields, arrays = [], []
    for column in columns:
        cells = cell_type(column.kind, column.metadata)
        note = left_out.get(column.name, "")
        field = None if note else field_of(column, cells)
        if isinstance(field, FieldConfig):
            fields.append(field)
        elif field is not None:
            note = field
        shape = (column.rows, *(size for size in cells.sizes if size is not None))
        arrays.append(
            StoredArray(
                column.name,
                _short(str(column.kind)),
                None if None in cells.sizes else shape,
                (column.chunk_rows,) if column.chunk_rows else None,
                column.compression,
                column.stored_bytes,
                note,
            )
        )
    return tuple(fields), tuple(arrays)


def field_of(column: TableColumn, cells: CellType) -> FieldConfig | str:
    """The array of a sample that a column holds, or one line on why it holds none."""
    if cells.problem:
        return cells.problem
    if not column.has_content:
        return "only paths of files are stored: read the files themselves"
    if column.nulls:
        return f"{counted(column.nulls, 'empty cell')}, which no tensor holds: fill them to read the column"
    if None in cells.sizes[1:]:
        return "lists of lists whose lengths are not stated: if they are equal, set dataset.fields yourself"
    shape = [size for size in cells.sizes if size is not None]
    mean = max(_SHORTEST_MEAN, round(column.mean or 0.0, 1)) if cells.variable else 0.0
    field = FieldConfig(column.name, cells.dtype, shape, length_mean=mean)
    try:
        specs_of([field])
    except ConfigError as error:
        return error.message
    return field


def cell_lengths(array: pa.Array) -> tuple[int, int]:
    """Elements of all cells of a column of variable length, and the number of cells; only touches two offsets.

    Of a dictionary-encoded column, those of its dictionary.
    """
    import pyarrow as pa

    kind = array.type
    if isinstance(kind, pa.BaseExtensionType):
        return cell_lengths(array.storage)
    if pa.types.is_struct(kind):
        return (0, 0) if kind.get_field_index(CONTENT) < 0 else cell_lengths(array.field(CONTENT))
    if pa.types.is_dictionary(kind):
        return cell_lengths(array.dictionary)
    if is_view(kind):
        return cell_lengths(array.cast(pa.large_binary()))
    if not len(array) or not (is_text(kind) or is_list(kind)) or pa.types.is_fixed_size_list(kind):
        return 0, 0
    ends = first_elements(array)
    return int(ends[-1]) - int(ends[0]), len(array)


def empty_cells(array: pa.Array) -> int:
    """Number of empty cells of a column, as its metadata state it; of an image, those without content, too."""
    import pyarrow as pa

    count: int = array.null_count
    if isinstance(array.type, pa.BaseExtensionType):
        return empty_cells(array.storage)
    if pa.types.is_struct(array.type) and array.type.get_field_index(CONTENT) >= 0:
        count = max(count, array.field(CONTENT).null_count)
    return count


def has_content(array: pa.Array) -> bool:
    """Whether cells are other than images or sounds of which only paths are stored."""
    import pyarrow as pa

    if not pa.types.is_struct(array.type) or array.type.get_field_index(CONTENT) < 0 or not len(array):
        return True
    return bool(array.field(CONTENT).null_count < len(array))


def unlisted(count: int) -> list[str]:
    """Note on the columns of a table with more columns than a description lists."""
    return [f"the first {MOST} of {count} columns are listed"] if count > MOST else []


def _short(text: str) -> str:
    return text if len(text) <= _TYPE_CHARACTERS else text[: _TYPE_CHARACTERS - 3] + "..."
