"""Writes the comparison of two recordings as tables on the terminal, or as JSON."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.analysis.remedies import Remedy, remedies, remedy
from dlio_torch.iotrace.fidelity.components import Comparison, Component
from dlio_torch.iotrace.fidelity.measures import TOLERANCE
from dlio_torch.report.figure_comparison import SCHEMA, VERSION, SideFigures, figure_pairs, figure_table
from dlio_torch.report.terminal import write
from dlio_torch.report.utilisation_text import LABELS
from dlio_torch.units import percent

Utilisations = Mapping[str, Mapping[str, float]]
"""Utilisations of the sides ``a`` and ``b`` that are runs: by the names of their entries in ``summary.json``."""


def print_comparison(
    comparison: Comparison,
    stream: TextIO,
    utilisations: Utilisations | None = None,
    figures: SideFigures | None = None,
) -> None:
    """Writes a comparison to the terminal: the verdict, the components (worst first), and what was not compared.

    Args:
        comparison: what :func:`dlio_torch.iotrace.fidelity.compare_recordings.compare` gave.
        stream: where to.
        utilisations: of the sides that are runs.
        figures: on checkpoints, of the sides that saved or restored some.
    """

    def draw(console: Console) -> None:
        console.print()
        console.print(f"A: {comparison.a}", soft_wrap=True)
        console.print(f"B: {comparison.b}", soft_wrap=True)
        console.print(_terms(comparison))
        console.print(_components(comparison))
        if not comparison.alike:
            console.print("options that bring B closer to A:")
            console.print(remedy_lines(remedies(comparison)))
        if (table := _utilisations(utilisations or {})).row_count:
            console.print(table)
        if pairs := figure_pairs(figures or {}):
            console.print(figure_table(pairs))
        for title, lines in (("not compared", comparison.left_out), ("remarks", comparison.notes)):
            if lines:
                console.print(f"{title}:")
                console.print(_lines(lines))
        if comparison.parity is not None:
            console.print(f"cosine similarity: {comparison.parity.cosine:.2f}, {comparison.parity.caveat}.")
        console.print()
        console.print(comparison.headline, style="bold")

    write(stream, draw)


def to_json(
    comparison: Comparison, utilisations: Utilisations | None = None, figures: SideFigures | None = None
) -> dict[str, Any]:
    """Converts the comparison to plain values for JSON; None for values that were not measured.

    Args:
        comparison: see :func:`print_comparison`.
        utilisations: see there.
        figures: see there.
    """
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "a": comparison.a,
        "b": comparison.b,
        "alike": comparison.alike,
        "headline": comparison.headline,
        "scale_free": comparison.scale_free,
        "rank_pairs": comparison.rank_pairs,
        "files_paired": comparison.paired,
        "noise_from": comparison.noise_from,
        "components": [_plain(component) for component in comparison.components],
        "left_out": list(comparison.left_out),
        "cosine": None if comparison.parity is None else asdict(comparison.parity),
        "notes": list(comparison.notes),
        "utilisation": {side: dict(figures) for side, figures in (utilisations or {}).items()},
        "figures": [asdict(pair) for pair in figure_pairs(figures or {})],
    }


def remedy_lines(remedies: Mapping[str, Remedy]) -> Table:
    """Table of components with their remedies; equal remedies share a row.

    Args:
        remedies: by the names of the components.
    """
    rows: dict[str, list[str]] = {}
    for name, advice in remedies.items():
        rows.setdefault(advice.text, []).append(name)
    table = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
    for _ in range(2):
        table.add_column(overflow="fold")
    for text, names in rows.items():
        table.add_row(", ".join(names), text)
    return table


def _plain(component: Component) -> dict[str, Any]:
    """Plain values of a component, with its remedy if it is off."""
    return {
        **asdict(component),
        "allowed": component.allowed,
        "alike": component.alike,
        "remedy": None if component.alike else asdict(remedy(component)),
    }


def _terms(comparison: Comparison) -> str:
    parts = [f"files paired: {comparison.paired}"]
    if comparison.scale_free:
        parts.append("scale-free")
    if comparison.rank_pairs is not None:
        parts.append(
            f"distances are medians over {comparison.rank_pairs} pair{'s' * (comparison.rank_pairs != 1)} of ranks"
        )
    if comparison.noise_from is not None:
        parts.append(f"noise is the distance between {comparison.noise_from}")
    return "; ".join(parts)


def _components(comparison: Comparison) -> Table:
    noise = comparison.noise_from is not None
    title = f"components, largest {'distance beyond the noise' if noise else 'distance'} relative to its limit first"
    table = Table(box=box.SIMPLE, title=f"{title} (0: equal, 1: completely different)", title_justify="left")
    table.title_style = "none"
    table.add_column("component", overflow="fold", min_width=12)
    for name in ("distance", *(("noise", "beyond") if noise else ()), "limit", "alike"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("figures", overflow="fold")
    for component in comparison.components:
        cells = [f"{component.distance:.3f}"]
        if noise:
            cells += ["-" if value is None else f"{value:.3f}" for value in (component.noise, component.excess)]
        table.add_row(
            component.name, *cells, f"{component.allowed:.2f}", "yes" if component.alike else "NO", _figures(component)
        )
    return table


def _utilisations(utilisations: Utilisations) -> Table:
    """Table of the utilisations that a side has; without a row if no side has any."""
    table = Table(box=box.SIMPLE, title="utilisation", title_justify="left", title_style="none")
    table.add_column("figure")
    for side in ("a", "b"):
        table.add_column(side.upper(), justify="right")
    for name, label in LABELS.items():
        values = [utilisations.get(side, {}).get(name) for side in ("a", "b")]
        if any(value is not None for value in values):
            table.add_row(label, *("-" if value is None else percent(value) for value in values))
    return table


def _figures(component: Component) -> str:
    detail = component.detail
    if component.exact is not None and f"{component.exact:.3f}" != f"{component.distance:.3f}":
        detail += f"; without the tolerance of {percent(TOLERANCE, 0)} the distance is {component.exact:.3f}"
    if component.worst_pair is None or not component.worst_pair[2]:
        return detail
    rank_a, rank_b, distance = component.worst_pair
    return f"{detail} (largest distance: ranks {rank_a} and {rank_b}, {distance:.3f})"


def _lines(lines: tuple[str, ...]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 0, 0, 2))
    table.add_column(overflow="fold")
    for line in lines:
        table.add_row(line)
    return table
