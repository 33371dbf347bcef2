"""Writes the result of the verb ``fit`` to the terminal: the recipe, what it does not reproduce, and the score."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import groupby
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.analysis.remedies import remedy
from dlio_torch.errors import harmless
from dlio_torch.fit.finding import Finding
from dlio_torch.fit.fit_result import FitResult
from dlio_torch.fit.score import Score, bound, ratio
from dlio_torch.report.comparison_text import remedy_lines
from dlio_torch.report.terminal import write
from dlio_torch.units import percent

_LONGEST = 24
"""Characters of a value; the recipe holds it completely."""


def print_fit(result: FitResult, stream: TextIO, *, short: bool = False) -> None:
    """Writes the result.

    Args:
        result: the recipe and its score.
        stream: where to.
        short: only the verdict and the path of the recipe.
    """

    def draw(console: Console) -> None:
        if not short:
            _draw_recipe(console, result)
        if result.score is not None:
            if not short:
                _draw_score(console, result.score)
                console.print()
            console.print(headline(result.score), style="bold", soft_wrap=True)
        console.print(f"recipe: {result.folder.recipe}", soft_wrap=True)

    write(stream, draw)


def headline(score: Score) -> str:
    """Verdict in one line."""
    worst = score.worst
    noise = "" if worst.noise is None else f"; two recordings of the program differ by {worst.noise:.3f}"
    if not worst.distance:
        return f"Alike in all components, without any difference{noise}."
    verdict = "Alike in all components" if score.agrees else "Not alike"
    distance = f"distance {worst.distance:.3f}, alike up to {bound(worst):.3f}"
    return f"{verdict}. Worst component: {worst.name}, {distance}{noise}."


def _draw_recipe(console: Console, result: FitResult) -> None:
    console.print(_values(result.fitted.findings.values))
    for gap in result.fitted.findings.gaps:
        console.print(harmless(f"not reproduced: {gap}"))
    for line in (*_unexplained(result.evidence["unexplained"]), *result.evidence["notes"], *result.notes):
        console.print(harmless(f"note: {line}"))


def _draw_score(console: Console, score: Score) -> None:
    if score.worst.distance:
        console.print(_components(score))
    alike = [component for component in score.worst_first if ratio(component) <= 1]
    if alike:
        largest = max(component.distance for component in alike)
        names = ", ".join(component.name for component in alike)
        distances = f"distances up to {largest:.3f}" if largest else "no difference"
        console.print(f"alike ({distances}): {names}")
    off = {component.name: remedy(component) for component in score.worst_first if ratio(component) > 1}
    if off:
        console.print("options that bring the recipe closer to the recording:")
        console.print(remedy_lines(off))


def _values(values: tuple[Finding, ...]) -> Table:
    """Options with values, confidence and evidence; a group has a line of its own above its options."""
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for name in ("option", "value", "confidence"):
        table.add_column(name, no_wrap=True)
    table.add_column("evidence", overflow="fold")
    order = list(_groups(values))
    ordered = sorted(values, key=lambda finding: order.index(_group(finding)))
    for group, findings in groupby(ordered, key=_group):
        table.add_row(group, style="bold")
        for finding in findings:
            name = f"  {finding.key.removeprefix(f'{group}.')}"
            table.add_row(name, harmless(_short(finding.value)), finding.confidence, harmless(finding.evidence))
    return table


def _groups(values: tuple[Finding, ...]) -> dict[str, None]:
    """Groups of options in the order of the recipe."""
    return dict.fromkeys(_group(finding) for finding in values)


def _group(finding: Finding) -> str:
    return finding.key.partition(".")[0]


def _short(value: Any) -> str:
    """A value in a few words: of a list of named entries their names."""
    if isinstance(value, list) and value and all(isinstance(entry, Mapping) and "name" in entry for entry in value):
        value = f"{len(value)}: " + ", ".join(str(entry["name"]) for entry in value)
    text = str(value)
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


def _unexplained(shares: Mapping[str, float | None]) -> Iterator[str]:
    """A line on the calls that the recipe does not have."""
    calls, moved = shares["calls_share"], shares["bytes_share"]
    if calls:
        read = "" if moved is None else f" and {percent(moved, 2)} of the read bytes"
        yield f"{percent(calls, 2)} of the calls{read} are on files that the recipe does not have"


def _components(score: Score) -> Table:
    """The components that are off, and the worst one."""
    table = Table(box=box.SIMPLE, title="recording (A) and run of the recipe (B)", title_justify="left")
    table.title_style = "none"
    table.add_column("component", overflow="fold", min_width=12)
    noise = any(component.noise is not None for component in score.comparison.components)
    for name in ("distance", *(("noise",) if noise else ()), "bound", "alike"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("figures", overflow="fold")
    off = [component for component in score.worst_first if ratio(component) > 1]
    for component in off or score.worst_first[:1]:
        cells = [f"{component.distance:.3f}"]
        if noise:
            cells.append("-" if component.noise is None else f"{component.noise:.3f}")
        alike = "yes" if ratio(component) <= 1 else "NO"
        table.add_row(component.name, *cells, f"{bound(component):.3f}", alike, harmless(component.detail))
    return table
