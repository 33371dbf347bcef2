"""Inspection of an Arrow IPC file: columns and record batches from its metadata."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dlio_torch.formats.core.content import MOST


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add ``rows``, ``record_batches``, ``columns`` (``name``, ``type``) and ``complete``."""
    from dlio_torch.formats.arrow.table import ArrowTable

    table = ArrowTable(path)
    try:
        content |= {"rows": table.num_rows, "record_batches": len(table.batches)}
        content["columns"] = [{"name": field.name, "type": str(field.type)} for field in list(table.schema)[:MOST]]
        content["complete"] = len(table.schema) <= MOST
    finally:
        table.close()
