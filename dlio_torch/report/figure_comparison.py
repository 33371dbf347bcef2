"""Table of figures of two runs beside each other, with their ratio."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.analysis.compared_figures import COMPARED
from dlio_torch.analysis.summary_figures import find
from dlio_torch.report.terminal import write
from dlio_torch.units import format_duration, format_rate, format_size, percent

SideFigures = Mapping[str, Mapping[str, float]]
"""Figures of the sides ``a`` and ``b``: by their paths in ``summary.json``."""
SCHEMA = "dlio_torch.comparison"
"""Format of the JSON of a comparison."""
VERSION = "1"
_NO_CALLS = "I/O calls were not recorded on both sides, so only figures are compared; repeat runs with trace.posix=true"
_MEAN = ".mean"
_FORMATS = {"s": format_duration, "B": format_size, "B/s": format_rate}


@dataclass(frozen=True)
class FigurePair:
    """One figure of two sides.

    Attributes:
        name: path in ``summary.json``.
        unit: ``s``, ``B``, ``B/s``, ``share``; empty: an increase, 0.1 for a tenth more.
        a: value of side A; None: not measured.
        b: value of side B; likewise.
        ratio: b / a; None if either is not measured, or not positive.
    """

    name: str
    unit: str
    a: float | None
    b: float | None
    ratio: float | None


def figure_pairs(figures: SideFigures) -> list[FigurePair]:
    """The figures that at least one side has, in the order of the summary."""
    a, b = figures.get("a", {}), figures.get("b", {})
    names = sorted({*a, *b}, key=lambda name: COMPARED.index(name.removesuffix(_MEAN)))
    return [_pair(name, a.get(name), b.get(name)) for name in names]


def print_figures(paths: Sequence[str], figures: SideFigures, stream: TextIO) -> None:
    """Writes the figures of two runs whose calls cannot be compared.

    Args:
        paths: of both runs.
        figures: of both.
        stream: where to.
    """

    def draw(console: Console) -> None:
        console.print()
        for side, path in zip("AB", paths, strict=True):
            console.print(f"{side}: {path}", soft_wrap=True, markup=False)
        console.print(figure_table(figure_pairs(figures)))
        console.print(f"{_NO_CALLS}.")

    write(stream, draw)


def figures_json(paths: Sequence[str], figures: SideFigures) -> dict[str, Any]:
    """Converts the figures of two runs whose calls cannot be compared to plain values; see :func:`print_figures`."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "a": paths[0],
        "b": paths[1],
        "alike": None,
        "components": [],
        "left_out": [_NO_CALLS],
        "figures": [asdict(pair) for pair in figure_pairs(figures)],
    }


def figure_table(pairs: Sequence[FigurePair]) -> Table:
    """Table with a row for each figure."""
    table = Table(box=box.SIMPLE, title="checkpoints and goodput (means)", title_justify="left", title_style="none")
    table.add_column("figure", overflow="fold")
    for side in ("A", "B", "B / A"):
        table.add_column(side, justify="right", no_wrap=True)
    for pair in pairs:
        ratio = "-" if pair.ratio is None else f"{pair.ratio:.3g}"
        table.add_row(pair.name.removesuffix(_MEAN), _text(pair.a, pair.unit), _text(pair.b, pair.unit), ratio)
    return table


def _pair(name: str, a: float | None, b: float | None) -> FigurePair:
    figure = find(name)
    ratio = b / a if a is not None and b is not None and min(a, b) > 0 else None
    return FigurePair(name, "" if figure is None else figure.unit, a, b, ratio)


def _text(value: float | None, unit: str) -> str:
    return "-" if value is None else _FORMATS.get(unit, percent)(value)
