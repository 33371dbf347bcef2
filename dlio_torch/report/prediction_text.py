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
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in ("ranks", "nodes", "samples/s", "share of ideal rate", "I/O wait", "AU", "begin", "epoch"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("limited by", no_wrap=True)
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
    """One checkpoint at each number of ranks: its bytes, and the parts of its time."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for name in (
        "ranks",
        "saving",
        "bytes",
        "largest rank",
        "plan",
        "gather",
        "write",
        "fsync",
        "durable after",
        "stall",
    ):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows:
        if (save := row.checkpoint) is not None:
            stall = save.seconds if save.stall_s is None else save.stall_s
            parts = (save.plan_s, save.gather_s, save.write_s, save.fsync_s, save.seconds, stall)
            sizes = (format_size(save.bytes), format_size(save.largest_bytes))
            table.add_row(f"{row.ranks}", *sizes, *map(format_duration, parts))
    return table
