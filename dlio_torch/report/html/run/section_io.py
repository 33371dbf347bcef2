"""Builds the sections on I/O calls: transfer sizes, bandwidth, and offsets in the files."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dlio_torch.iotrace.figures.access_order import shares
from dlio_torch.iotrace.figures.bandwidth import over_time
from dlio_torch.report.html.page_blocks import NOT_MEASURED, Absent, Block, Figure, Section, Table
from dlio_torch.report.html.run.access_figure import access_figure, shown_files
from dlio_torch.report.html.run.rate_figure import rank_rate_figure, rate_figure
from dlio_torch.report.html.run.size_figure import size_figure
from dlio_torch.report.html.run.view import GET_CALLS, View
from dlio_torch.units import format_duration, format_size, percent

_BINS = 240
_MOST_RANKS = 128
_PERCENTILES = ("p5", "p25", "p75", "p95", "p99")


def size_section(view: View) -> Section:
    """Builds the histogram of transfer sizes and the table of their percentiles."""
    title = "Transfer sizes"
    moved = view.moves["bytes"].to_numpy()
    if not (moved >= 0).any():
        return Section("sizes", title, [Absent(_why_not(view))])
    classes = _class_of(moved)
    known = moved >= 0
    edges = np.concatenate(([0], 2 ** np.arange(int(classes.max()) + 1, dtype=np.int64)))
    calls, amounts = {}, {}
    for kind, chosen in (("read", known & ~view.writes), ("write", known & view.writes)):
        calls[kind] = np.bincount(classes[chosen], minlength=len(edges)).astype(np.int64)
        amounts[kind] = np.bincount(classes[chosen], weights=moved[chosen], minlength=len(edges)).astype(np.int64)
    caption = (
        "Number of read and write calls (upper plot) and bytes moved (lower plot) per power-of-two class of the "
        "transfer size: the bytes that a call moved (its return value), not the requested bytes. Failed calls are "
        "left out."
    )
    figure = Figure(
        size_figure(edges, calls, amounts), ("Transfer sizes of read and write calls"), caption, view.status_calls
    )
    rows = []
    for kind, sizes in view.sizes.items():
        if not sizes.count:
            continue
        cells = [sizes.min, *(sizes.percentiles[name] for name in _PERCENTILES[:2]), sizes.median]
        cells += [*(sizes.percentiles[name] for name in _PERCENTILES[2:]), sizes.max, sizes.mean]
        common = ", ".join(f"{format_size(size)} ({percent(count / sizes.count)})" for size, count in sizes.common[:3])
        named = {"read": "reads", "write": "writes", "all": "both"}[kind]
        rows.append([named, f"{sizes.count:,}", format_size(sizes.bytes), *map(_size, cells), common])
    heads = ("<calls", "count", "bytes", "min", "5 %", "25 %", "median", "75 %", "95 %", "99 %", "max", "mean")
    table = Table("Percentiles of the transfer sizes", (*heads, "<most frequent sizes"), rows)
    return Section("sizes", title, [figure, table])


def rate_section(view: View) -> Section:
    """Builds the figures of the bandwidth over time, of all ranks and of each rank."""
    title = "Bandwidth over time"
    frame = view.moves
    if not (frame["bytes"].to_numpy() > 0).any():
        return Section("rates", title, [Absent(_why_not(view))])
    over = over_time(frame, _BINS, window=view.window)
    edges = np.append(over["start_s"].to_numpy(), over["end_s"].iloc[-1])
    rates = {kind: over[f"{kind}_bytes_per_s"].to_numpy(float) for kind in ("read", "write")}
    caption = (
        f"Bytes moved per second of time, in {_BINS} cells of {format_duration(float(edges[1] - edges[0]))}. The "
        "bytes of a call are spread evenly over the duration of the call; the area under the curve is the number of "
        "bytes moved." + view.before_window
    )
    blocks: list[Block] = [
        Figure(rate_figure(edges, rates), ("Bandwidth over time, all ranks"), caption, view.status_calls)
    ]
    ranks = np.unique(frame["rank"].to_numpy())
    if len(ranks) > 1:
        shown = ranks[np.unique(np.linspace(0, len(ranks) - 1, min(len(ranks), _MOST_RANKS)).round().astype(int))]
        grid = np.array([_rank_rate(frame, rank, view.window) for rank in shown.tolist()])
        caption = (
            "Bandwidth of reads and writes of each rank, computed as in the figure of all ranks; values above the "
            "scale have the darkest colour."
        )
        if len(shown) < len(ranks):
            caption += f" The figure shows {len(shown)} of {len(ranks)} ranks, evenly spaced."
        svg = rank_rate_figure(edges, shown.tolist(), grid)
        blocks.append(Figure(svg, "Bandwidth of each rank over time", caption, view.status_calls))
    return Section("rates", title, blocks)


def access_section(view: View) -> Section:
    """Builds the file access map and the table of sequential shares."""
    title = "Offsets in the files"
    moves = view.moves
    inside = (moves["end_ns"] >= view.window[0]).to_numpy()
    drawn = access_figure(moves if inside.all() else moves[inside], *view.window) if len(moves) else None
    if drawn is None:
        return Section("access", title, [Absent(_why_not(view, "Positions in files"))])
    caption = (
        "One line per read or write, from its first byte at its start time to its last byte at its end time, "
        f"coloured by {drawn.by}. Shown files: {shown_files(drawn)}." + view.before_window
    )
    if drawn.others:
        caption += f" {drawn.others} more files with {percent(drawn.others_share)} of the bytes are not shown."
    if drawn.lines < drawn.accesses:
        caption += (
            f" {drawn.accesses:,} accesses are drawn as {drawn.lines:,} marks; accesses at the same spot share a mark."
        )
    blocks: list[Block] = [Figure(drawn.svg, "File access map", caption, view.status_calls), _order_table(view)]
    return Section("access", title, blocks)


def _order_table(view: View) -> Table:
    rows = []
    rules = [("process and file (Darshan's rule)", view.order)]
    if (view.moves["tid"].to_numpy() >= 0).any():
        rules.append(("thread and file", shares(view.moves, "stream")))
    for label, counted in rules:
        for kind, figures in counted.items():
            if figures.accesses:
                named = {"read": "reads", "write": "writes", "all": "both"}[kind]
                rows.append(
                    [label, named, f"{figures.accesses:,}", _share(figures.sequential), _share(figures.consecutive)]
                )
    note = (
        "Sequential: share of accesses that begin after the last byte of the preceding access. Consecutive: share "
        "of accesses that begin at the byte directly after it. Accesses are compared within one direction and one "
        "file, in order of their start. Random access is about half sequential."
    )
    if view.placed_words:
        note += f" The shares cover {view.placed_words}."
    return Table(
        ("Order of accesses: shares of sequential and consecutive accesses"),
        ("<counted per", "<calls", "accesses", "sequential", "consecutive"),
        rows,
        note,
    )


def _rank_rate(frame: pd.DataFrame, rank: int, window: tuple[int, int]) -> Any:
    over = over_time(frame[frame["rank"] == rank], _BINS, window=window)
    return over["read_bytes_per_s"].to_numpy(float) + over["write_bytes_per_s"].to_numpy(float)


def _class_of(moved: Any) -> Any:
    """Number of the size class: 0 for 0 bytes, k for 2^(k-1) to below 2^k bytes (exact below 2^53)."""
    return np.where(moved > 0, np.frexp(np.maximum(moved, 0).astype(np.float64))[1], 0)


def _why_not(view: View, subject: str = "Recorded I/O calls") -> str:
    if len(view.moves):
        return f"{subject} are not known: the recording does not contain them, or no bytes were moved."
    if len(view.calls):
        return "No read and no write was recorded."
    counters = view.recording.counters
    if counters is not None and len(counters):
        return (
            f"{subject} were not recorded: this log contains sums per file only. Record single calls with Darshan's "
            "extended tracing (DXT_ENABLE_IO_TRACE=1) or with python -m dlio_torch trace -- CMD."
        )
    return GET_CALLS


def _size(value: float | None) -> str:
    return NOT_MEASURED if value is None else format_size(round(value))


def _share(value: float | None) -> str:
    if value is None:
        return NOT_MEASURED
    text = f"{100 * value:.2f} %"
    return percent(value) if text == "100.00 %" else text
