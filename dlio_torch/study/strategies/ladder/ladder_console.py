"""The table of headspace on a terminal."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.report.terminal import NOT_MEASURED, write
from dlio_torch.study.strategies.ladder.effects import Effect
from dlio_torch.study.strategies.ladder.gains import METHOD, Gain
from dlio_torch.study.strategies.ladder.rungs import LADDER
from dlio_torch.study.values import counted
from dlio_torch.units import format_duration, percent

_DASH = "-"
_WIDE = 100
"""Width of a terminal, in columns, that has room for all figures."""


def print_ladder(
    effects: Sequence[Effect], words: Sequence[str], *, stream: TextIO, title: str, directory: Path | str
) -> None:
    """Print the ladder, loader and trainer alone, and the verdict.

    Args:
        effects: the rungs.
        words: what they say.
        stream: where to.
        title: of the table.
        directory: of the study, named on the last line.
    """

    def draw(console: Console) -> None:
        console.print()
        console.print(_table(effects, title, console.width))
        for item in effects:
            if item.why:
                console.print(f"{item.rung.title}: {_absent(item)}{item.why}")
            elif item.note:
                console.print(f"{item.rung.title}: {item.note}")
        console.print(
            "step: elapsed time / steps, geometric mean of the rounds; wait: share of the step's time without a "
            "batch (median, like au); at most: throughput without this cost and all costs above / throughput as "
            "configured; itself: time of a step compared with the line above, so overlapping costs appear with "
            f"the last of them; gains: {METHOD}; ~: within noise",
            style="dim",
        )
        for number, line in enumerate(words):
            console.print(line, style="bold" if number == 0 else None)
        console.print(f"Results: {directory}", soft_wrap=True)

    write(stream, draw)


def _table(effects: Sequence[Effect], title: str, width: int) -> Table:
    columns = [item for item in _COLUMNS if width >= _WIDE or not item.wide]
    rounds = max((len(item.times) for item in effects), default=0)
    title += f", {counted(rounds, 'round')}"
    table = Table(
        box=box.SIMPLE, pad_edge=False, collapse_padding=True, title=title, title_justify="left", title_style="bold"
    )
    table.add_column("without", min_width=26, overflow="fold")
    for column in columns:
        table.add_column(column.name, justify="right", no_wrap=True)
    section = True
    for entry in effects:
        if section and entry.rung.name not in LADDER:
            table.add_section()
            section = False
        name = entry.rung.removed if entry.rung.name in LADDER[1:] else f"({entry.rung.left})"
        table.add_row(name, *(column.cell(entry) or _DASH for column in columns))
    return table


def _absent(effect: Effect) -> str:
    if effect.rung.skipped:
        return "left out: "
    return "" if effect.costless else f"{NOT_MEASURED}: "


def _step(effect: Effect) -> str:
    return "" if effect.step_s is None else format_duration(effect.step_s)


def _range(effect: Effect) -> str:
    return (
        format_duration(effect.step.high - effect.step.low) if effect.step is not None and effect.step.count > 1 else ""
    )


def _wait(effect: Effect) -> str:
    return percent(effect.shares["fetch"]) if "fetch" in effect.shares else ""


def _rate(effect: Effect) -> str:
    return "" if effect.rate is None else f"{effect.rate:.4g}"


def _au(effect: Effect) -> str:
    return "" if effect.au is None else percent(effect.au.median)


def _at_most(effect: Effect) -> str:
    gain = effect.gain
    return "" if gain is None or effect.rung.name not in LADDER else f"{_doubt(gain)}x{gain.ratio:.3g}"


def _itself(effect: Effect) -> str:
    gain = effect.cost
    if gain is None:
        return ""
    return f"{_doubt(gain)}{'-' if gain.seconds < 0 else ''}{format_duration(abs(gain.seconds))}"


def _doubt(gain: Gain) -> str:
    return "" if gain.beyond_noise else "~"


class _LadderColumn(NamedTuple):
    """A column of the table, and whether it is omitted on a narrow terminal."""

    name: str
    cell: Callable[[Effect], str]
    wide: bool = False


_COLUMNS = (
    _LadderColumn("step", _step),
    _LadderColumn("range", _range, wide=True),
    _LadderColumn("wait", _wait),
    _LadderColumn("samples/s", _rate, wide=True),
    _LadderColumn("au", _au),
    _LadderColumn("at most", _at_most),
    _LadderColumn("itself", _itself),
)
