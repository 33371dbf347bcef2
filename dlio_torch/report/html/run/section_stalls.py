"""Builds the section on stalls: the causes of the trainer's waits for data."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dlio_torch.analysis import stalls
from dlio_torch.report.html.page_blocks import NOT_MEASURED, Absent, Block, Figure, Section, Table, Text
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.stack_figure import stack_figure
from dlio_torch.report.html.theme import BLACK, BLUE, BROWN, GREY, ORANGE, PURPLE, SKY, SLATE, VERMILLION, YELLOW
from dlio_torch.units import format_duration, percent

_TITLE = "Causes of waits"
_STALL_COLOURS = {
    "device": VERMILLION,
    "page_cache": SKY,
    "decode": YELLOW,
    "read": BROWN,
    "preprocess": PURPLE,
    "collate": ORANGE,
    "hand_over": BLUE,
    "starved": BLACK,
    "not_started": SLATE,
    "unexplained": GREY,
}
_STALL_MEANS = {
    "device": "reading the awaited batch: waiting for bytes that the device delivers",
    "page_cache": "reading the awaited batch: copying bytes out of the page cache",
    "decode": "decompressing, parsing and copying in the format's library, and spans decode",
    "read": "reading the awaited batch, where device, page cache and decoding cannot be told apart",
    "preprocess": "preprocessing of the awaited batch",
    "collate": "collating the awaited batch",
    "hand_over": "transfer of the batch: from the end of the worker's work until the trainer has the batch",
    "starved": "a worker had work, but no CPU core",
    "not_started": "no worker had begun the batch",
    "unexplained": "time with none of the other causes",
}


def stall_section(view: View) -> Section:
    """Builds the figure of each step's wait by cause, and the table of the causes."""
    counted = view.summary["io"]["device_read_share"] is not None if view.summary is not None else None
    frame = stalls.attribute(view.recording, counted)
    if frame is None or not len(frame):
        return Section(
            "stalls", _TITLE, [Absent(f"No wait of the trainer for data was recorded (spans fetch). {view.get_run}")]
        )
    parts = [part for part in stalls.PARTS if frame[part].notna().any() and frame[part].sum() > 0]
    if parts == ["unexplained"]:
        waited = format_duration(float(frame["wait_s"].sum()))
        text = (
            f"{len(frame)} steps waited {waited} for data. The causes are not known, because the recording has no "
            "spans of loader threads and workers. Run the application with python -m dlio_torch to record these "
            "spans."
        )
        figure = _figure(
            view,
            frame,
            parts,
            ("Time that each step waited for data"),
            ("The height of a bar is the wait (fetch) of one step."),
        )
        return Section("stalls", _TITLE, [Text(text), *figure])
    attribution = stalls.summary(frame, int(view.summary["warmup"]["steps"]) if view.summary is not None else 0)
    caption = (
        "Time that each step waited for data (fetch), split by the activity of the awaited batch's producer: "
        "reading, decoding, collating and so on. The parts of a bar add up to the wait."
    )
    figure = _figure(view, frame, parts, "Time that each step waited for data, by cause", caption)
    return Section("stalls", _TITLE, [Text(attribution["sentence"]), *figure, _table(attribution)])


def _figure(view: View, frame: pd.DataFrame, parts: list[str], title: str, caption: str) -> list[Block]:
    if not parts:
        return []
    frame = frame.sort_values("start_ns", kind="stable")
    drawn = stack_figure(
        frame,
        parts,
        _STALL_COLOURS,
        {part: _word(part) for part in parts},
        name="stalls",
        label="wait per step",
        seconds=(frame["start_ns"].to_numpy() - view.window[0]) * 1e-9,
    )
    caption += " The bars show the steps of all ranks in order of time"
    caption += f"; a bar is the mean of {drawn.group} steps" if drawn.group > 1 else ""
    caption += f"; {drawn.cut} bars extend beyond the axis (▲)." if drawn.cut else "."
    estimated = [_word(part) for part in parts if part in stalls.ESTIMATED]
    status = f"Estimated: {', '.join(estimated)}; the other parts are exact" if estimated else "Exact"
    return [Figure(drawn.svg, title, caption, f"{status}; {view.cache}.")]


def _table(attribution: dict[str, Any]) -> Table:
    rows = []
    for part in stalls.PARTS:
        seconds, share = attribution["parts"][part], attribution["shares"][part]
        rows.append(
            [
                _word(part) + (" (estimated)" if part in attribution["estimated"] else ""),
                NOT_MEASURED if seconds is None else format_duration(seconds),
                "" if share is None else percent(share),
                _STALL_MEANS[part],
            ]
        )
    total = NOT_MEASURED if attribution["wait_s"] is None else format_duration(attribution["wait_s"])
    ahead = attribution["ahead_s"]
    note = "Warm-up steps are left out. " + (
        "" if ahead is None else f"Deeper prefetching could have saved at most {format_duration(ahead)} of the waits."
    )
    foot = ["all waits", total, "", f"{attribution['steps']} steps"]
    return Table(
        "Causes of the waits for data", ("<cause", "time", "share", "<activity of the producer"), rows, note, foot
    )


def _word(part: str) -> str:
    return part.replace("_", " ")
