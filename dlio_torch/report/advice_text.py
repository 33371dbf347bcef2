"""Prints the best advice on the terminal; ``summary.json`` and the HTML report contain all advice."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

from dlio_torch.report.terminal import unbroken

MOST = 5


def draw_advice(console: Console, advice: Mapping[str, Any]) -> None:
    """Prints the conclusion and at most :data:`MOST` pieces of advice, largest predicted gain first.

    Args:
        console: where to.
        advice: what :func:`dlio_torch.analysis.advice.advise.advise` gave.
    """
    console.print(unbroken(advice["conclusion"]))
    items = advice["items"]
    if items:
        console.print("What to change:")
        table = Table.grid(padding=(0, 1, 0, 0))
        table.add_column(justify="right", no_wrap=True)
        table.add_column(overflow="fold")
        for number, item in enumerate(items[:MOST], 1):
            table.add_row(f"{number}.", unbroken(f"{item['text']}{needed(item)}"))
        console.print(Padding(table, (0, 0, 0, 2)))
    if len(items) > MOST:
        console.print(f"  and {len(items) - MOST} more pieces of advice in summary.json")
    for caveat in advice["caveats"]:
        console.print(caveat)


def needed(item: Mapping[str, Any]) -> str:
    """Text that names the other options that a piece of advice sets."""
    return f" (with {' '.join(f'{key}={value}' for key, value in item['also'])})" if item["also"] else ""
