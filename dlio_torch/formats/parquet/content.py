"""Inspection of a Parquet table: columns and row groups from its footer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlio_torch.formats.core.content import MOST


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add ``rows``, ``row_groups``, ``columns`` (``name``, ``type``) and ``complete``."""
    from pyarrow.parquet import ParquetFile

    with ParquetFile(path) as file:
        data, schema = file.metadata, file.schema_arrow
        content |= {"rows": data.num_rows, "row_groups": data.num_row_groups}
        content["columns"] = [{"name": field.name, "type": str(field.type)} for field in list(schema)[:MOST]]
        content["complete"] = len(schema) <= MOST
