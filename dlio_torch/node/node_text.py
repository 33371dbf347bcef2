"""Text of a measured node: the verdict, and tables of limits and combinations, for the terminal and the page."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.node.combinations import KEYS, label
from dlio_torch.report.terminal import write
from dlio_torch.units import format_number, format_rate, percent

LIMIT_COLUMNS = ("samples/s", "bytes/s", "times demand", "all at once")
"""Columns of figures in the table of limits; the first column is the resource."""
_UNKNOWN = "-"
COMBINATION_COLUMNS = (*(key.partition(".")[2] for key in KEYS), "samples/s", "au")
"""Columns of the table of combinations."""


def print_node(record: Mapping[str, Any], stream: TextIO) -> None:
    """Writes the verdict and the tables to the terminal.

    Args:
        record: content of ``node.json``.
        stream: where to.
    """

    def draw(console: Console) -> None:
        console.print()
        console.print(record["verdict"]["sentence"])
        console.print(_table(("limit", *LIMIT_COLUMNS), limit_rows(record), texts=1))
        for name, why in unmeasured(record):
            console.print(f"not measured: {name}: {why}")
        console.print(_table(COMBINATION_COLUMNS, combination_rows(record), texts=3))
        for names, why in unmeasured_combinations(record):
            console.print(f"not measured: {names}: {why}")

    write(stream, draw)


def limit_rows(record: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of the table of limits, those that were measured."""
    shared = {limit["name"]: limit["samples_per_s"] for limit in record["limits_together"]}
    rate = record["demand"]["samples_per_s"]
    for limit in record["limits"]:
        samples = limit["samples_per_s"]
        if samples is None and limit["bytes_per_s"] is None:
            continue
        times = samples / rate if rate and samples is not None else None
        yield (
            limit["name"],
            _number(samples),
            _UNKNOWN if limit["bytes_per_s"] is None else format_rate(limit["bytes_per_s"]),
            _number(times),
            _number(shared.get(limit["name"])),
        )


def unmeasured(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Name of each limit that was not measured, and the reason; once where both measurements lack it."""
    absent: set[str] = set()
    for limit in (*record["limits"], *record["limits_together"]):
        if limit["samples_per_s"] is None and limit["bytes_per_s"] is None and limit["name"] not in absent:
            absent.add(limit["name"])
            yield limit["name"] + ("" if limit["alone"] else ", all at once"), limit["why"]


def combination_rows(record: Mapping[str, Any]) -> Iterator[tuple[str, ...]]:
    """Rows of the table of combinations, best first; those without a rate last."""
    combinations = sorted(record["combinations"], key=lambda item: -(item["samples_per_s"] or 0.0))
    for item in combinations:
        rate = _number(item["samples_per_s"])
        au = _UNKNOWN if item["au"] is None else percent(item["au"])
        yield (*(item[key] for key in KEYS), rate, au)


def unmeasured_combinations(record: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Names of the combinations that have no rate for the same reason, and the reason."""
    names: dict[str, list[str]] = {}
    for item in record["combinations"]:
        if item["samples_per_s"] is None:
            names.setdefault(item["why"], []).append(label(tuple((key, item[key]) for key in KEYS)))
    yield from (("; ".join(same), why) for why, same in names.items())


def _number(value: float | None) -> str:
    return _UNKNOWN if value is None else format_number(value)


def _table(columns: Sequence[str], rows: Iterator[tuple[str, ...]], *, texts: int) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 1))
    for number, name in enumerate(columns):
        table.add_column(name, justify="left" if number < texts else "right")
    for row in rows:
        table.add_row(*row)
    return table
