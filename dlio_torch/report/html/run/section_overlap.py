"""Builds the section on the overlap of I/O and compute."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dlio_torch.iotrace.figures.breakdown import is_span, span_times
from dlio_torch.iotrace.figures.intervals import Intervals, difference, intersection, union
from dlio_torch.iotrace.figures.overlap import READ_SPANS, io_rows, overlap
from dlio_torch.report.html.page_blocks import NOT_MEASURED, Absent, Block, Figure, Section, Table
from dlio_torch.report.html.run.lane_figure import CELLS, Lane, Layer, lane_figure
from dlio_torch.report.html.run.save_lanes import MOST_LANES, save_lanes
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import BLUE, PARTS, SKY, SLATE, VERMILLION
from dlio_torch.units import format_duration, percent

_MOST_RANKS = 8
_HIDDEN, _EXPOSED = "I/O while computing", "I/O exposed"


def overlap_section(view: View) -> Section:
    """Builds the lanes of compute, library reads and I/O calls over time, and the table of their overlap."""
    title = "I/O and compute at the same time"
    lanes = _lanes(view)
    if not lanes:
        return Section("overlap", title, [Absent(f"Neither compute nor I/O was recorded over time. {view.get_run}")])
    blocks: list[Block] = []
    frame = overlap(view.recording)
    subject = "Compute and I/O over time"
    if all(lane.name != "compute" for lane in lanes):
        title = subject = "I/O over time"
    start, end = view.window
    svg = lane_figure(lanes, start, end, "lanes", f"{subject}, each rank")
    hidden = len(_all_ranks(view)) - len({lane.rank for lane in lanes})
    caption = (
        f"The height of a lane is the share of a time cell ({CELLS} cells) in which at least one process or thread "
        "of the rank was active (union of intervals). "
    )
    if frame is None:
        caption += "No compute was recorded, so the share of exposed I/O is not known."
    else:
        caption += "Exposed I/O is I/O during which the rank did not compute."
    if any(lane.name.endswith("saves") for lane in lanes):
        caption += f" Saves have up to {MOST_LANES} lanes; the others of a rank share one."
    caption += view.before_window
    if hidden > 0:
        caption += f" The figure shows {_MOST_RANKS} ranks, evenly spaced; {hidden} more ranks are not shown."
    status = view.status_calls if len(view.calls) else view.status_spans
    blocks.append(Figure(svg, subject, caption, status))
    if frame is not None:
        blocks.append(_table(frame))
    return Section("overlap", title, blocks)


def _all_ranks(view: View) -> list[int]:
    ranks: list[int] = np.unique(view.recording.events.frame["rank"].to_numpy()).tolist()
    return ranks


def _lanes(view: View) -> list[Lane]:
    frame = view.recording.events.frame
    rows_and_source = io_rows(frame)
    io, source = rows_and_source if rows_and_source is not None else (frame.iloc[:0], "")
    reads = frame[is_span(frame, ("open", "read"))] if source != READ_SPANS else frame.iloc[:0]
    ranks = _all_ranks(view)
    pick = np.unique(np.linspace(0, max(len(ranks) - 1, 0), min(_MOST_RANKS, len(ranks))).round().astype(int))
    shown = [ranks[index] for index in pick.tolist()]
    # Where some ranks computed, their I/O is blue or red; that of a rank whose compute is not known is neither.
    plain = BLUE if span_times(frame, "compute") is None else SLATE
    lanes: list[Lane] = []
    for rank in shown:
        mine = frame[(frame["rank"] == rank).to_numpy()]
        compute = span_times(mine, "compute")
        if compute is not None and compute[0].size:
            lanes.append(Lane(rank, "compute", (Layer(compute, PARTS["compute"], "compute"),)))
        lanes += save_lanes(mine, rank, len(shown))
        library = _union(reads, rank)
        if library[0].size:
            lanes.append(Lane(rank, "library reads", (Layer(library, SKY, "library reads"),)))
        times = _union(io, rank)
        if not times[0].size:
            continue
        name = "library reads" if source == READ_SPANS else "I/O calls"
        if compute is None:
            lanes.append(Lane(rank, name, (Layer(times, SKY if source == READ_SPANS else plain, name),)))
        else:
            both, alone = intersection(times, compute), difference(times, compute)
            lanes.append(Lane(rank, name, (Layer(both, BLUE, _HIDDEN), Layer(alone, VERMILLION, _EXPOSED))))
    return lanes


def _union(rows: pd.DataFrame, rank: int) -> Intervals:
    mine = rows[(rows["rank"] == rank).to_numpy()]
    return union(mine["start_ns"].to_numpy(), mine["end_ns"].to_numpy())


def _table(frame: pd.DataFrame) -> Table:
    rows = []
    for row in frame.to_dict("records"):
        rows.append(
            [
                "all ranks" if row["rank"] < 0 else f"rank {row['rank']}",
                str(row["source"]),
                _seconds(row["io_s"]),
                _seconds(row["compute_s"]),
                _seconds(row["overlap_s"]),
                _share(row["overlap"]),
                _seconds(row["exposed_s"]),
                _share(row["exposed_share"]),
            ]
        )
    foot = rows.pop() if rows and rows[-1][0] == "all ranks" else None
    left = ""
    if len(rows) > 32:
        left = f" {len(rows) - 32} more ranks are not shown."
        rows = rows[:32]
    note = (
        "I/O and compute: length of the union of their intervals. Overlap: share of the I/O time during which "
        "compute ran. Exposed I/O: I/O time during which no compute ran, in seconds and as a share of the measured "
        "time (from the rank's first span to its last, without the generation of data). The row of all ranks "
        "contains sums over the ranks." + left
    )
    heads = ("<rank", "<I/O recorded as", "I/O", "compute", "both", "overlap", "exposed I/O", "share of measured time")
    return Table("Overlap of I/O and compute, and exposed I/O", heads, rows, note, foot)


def _seconds(value: float) -> str:
    return NOT_MEASURED if pd.isna(value) else format_duration(value)


def _share(value: float) -> str:
    return NOT_MEASURED if pd.isna(value) else percent(value)
