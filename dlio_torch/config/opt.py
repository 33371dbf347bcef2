"""How an option of the schema is written down: its default, and what ``explain`` says about it."""

from __future__ import annotations

from dataclasses import field
from typing import Any

MOST_THREADS = 65536
"""Processes or threads of a rank: more are a slip of the pen, and no system starts them."""

MOST_CHUNK_ROWS = 1 << 24
"""Rows of a chunk: HDF5 takes chunks below 4 GiB."""

LARGEST_CALL = 0x7FFFF000
"""Bytes that Linux transfers in one call at the most: a larger buffer is never filled by one."""


def opt(
    default: Any, doc: str, *, unit: str | None = None, minimum: float | None = None, maximum: float | None = None
) -> Any:
    """One option: its default, one line of documentation, unit (``B``, ``s``), least and greatest value."""
    metadata = {"doc": doc, "unit": unit, "min": minimum, "max": maximum}
    if isinstance(default, (list, dict)):
        made = default
        return field(default_factory=lambda: type(made)(made), metadata=metadata)
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)
