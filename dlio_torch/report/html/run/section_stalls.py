"""The section on stalls: causes of the trainer's waits."""

from __future__ import annotations

from typing import Any

import pandas as pd

from dlio_torch.analysis import stalls
from dlio_torch.report.html.page_blocks import NOT_MEASURED, Absent, Block, Figure, Section, Table, Text
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.stack_figure import stack_figure
from dlio_torch.report.html.theme import BLACK, BLUE, BROWN, GREY, ORANGE, PURPLE, SKY, SLATE, VERMILLION, YELLOW
from dlio_torch.report.run_verdict import percent
from dlio_torch.units import format_duration

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
    "device": "the awaited batch's reads, as far as the device delivered them",
    "page_cache": "the awaited batch's reads, as far as memory delivered them",
    "decode": "decompressing, parsing and copying in the library, and spans decode",
    "read": "the awaited batch's reads, where the three above cannot be told apart",
    "preprocess": "preprocessing of the awaited batch",
    "collate": "collating the awaited batch",
    "hand_over": "from the end of the worker's work to the trainer's having the batch",
    "starved": "a worker had the work and was not scheduled",
    "not_started": "no worker had begun the batch",
    "unexplained": "none of these",
}


def stall_section(view: View) -> Section:
    """The waits of each step by cause, and a table of the causes."""
    counted = view.summary["io"]["device_read_share"] is not None if view.summary is not None else None
    frame = stalls.attribute(view.recording, counted)
    if frame is None or not len(frame):
        return Section("stalls", _TITLE, [Absent(f"No wait of a trainer was recorded (spans fetch). {view.get_run}")])
    parts = [part for part in stalls.PARTS if frame[part].notna().any() and frame[part].sum() > 0]
    if parts == ["unexplained"]:
        waited = format_duration(float(frame["wait_s"].sum()))
        text = (
            f"{len(frame)} steps waited {waited} for data. The causes are unknown: the recording has no spans of "
            "loader threads and workers. Runs of python -m dlio_torch record them."
        )
        figure = _figure(view, frame, parts, "Wait of each step", "Height of a bar = the wait (fetch) of one step.")
        return Section("stalls", _TITLE, [Text(text), *figure])
    attribution = stalls.summary(frame, int(view.summary["warmup"]["steps"]) if view.summary is not None else 0)
    caption = (
        "Each wait (fetch) is split by the activity of the awaited batch's producer: reading, decoding, collating and "
        "so on. The parts add up to the wait."
    )
    figure = _figure(view, frame, parts, "Wait of each step by cause", caption)
    return Section("stalls", _TITLE, [Text(attribution["sentence"]), *figure, _table(attribution)])


def _figure(view: View, frame: pd.DataFrame, parts: list[str], title: str, caption: str) -> list[Block]:
    if not parts:
        return []
    drawn = stack_figure(
        frame.sort_values("start_ns", kind="stable"),
        parts,
        _STALL_COLOURS,
        {part: _word(part) for part in parts},
        name="stalls",
        label="wait per step",
    )
    caption += " Steps of all ranks in order of time"
    caption += f"; a bar is the mean of {drawn.group} of them" if drawn.group > 1 else ""
    caption += f"; {drawn.cut} bars reach beyond the axis (▲)." if drawn.cut else "."
    estimated = [_word(part) for part in parts if part in stalls.ESTIMATED]
    status = f"Estimated: {', '.join(estimated)}; the rest exact" if estimated else "Exact"
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
    note = "Warm-up left out. " + (
        ""
        if ahead is None
        else f"Reading further ahead could have saved at most {format_duration(ahead)} of the waits."
    )
    foot = ["all waits", total, "", f"{attribution['steps']} steps"]
    return Table("Causes of waiting", ("<cause", "time", "share", "<what it is"), rows, note, foot)


def _word(part: str) -> str:
    return part.replace("_", " ")
