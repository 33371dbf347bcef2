"""Declaration of an option: default, documentation, unit and limits."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import Any

MOST_THREADS = 65536
"""Upper limit for processes or threads of a rank, which no system reaches: a larger number is a typing mistake."""

MOST_IN_FLIGHT = 4096
"""Upper limit for requests that a thread has in flight: more than a device takes at a time."""

MOST_CHUNK_ROWS = 1 << 24
"""Upper limit for rows of a chunk, because a chunk of HDF5 is smaller than 4 GiB."""

MOST_DEFLATE = 9
"""Highest compression level of zlib, on which gzip and the deflate filter of HDF5 are based."""

LARGEST_CALL = 0x7FFFF000
"""Largest number of bytes that Linux transfers in one read or write call."""


NO_FORMER: tuple[str, Mapping[str, str]] = ("", {})
"""Former name of an option that has none."""


def opt(
    default: Any,
    doc: str,
    *,
    unit: str | None = None,
    minimum: float | None = None,
    maximum: float | None = None,
    former: tuple[str, Mapping[str, str]] = NO_FORMER,
    is_file: bool = False,
) -> Any:
    """Declares an option.

    Args:
        default: default value.
        doc: one line of documentation.
        unit: ``B`` or ``s``.
        minimum: least permitted value.
        maximum: greatest permitted value.
        former: former name of the option in its group, and the former words of its values that have changed, with
            their successors; an error about the former name names the option.
        is_file: it names a file; a relative path in a YAML file starts at the folder of the YAML file.
    """
    metadata = {"doc": doc, "unit": unit, "min": minimum, "max": maximum, "former": former, "is_file": is_file}
    if isinstance(default, (list, dict)):
        return field(default_factory=lambda: type(default)(default), metadata=metadata)
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)
