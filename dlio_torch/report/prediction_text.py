"""Writes a prediction to the terminal or as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from dlio_torch.prediction.project import Row
from dlio_torch.report.terminal import write
from dlio_torch.units import format_duration, format_size, percent

SCHEMA = "dlio_torch.prediction"
VERSION = "1"


def print_prediction(title: str, rows: Sequence[Row], assumptions: Mapping[str, Sequence[str]], stream: TextIO) -> None:
    """Writes the table of predictions to the terminal, and its assumptions below.

    Args:
        title: which run on which system.
        rows: as :func:`dlio_torch.prediction.project.project` gave them.
        assumptions: as :func:`dlio_torch.prediction.assumptions.assumptions` gave them.
        stream: where to.
    """

    def draw(console: Console) -> None:
        console.print()
        console.print(title, soft_wrap=True)
        console.print(_table(rows))
        if any(row.checkpoint for row in rows):
            console.print("one checkpoint:")
            console.print(_saves_table(rows))
        for kind, lines in assumptions.items():
            if lines:
                console.print(f"{kind}:")
            for line in lines:
                console.print(Padding(f"- {line}", (0, 0, 0, 2)))

    write(stream, draw)


def to_json(
    run: str, system: str, rows: Sequence[Row], assumptions: Mapping[str, Sequence[str]], measured: Mapping[str, Any]
) -> dict[str, Any]:
    """Converts the prediction to plain values for JSON; None for values that are not known or do not apply."""
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "run": run,
        "system": system,
        "measured": dict(measured),
        "rows": [asdict(row) for row in rows],
        "assumptions": {kind: list(lines) for kind, lines in assumptions.items()},
    }


def _table(rows: Sequence[Row]) -> Table:
    heads = ("ranks", "nodes", "samples\nper s", "share\nof ideal", "I/O\nwait", "AU", "begin", "epoch")
    table = _figures_table(heads, no_wrap=True)
    table.add_column("limited by", overflow="fold", vertical="bottom")
    for row in rows:
        table.add_row(
            f"{row.ranks}",
            f"{row.nodes}",
            f"{row.samples_per_s:.4g}" if row.samples_per_s < 1e4 else f"{row.samples_per_s:.0f}",
            percent(row.ideal_share, 0),
            percent(row.io_share),
            "-" if row.au is None else percent(row.au),
            format_duration(row.begin_s),
            "-" if row.epoch_s is None else format_duration(row.epoch_s),
            row.limited_by,
        )
    return table


def _saves_table(rows: Sequence[Row]) -> Table:
    """One checkpoint at each number of ranks: ranks that save, bytes, the parts of its time, and the stall if known."""
    saves = [(row.ranks, row.checkpoint) for row in rows if row.checkpoint is not None]
    in_background = any(save.stall_s is not None for _, save in saves)
    parts = ("plan", "gather", "write", "fsync", "in all", *(("stall",) if in_background else ()))
    table = _figures_table(("ranks", "saving", "bytes", "largest\nrank", *parts))
    for ranks, save in saves:
        stall = (save.seconds if save.stall_s is None else save.stall_s,) if in_background else ()
        times = (save.plan_s, save.gather_s, save.write_s, save.fsync_s, save.seconds, *stall)
        sizes = (format_size(save.bytes), format_size(save.largest_bytes))
        table.add_row(f"{ranks}", f"{save.ranks}", *sizes, *map(format_duration, times))
    return table


def _figures_table(heads: Sequence[str], *, no_wrap: bool = False) -> Table:
    """An empty table of figures, which are not broken at spaces if ``no_wrap``; fits into 80 columns."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1), collapse_padding=True)
    for name in heads:
        table.add_column(name, justify="right", overflow="fold", no_wrap=no_wrap, vertical="bottom")
    return table
