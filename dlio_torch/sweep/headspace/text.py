"""The table of headspace on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.report.terminal import NOT_MEASURED, write
from dlio_torch.report.verdict import percent
from dlio_torch.sweep.headspace.gains import HOW, Gain
from dlio_torch.sweep.headspace.results import Measured
from dlio_torch.sweep.headspace.rungs import LADDER
from dlio_torch.units import format_duration

_DASH = "-"
_WIDE = 100
"""Columns of a terminal that has room for all figures."""


def print_headspace(
    found: Sequence[Measured], words: Sequence[str], *, stream: TextIO, title: str, directory: Path | str
) -> None:
    """Write the ladder, the sides by themselves, and the verdict.

    Args:
        found: the rungs.
        words: what they say.
        stream: where to.
        title: of the table.
        directory: of the study, named on the last line.
    """

    def draw(console: Console) -> None:
        console.print()
        console.print(_table(found, title, console.width))
        for one in found:
            if one.why:
                console.print(f"{one.rung.title}: {_absent(one)}{one.why}")
            elif one.note:
                console.print(f"{one.rung.title}: {one.note}")
        console.print(
            "step: elapsed time / steps, geometric mean of the rounds; wait: share of it without a batch, median, as "
            "au; at most: throughput without this cost and all above it / as configured; itself: time of a step "
            "against the line above, so costs that overlap show with the last of them; "
            f"gains: {HOW}; ~: within noise",
            style="dim",
        )
        for number, line in enumerate(words):
            console.print(line, style="bold" if number == 0 else None)
        console.print(f"Results: {directory}", soft_wrap=True)

    write(stream, draw)


def _table(found: Sequence[Measured], title: str, width: int) -> Table:
    columns = [one for one in _COLUMNS if width >= _WIDE or not one.wide]
    rounds = max((len(one.times) for one in found), default=0)
    title += f", {rounds} round{'' if rounds == 1 else 's'}"
    table = Table(
        box=box.SIMPLE, pad_edge=False, collapse_padding=True, title=title, title_justify="left", title_style="bold"
    )
    table.add_column("without", min_width=26, overflow="fold")
    for column in columns:
        table.add_column(column.name, justify="right", no_wrap=True)
    section = True
    for one in found:
        if section and one.rung.name not in LADDER:
            table.add_section()
            section = False
        name = one.rung.removed if one.rung.name in LADDER[1:] else f"({one.rung.left})"
        table.add_row(name, *(column.cell(one) or _DASH for column in columns))
    return table


def _absent(one: Measured) -> str:
    if one.rung.skipped:
        return "left out: "
    return "" if one.costless else f"{NOT_MEASURED}: "


def _step(one: Measured) -> str:
    return "" if one.step_s is None else format_duration(one.step_s)


def _range(one: Measured) -> str:
    return format_duration(one.step.high - one.step.low) if one.step is not None and one.step.count > 1 else ""


def _wait(one: Measured) -> str:
    return percent(one.shares["fetch"]) if "fetch" in one.shares else ""


def _rate(one: Measured) -> str:
    return "" if one.rate is None else f"{one.rate:.4g}"


def _au(one: Measured) -> str:
    return "" if one.au is None else percent(one.au.median)


def _at_most(one: Measured) -> str:
    gain = one.gain
    return "" if gain is None or one.rung.name not in LADDER else f"{_doubt(gain)}x{gain.ratio:.3g}"


def _itself(one: Measured) -> str:
    gain = one.own
    if gain is None:
        return ""
    return f"{_doubt(gain)}{'-' if gain.seconds < 0 else ''}{format_duration(abs(gain.seconds))}"


def _doubt(gain: Gain) -> str:
    return "" if gain.beyond_noise else "~"


class _Column(NamedTuple):
    """A figure of every rung, and whether it is left out where a terminal is narrow."""

    name: str
    cell: Callable[[Measured], str]
    wide: bool = False


_COLUMNS = (
    _Column("step", _step),
    _Column("range", _range, wide=True),
    _Column("wait", _wait),
    _Column("samples/s", _rate, wide=True),
    _Column("au", _au),
    _Column("at most", _at_most),
    _Column("itself", _itself),
)
