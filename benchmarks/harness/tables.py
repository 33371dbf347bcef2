"""Results of benchmarks as tables of rows, and their output as Markdown, CSV and JSON."""

from __future__ import annotations

import csv
import io
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple


class Spread(NamedTuple):
    """Median of some measurements, and their quartiles."""

    median: float
    low: float
    high: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Median and quartiles of at least one value; the quartiles are measured values."""
        ordered = sorted(values)
        low, high = (ordered[round(part * (len(ordered) - 1))] for part in (0.25, 0.75))
        return cls(statistics.median(ordered), low, high)

    def scaled(self, factor: float) -> Spread:
        """The same spread in another unit."""
        return Spread(*(factor * value for value in self))


Cell = str | int | float | Spread | None
"""None: not measured."""

Row = Mapping[str, Cell]


@dataclass(frozen=True)
class Table:
    """Some rows of one table of a benchmark.

    Attributes:
        name: of the table; rows of all tables of a benchmark that have the same name are put together.
        rows: cells by column, all with the same columns in the same order; units are in the columns' names.
        title: what the figures are, in a sentence or two.
    """

    name: str
    rows: Sequence[Row]
    title: str = ""


class Missing(NamedTuple):
    """A figure that was not measured, and the reason.

    Attributes:
        way: its name.
        why: in a few words, or what to install.
        where: in which part of the benchmark; empty: in all of it.
    """

    way: str
    why: str
    where: str = ""


Part = Table | Missing
"""What a benchmark yields."""


def text(cell: Cell) -> str:
    """Text of a table cell: three significant digits, ``-`` for a value that was not measured."""
    if cell is None:
        return "-"
    if isinstance(cell, Spread):
        if cell.low == cell.high:
            return text(cell.median)
        return f"{text(cell.median)} [{text(cell.low)}, {text(cell.high)}]"
    if isinstance(cell, float):
        return f"{cell:,.0f}" if abs(cell) >= 100 else f"{cell:.3g}"
    return str(cell)


def markdown(rows: Sequence[Row], *, head: bool = True) -> str:
    """Rows as a Markdown table, with or without its heading."""
    lines = []
    if rows and head:
        numbers = [name for name in rows[0] if not isinstance(rows[0][name], str)]
        lines.append("| " + " | ".join(rows[0]) + " |")
        lines.append("|" + "|".join("---:" if name in numbers else "---" for name in rows[0]) + "|")
    lines += ["| " + " | ".join(text(cell) for cell in row.values()) + " |" for row in rows]
    return "".join(f"{line}\n" for line in lines)


def comma_separated(rows: Sequence[Row]) -> str:
    """Rows as CSV with all digits; a spread takes three columns, missing values are empty."""
    out = io.StringIO()
    flat = [_flat(row) for row in rows]
    columns = list(dict.fromkeys(name for row in flat for name in row))
    writer = csv.DictWriter(out, columns, restval="", lineterminator="\n")
    writer.writeheader()
    writer.writerows(flat)
    return out.getvalue()


def _flat(row: Row) -> dict[str, object]:
    cells: dict[str, object] = {}
    for name, cell in row.items():
        if isinstance(cell, Spread):
            cells |= {name: cell.median, f"{name}, low quartile": cell.low, f"{name}, high quartile": cell.high}
        else:
            cells[name] = "" if cell is None else cell
    return cells
