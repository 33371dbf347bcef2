"""Writes the result of the verb ``fit`` to the terminal: the recipe, what it does not reproduce, and the score."""

from __future__ import annotations

from pathlib import Path
from typing import TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.errors import harmless
from dlio_torch.fit.fit_recording import FittedTraining
from dlio_torch.fit.score import Score, bound, ratio
from dlio_torch.report.terminal import write


def print_fit(recipe: Path, fitted: FittedTraining, score: Score | None, stream: TextIO) -> None:
    """Writes the result.

    Args:
        recipe: the recipe's file.
        fitted: its values.
        score: how alike its run and the recording are; ``None``: it was not run.
        stream: where to.
    """

    def draw(console: Console) -> None:
        console.print(_values(fitted))
        for gap in fitted.findings.gaps:
            console.print(harmless(f"not reproduced: {gap}"), soft_wrap=True)
        if score is not None:
            console.print(_components(score))
            console.print(headline(score), style="bold", soft_wrap=True)
        console.print(f"recipe: {recipe}", soft_wrap=True)

    write(stream, draw)


def headline(score: Score) -> str:
    """Verdict in one line."""
    worst = score.worst
    noise = "" if worst.noise is None else f", two recordings of the program differ by {worst.noise:.3f}"
    return f"worst component: {worst.name}, distance {worst.distance:.3f} (0: equal{noise})"


def _values(fitted: FittedTraining) -> Table:
    table = Table(box=box.SIMPLE)
    for name in ("option", "value", "confidence", "evidence"):
        table.add_column(name, overflow="fold")
    for finding in fitted.findings.values:
        table.add_row(finding.key, harmless(str(finding.value)), finding.confidence, harmless(finding.evidence))
    return table


def _components(score: Score) -> Table:
    table = Table(box=box.SIMPLE, title="recording and run of the recipe", title_justify="left", title_style="none")
    table.add_column("component")
    for name in ("distance", "noise", "bound"):
        table.add_column(name, justify="right")
    table.add_column("agrees")
    table.add_column("figures", overflow="fold")
    for component in sorted(score.comparison.components, key=ratio, reverse=True):
        noise = "-" if component.noise is None else f"{component.noise:.3f}"
        agrees = "yes" if ratio(component) <= 1 else "NO"
        cells = (f"{component.distance:.3f}", noise, f"{bound(component):.3f}", agrees, component.detail)
        table.add_row(component.name, *cells)
    return table
