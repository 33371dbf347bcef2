"""Declaration of an option: its default and its documentation."""

from __future__ import annotations

from dataclasses import field
from typing import Any

MOST_THREADS = 65536
"""Processes or threads of a rank: a larger number is a mistake, no system starts so many."""

MOST_CHUNK_ROWS = 1 << 24
"""Rows of a chunk: HDF5 takes chunks below 4 GiB."""

MOST_DEFLATE = 9
"""Highest compression level of zlib, which gzip and the deflate filter of HDF5 share."""

LARGEST_CALL = 0x7FFFF000
"""Most bytes that Linux transfers in one call."""


def opt(
    default: Any, doc: str, *, unit: str | None = None, minimum: float | None = None, maximum: float | None = None
) -> Any:
    """One option: its default, one line of documentation, unit (``B``, ``s``), least and greatest value."""
    metadata = {"doc": doc, "unit": unit, "min": minimum, "max": maximum}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)
