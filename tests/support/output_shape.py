"""The shape of what a command prints: its tables, the names of its figures, and the beginnings of its lines."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import takewhile

LEFT_OUT = "[...]"
"""Line of a page that stands for lines that are left out."""
NOISE = {
    "compute time error", "storage limit", "causes of waits",  # of a run on a busy machine, or of one that knows it
    "Highest median", "Best",  # whether repeats tell settings apart
    "not measured", "not reproduced", "note", "warning", "stdev_s", "distribution",
}  # fmt: skip
"""Names of lines that depend on the machine and its load."""
_RULE = re.compile(r"^ *─{8,}$")
_CELLS = re.compile(r" {2,}")
_FIGURE = re.compile(r"^ {0,4}(?P<name>[A-Za-z_][\w ,.()/-]*?) {2,}\S")
_LINE = re.compile(r"^(?:- )?(?P<name>[A-Za-z][\w-]*(?: [\w-]+){0,3}):(?: |$)")  # a sentence has more words
_CONTINUED = " " * 8


@dataclass(frozen=True)
class TableShape:
    """A table without its figures.

    Attributes:
        heads: words of the heads, sorted, because heads of several lines are read line by line.
        rows: first cells of each row, sorted; of a row that begins with a whole number, this one and the next cell.
    """

    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def differences(page: str, printed: str) -> list[str]:
    """What a page shows and a command did not print: figures, lines, and tables with their heads and rows.

    Args:
        page: output on a page; :data:`LEFT_OUT` stands for any lines.
        printed: output of the command.  It may have further figures, and further rows.
    """
    absent = Counter(names(page)) - Counter(names(printed))
    result = [f"no line {name}" for name in absent if name not in NOISE]
    real = tables(printed)
    for table in tables(page):
        if not any(other.heads == table.heads and set(table.rows) <= set(other.rows) for other in real):
            result.append(f"no table {' '.join(table.heads)} with the rows {table.rows}")
    if LEFT_OUT not in page and len(real) != len(tables(page)):
        result.append(f"{len(real)} tables instead of {len(tables(page))}")
    return result


def tables(text: str) -> list[TableShape]:
    """The tables of an output: heads above a rule, rows below it, up to an empty line."""
    lines = text.splitlines()
    return [_table(lines, number) for number, line in enumerate(lines) if _RULE.match(line)]


def names(text: str) -> list[str]:
    """Names of figures and beginnings of lines (``Report:``) outside of tables, in order; prose has none."""
    return [name for line in _outside_tables(text) for name in _name(line)]


def _table(lines: list[str], rule: int) -> TableShape:
    above = reversed(lines[:rule])
    heads = [word for line in _until_empty(above) for word in line.split()]
    rows = [line for line in _until_empty(lines[rule + 1 :]) if line != LEFT_OUT and not line.startswith(_CONTINUED)]
    return TableShape(tuple(sorted(heads)), tuple(sorted(map(_row, rows))))


def _row(line: str) -> tuple[str, ...]:
    cells = _CELLS.split(line.strip())
    return tuple(cells[: 2 if cells[0].isdigit() else 1])


def _until_empty(lines: Iterable[str]) -> Iterator[str]:
    return takewhile(lambda line: bool(line.strip()), lines)


def _outside_tables(text: str) -> Iterator[str]:
    blocks = re.split(r"\n\s*\n", text)
    for block in blocks:
        lines = block.splitlines()
        if not any(_RULE.match(line) for line in lines):
            yield from lines


def _name(line: str) -> Iterator[str]:
    found = _FIGURE.match(line) or _LINE.match(line)
    if found:
        yield found["name"].strip()
