"""Wraps lines of text and rows of two columns to the width of the output; names are never broken."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap

WIDEST = 100
"""Columns of text on a wider terminal, and where the output is no terminal."""
_NARROWEST = 40
_ROW = re.compile(r"( *\S.*?  +)\S| +(?=\S)")


def output_width() -> int:
    """Columns of the standard output."""
    if not sys.stdout.isatty():
        return WIDEST
    return min(max(shutil.get_terminal_size().columns, _NARROWEST), WIDEST)


def wrap(text: str, width: int) -> str:
    """Wrap each line of ``text`` that is too long.

    Further lines of a row, ``name  text``, stand below its text; those of another line are indented by four columns.
    Where the name takes more than half of the width, the text begins in the line after it.
    """
    return "".join(f"{part}\n" for line in text.splitlines() for part in _wrap_line(line, width))


def _wrap_line(line: str, width: int) -> list[str]:
    if len(line) <= width:
        return [line]
    row = _ROW.match(line)
    name = row[1] or "" if row is not None else ""
    if len(name) > width // 2:
        return [name.rstrip(), *_fill(line[len(name) :], width, "      ", "      ")]
    if name:
        return _fill(line[len(name) :], width, name, " " * len(name))
    indent = row[0] if row is not None else ""
    return _fill(line.lstrip(), width, indent, indent if indent else "    ")


def _fill(text: str, width: int, first: str, others: str) -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=first,
        subsequent_indent=others,
        break_long_words=False,
        break_on_hyphens=False,
    )
