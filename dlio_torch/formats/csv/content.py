"""Inspection of text tables: number of lines and columns."""

from __future__ import annotations

from pathlib import Path
from typing import Any

_MOST_LINES = 64 << 20  # bytes in which lines are counted
_DELIMITERS = ",\t; "


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add ``columns``, ``lines`` and ``complete``."""
    lines, read, last = 0, 0, b"\n"
    with open(path, "rb") as file:
        first = file.readline(1 << 20)
        file.seek(0)
        while read < _MOST_LINES and (block := file.read(1 << 20)):
            read += len(block)
            lines += block.count(b"\n")
            last = block[-1:]
    lines += last != b"\n"
    text = first.decode(errors="replace")
    content["columns"] = 1 + max(text.strip().count(mark) for mark in _DELIMITERS)
    content |= {"lines": lines, "complete": read == content["bytes"]}
