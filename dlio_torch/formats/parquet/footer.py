"""Column chunks in the footer of a Parquet file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Set
from typing import Any


def column_chunks(meta: Any, names: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yields the column and the metadata of each of its chunks; a column of lists or structs has several per row group.

    Args:
        meta: pyarrow's metadata of the file.
        names: of the columns, which may contain dots.
    """
    known = frozenset(names)
    owners: dict[str, str | None] = {}
    for number in range(meta.num_row_groups):
        group = meta.row_group(number)
        for chunk in map(group.column, range(group.num_columns)):
            path = chunk.path_in_schema
            if path not in owners:
                owners[path] = _owner(path, known)
            owner = owners[path]
            if owner is not None:
                yield owner, chunk


def _owner(path: str, names: Set[str]) -> str | None:
    """The longest name that is the path or a prefix of it, up to a dot."""
    while path and path not in names:
        path = path.rpartition(".")[0]
    return path or None
