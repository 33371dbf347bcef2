"""Prints the I/O figures of a recording as tables on the terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, TextIO

from rich import box
from rich.console import Console
from rich.table import Table

from dlio_torch.report.terminal import NOT_MEASURED, write
from dlio_torch.units import format_duration, format_rate, format_size, percent

_MOST_FILES = 8
_PATH_WIDTH = 40
_MOST_NAMES = 3


def print_io(analysis: Mapping[str, Any], stream: TextIO, notes: Sequence[str] = ()) -> None:
    """Writes the tables of I/O figures to a stream.

    Args:
        analysis: what :func:`dlio_torch.iotrace.figures.io_metrics.analyse` gave.
        stream: where to.
        notes: lines to add at the end.
    """

    def draw(console: Console) -> None:
        draw_io(console, analysis)
        for note in [*analysis["source"]["notes"], *notes]:
            console.print(note, soft_wrap=True)

    write(stream, draw)


def draw_io(console: Console, analysis: Mapping[str, Any]) -> None:
    """Draws the tables of I/O figures on a console."""
    figures = analysis["io"]
    if figures is None:
        console.print(f"I/O calls: {NOT_MEASURED}: {analysis['why']}")
    else:
        console.print(_directions(figures))
        console.print(_facts(figures, analysis["untraced"]))
    rows = analysis["files"]["rows"]
    if rows:
        console.print(_files(rows, analysis["files"]))


def _directions(figures: Mapping[str, Any]) -> Table:
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), title="I/O calls", title_justify="left", title_style="none")
    table.add_column("")
    for name in ("calls", "bytes", "mean", "median", "max", "I/O time", "rate", "seq.", "consec."):
        table.add_column(name, justify="right", no_wrap=True)
    for name in ("read", "write"):
        sizes, speed, shares = figures["sizes"][name], figures["bandwidth"][name], figures["shares"]["process"][name]
        if sizes is None:
            table.add_row(name, NOT_MEASURED, *[""] * 8)
            continue
        if not speed["calls"]:
            continue
        table.add_row(
            name,
            str(speed["calls"]),
            format_size(speed["bytes"]),
            *("-" if sizes[key] is None else format_size(sizes[key]) for key in ("mean", "median", "max")),
            format_duration(speed["io_s"]),
            "-" if speed["bytes_per_s"] is None else format_rate(speed["bytes_per_s"]),
            *("-" if shares[key] is None else percent(shares[key]) for key in ("sequential", "consecutive")),
        )
    return table


def _facts(figures: Mapping[str, Any], untraced: Mapping[str, Any]) -> Table:
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold")
    time = figures["io_time"]
    table.add_row(
        "I/O time",
        f"{format_duration(time['global_s'])} in which at least one call ran; "
        f"{format_duration(time['longest_process_s'])} in the process with the longest I/O time; "
        f"{format_duration(time['summed_s'])} summed over all calls",
    )
    others = [
        f"{figure['calls']} {name}"
        for name, figure in figures["classes"].items()
        if figure is not None and figure["calls"] and name not in ("read", "write")
    ]
    unseen = [name for name, figure in figures["classes"].items() if figure is None]
    if unseen:
        others.append(f"{', '.join(unseen)}: {NOT_MEASURED}")
    table.add_row("calls of other kinds", ", ".join(others) or "none")
    table.add_row("no call recorded", _untraced(untraced))
    return table


def _untraced(untraced: Mapping[str, Any]) -> str:
    """Text on the bytes that processes moved outside of the recorded calls."""
    if untraced["why"] is not None:
        return f"{NOT_MEASURED}: {untraced['why']}"
    parts = [
        f"{verb} {NOT_MEASURED}" if untraced[key] is None else f"{verb} {format_size(untraced[key])}"
        for verb, key in (("read", "read_bytes"), ("written", "write_bytes"))
    ]
    if untraced["mapped_bytes"]:
        parts.append(f"page faults in {format_size(untraced['mapped_bytes'])} of mapped files")
    if untraced["io_uring_rings"]:
        parts.append(f"I/O of {untraced['io_uring_rings']} io_uring rings")
    if untraced["unrecorded_processes"]:
        count, names = untraced["unrecorded_processes"], untraced["unrecorded_names"]
        moved = [untraced[f"unrecorded_{way}_bytes"] for way in ("read", "write")]
        parts.append(
            f"{format_size(moved[0])} read and {format_size(moved[1])} written by {count} "
            f"{'process' if count == 1 else 'processes'} that did not load the recorder "
            f"({', '.join(names[:_MOST_NAMES])}{', ...' if len(names) > _MOST_NAMES else ''})"
        )
    if untraced["dropped_calls"]:
        parts.append(f"{untraced['dropped_calls']} calls beyond the recorder's limit")
    text = ", ".join(parts) + " (the kernel's count for all files, minus the recorded calls on any file)"
    return (
        text
        if untraced["complete"]
        else (f"{text}; lower bounds, because a process continued after its last counters were read")
    )


def _files(rows: Sequence[Mapping[str, Any]], files: Mapping[str, Any]) -> Table:
    title = "files, sorted by bytes moved"
    table = Table(box=box.SIMPLE, padding=(0, 1, 0, 0), title=title, title_justify="left", title_style="none")
    table.add_column("file", overflow="fold")
    for name in ("opens", "reads", "read", "writes", "written", "I/O time"):
        table.add_column(name, justify="right", no_wrap=True)
    for row in rows[:_MOST_FILES]:
        table.add_row(
            _short(row["file"]),
            *("-" if row[name] is None else str(row[name]) for name in ("opens", "reads")),
            "-" if row["bytes_read"] is None else format_size(row["bytes_read"]),
            "-" if row["writes"] is None else str(row["writes"]),
            "-" if row["bytes_written"] is None else format_size(row["bytes_written"]),
            "-" if row["io_s"] is None else format_duration(row["io_s"]),
        )
    left = files["rows_in_all"] - _MOST_FILES
    if left > 0:
        several = files["rows_in_all"] > files["count"]
        table.caption = f"and {left} more rows" + (", one row per layer and file" if several else "")
    return table


def _short(path: str | None) -> str:
    """Shortens a long path to its end."""
    if path is None:
        return "(not known)"
    return path if len(path) <= _PATH_WIDTH else f"…{path[1 - _PATH_WIDTH :]}"
