"""Prints what the verb ``checkpoint`` measured: a verdict, and a table of saves and loads."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.report.checkpoint_text import unflushed_rate_text
from dlio_torch.report.terminal import unbroken, write
from dlio_torch.units import counted, format_duration, format_rate, format_size, percent

_STATISTICS = ("mean", "min", "median", "p95", "max")
_SAVE_ROWS = {
    "durable_s": "save",
    "stall_s": "  stall of the training",
    "plan_s": "  planning",
    "stage_s": "  staging",
    "write_s": "  writing",
    "fsync_s": "  flushing",
}
_LOAD_ROWS = {
    "duration_s": "load",
    "metadata_s": "  reading metadata",
    "plan_s": "  planning",
    "read_s": "  reading",
    "copy_s": "  copying",
}
_MOST_RANKS = 16


def print_checkpoints(summary: Mapping[str, Any], stream: TextIO, run_dir: Path) -> None:
    """Writes verdict, tables and warnings.

    Args:
        summary: content of ``summary.json``.
        stream: where to.
        run_dir: the run directory, named on the last line.
    """
    figures = summary["checkpoints"]

    def draw(console: Console) -> None:
        console.print()
        console.print(_title(summary), style="dim")
        console.print(unbroken(verdict(figures)), style="bold")
        console.print(_times(figures))
        if summary["world_size"] > 1:
            console.print(_ranks(figures))
        for warning in warnings(figures):
            console.print(f"warning: {warning}", style="yellow")
        console.print(f"Checkpoints: {figures['folder']} ({counted(figures['kept'], 'checkpoint')})", soft_wrap=True)
        console.print(f"Results: {run_dir}", soft_wrap=True)

    write(stream, draw)


def verdict(figures: Mapping[str, Any]) -> str:
    """One sentence: size, time and rate of a save with and without flushing, and time and rate of a load."""
    save, restore = figures["save"], figures["restore"]
    durable = save["durable_s"]["mean"]
    text = (
        f"A save of {format_size(save['bytes']['mean'])} takes {format_duration(durable)}{_rate(save)}"
        f"{_flushing(save)}{_stall(save)}; "
    )
    if not restore["count"]:
        return f"{text}nothing was read back."
    return (
        f"{text}reading it back takes {format_duration(restore['duration_s']['mean'])}{_rate(restore)}{_from(figures)}."
    )


def warnings(figures: Mapping[str, Any]) -> Iterator[str]:
    """Yields sentences on loads that may have read memory."""
    cache = figures["page_cache"]
    if not cache["loads"] or cache["cold"]:
        return
    state = "could not be dropped from" if cache["cold"] is False else "may be in"
    why = f": {cache['why']}" if cache["why"] else ""
    yield f"checkpoints {state} the page cache{why}; loads measure memory, at least in part"


def _rate(part: Mapping[str, Any]) -> str:
    return "" if part["bytes_per_s"] is None else f" ({format_rate(part['bytes_per_s']['mean'])})"


def _flushing(save: Mapping[str, Any]) -> str:
    """The part of a save that flushing takes, and the rate without it; empty if not measured."""
    if save["fsync_s"] is None:
        return ""
    rate = unflushed_rate_text(save)
    return f", of which flushing takes {format_duration(save['fsync_s']['mean'])}" + (f" ({rate})" if rate else "")


def _stall(save: Mapping[str, Any]) -> str:
    """The stall of a save that goes on in the background."""
    stall = format_duration(save["stall_s"]["mean"])
    return f", and training would stand still for {stall}" if _is_in_background(save) else ""


def _is_in_background(save: Mapping[str, Any]) -> bool:
    return bool(save["stall_s"]["mean"] < save["durable_s"]["mean"])


def _from(figures: Mapping[str, Any]) -> str:
    cache = figures["page_cache"]
    if cache["device_share"] is not None:
        return f", {percent(cache['device_share'])} of it from the device"
    return ", with none of it in the page cache before" if cache["cold"] else ""


def _title(summary: Mapping[str, Any]) -> str:
    figures, ranks = summary["checkpoints"], counted(summary["world_size"], "rank")
    return f"{summary['recipe']}, scale {summary['scale']}, {ranks}: checkpoints with layout {figures['layout']}"


def _times(figures: Mapping[str, Any]) -> Table:
    table = Table(
        box=box.SIMPLE, title="times of the slowest rank", title_justify="left", title_style="none",
        pad_edge=False, collapse_padding=True,
    )  # fmt: skip
    table.add_column("", no_wrap=True)
    for name in ("count", "bytes", *_STATISTICS, "rate"):
        table.add_column(name, justify="right")
    for part, rows in ((figures["save"], _SAVE_ROWS), (figures["restore"], _LOAD_ROWS)):
        for row in _rows(part, rows) if part["count"] else ():
            table.add_row(*row)
    return table


def _rows(part: Mapping[str, Any], names: Mapping[str, str]) -> Iterator[Sequence[str]]:
    for number, (name, label) in enumerate(names.items()):
        times = part[name]
        if times is None or (name == "stall_s" and not _is_in_background(part)):
            continue
        first = number == 0
        amounts = (str(part["count"]), format_size(part["bytes"]["mean"])) if first else ("", "")
        rate = format_rate(part["bytes_per_s"]["mean"]) if first and part["bytes_per_s"] is not None else ""
        yield (label, *amounts, *_durations(times), rate)


def _durations(times: Mapping[str, float]) -> Iterator[str]:
    """Statistics of a time; a summary of an older version has no smallest time."""
    for statistic in _STATISTICS:
        yield format_duration(times[statistic]) if statistic in times else "-"


def _ranks(figures: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE, title="ranks (means)", title_justify="left", title_style="none")
    for name in ("rank", "bytes", "save", "flush", "rate", "load", "bytes", "rate"):
        table.add_column(name, justify="right")
    loads = {row["rank"]: row for row in figures["restore"]["per_rank"]}
    rows = figures["save"]["per_rank"]
    for row in rows[:_MOST_RANKS]:
        read = loads.get(row["rank"])
        table.add_row(str(row["rank"]), *_save_cells(row), *_load_cells(read))
    if len(rows) > _MOST_RANKS:
        table.caption = f"and {len(rows) - _MOST_RANKS} more ranks in summary.json"
    return table


def _save_cells(row: Mapping[str, Any]) -> tuple[str, ...]:
    flush = row.get("fsync_s")
    flushing = "-" if flush is None else format_duration(flush)
    return format_size(row["bytes"]), format_duration(row["durable_s"]), flushing, _rate_cell(row)


def _load_cells(row: Mapping[str, Any] | None) -> tuple[str, ...]:
    if row is None:
        return ("-", "-", "-")
    return format_duration(row["duration_s"]), format_size(row["bytes"]), _rate_cell(row)


def _rate_cell(row: Mapping[str, Any]) -> str:
    return "-" if row["bytes_per_s"] is None else format_rate(row["bytes_per_s"])
