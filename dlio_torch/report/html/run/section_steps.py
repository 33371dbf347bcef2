"""Builds the sections on training: the timeline of steps, and the breakdown of the time."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd

from dlio_torch.analysis.step_metrics import SHARES
from dlio_torch.iotrace.figures.breakdown import CATEGORIES, breakdown
from dlio_torch.report.html.bar_figure import bar_figure
from dlio_torch.report.html.page_blocks import NOT_MEASURED, Absent, Block, Facts, Figure, Section, Table
from dlio_torch.report.html.run.step_figure import step_figure
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import PARTS, time_unit
from dlio_torch.report.workers_text import workers_rows
from dlio_torch.units import format_duration, percent

_MOST_BARS = 16
_MOST_EPOCHS = 24
_CATEGORY_COLOURS = {
    "wait": PARTS["fetch"],
    "copy": PARTS["copy"],
    "compute": PARTS["compute"],
    "allreduce": PARTS["allreduce"],
    "checkpoint": PARTS["checkpoint"],
    "evaluate": PARTS["evaluate"],
    "other": PARTS["other"],
}
_CATEGORY_MEANS = {
    "read": "read calls of the format's library: spans open and read",
    "load": "the loader's work: reading, decoding, preprocessing and collating",
    "wait": "the trainer's wait for its next batch",
    "copy": "copies of batches to the GPU",
    "compute": "emulated or real compute",
    "allreduce": "exchange of gradients between the ranks",
    "train": "compute and allreduce",
    "checkpoint": "writing checkpoints",
    "evaluate": "evaluations",
    "other": "the rest of the measured time",
    "posix": "I/O calls of all processes of the rank",
}


def step_section(view: View) -> Section:
    """Builds the timeline of steps and the table of their parts."""
    if view.steps is None or not len(view.steps):
        return Section("steps", "Steps", [Absent(f"No step was recorded. {view.get_run}")])
    drawn = step_figure(view.timed_steps)
    blocks: list[Block] = []
    if drawn is not None:
        caption = (
            "Time of each training step: fetch + copy + compute + allreduce + checkpoint + other, as the trainer "
            "measured them. Other is the time until the start of the next step that no other part covers."
        )
        if drawn.group > 1:
            caption += (
                f" A bar is the mean of {drawn.group} consecutive steps; the line is the slowest step of each group."
            )
        if drawn.hidden_ranks:
            caption += (
                f" {drawn.hidden_ranks} ranks are not shown: the figure has the first rank, the last rank and those "
                "that wait most."
            )
        if drawn.cut:
            caption += f" {drawn.cut} bars extend beyond the axis (▲)."
        if drawn.evaluations:
            caption += f" {drawn.evaluations} evaluation steps are left out."
        blocks.append(Figure(drawn.svg, "Time of each training step, by part", caption, view.status_spans))
    if view.summary is not None and view.summary["step"]["duration_s"] is not None:
        blocks.append(_parts_table(view.summary))
    if view.summary is not None and (facts := list(workers_rows(view.summary))):
        blocks.append(Facts(facts))
    if not blocks:
        blocks.append(Absent("Only evaluation steps were recorded."))
    return Section("steps", "Steps", blocks)


def _parts_table(summary: Any) -> Table:
    rows = []
    for part in SHARES:
        share = summary["shares"].get(part)
        stats = summary["step"].get(f"{part}_s")
        if part == "copy" and share is None:
            continue  # most runs have none
        cells = [format_duration(stats[name]) if stats else "" for name in ("mean", "median", "p95", "max")]
        if share is None:
            cells = [NOT_MEASURED, "", "", ""]
        rows.append([part.replace("_", " "), *cells, "" if share is None else percent(share)])
    whole = summary["step"]["duration_s"]
    foot = ["whole step", *(format_duration(whole[name]) for name in ("mean", "median", "p95", "max")), ""]
    note = (
        "Times of the measured steps of all ranks; warm-up and evaluation steps are left out. Share: sum of the "
        "part's times / elapsed time, mean over ranks. Parts that the run does not have are not measured. Compute ran "
        f"with compute.mode={summary['compute']['mode']}."
    )
    return Table("Time of each part of a step", ("<part", "mean", "median", "p95", "max", "share"), rows, note, foot)


def breakdown_section(view: View) -> Section:
    """Builds the breakdown of the run time into reading, loading, training and checkpoints."""
    title = "Breakdown of the run time"
    frame = breakdown(view.recording)
    whole = frame[(frame["epoch"] < 0) & frame["seconds"].notna()]
    known = [name for name in CATEGORIES if (whole["category"] == name).any() and name not in ("posix", "other")]
    if not known:
        return Section("breakdown", title, [Absent(f"No phase of a program was recorded (spans). {view.get_run}")])
    table = whole.pivot(index="rank", columns="category", values="seconds")
    blocks: list[Block] = []
    stacked = [name for name in _STACKED if name in table and table[name].gt(0).any()]
    if stacked and "wait" in table:
        blocks.append(_phase_figure(table, stacked, view.status_spans))
    blocks.append(_phase_table(whole))
    epochs = frame[(frame["epoch"] > 0) & frame["seconds"].notna()]
    if epochs["epoch"].nunique() > 1:
        blocks.append(_epoch_table(epochs))
    return Section("breakdown", title, blocks)


_STACKED = ("wait", "copy", "compute", "allreduce", "checkpoint", "evaluate", "other")


def _phase_figure(table: pd.DataFrame, stacked: list[str], status: str) -> Figure:
    shown = table.dropna(subset=stacked, how="all").fillna(0.0)
    if len(shown) > _MOST_BARS:
        shown = shown.iloc[np.unique(np.linspace(0, len(shown) - 1, _MOST_BARS).round().astype(int))]
    factor, unit = time_unit(float(shown[stacked].sum(axis=1).max()))
    svg = bar_figure(
        [f"rank {rank}" for rank in shown.index],
        {name: (shown[name] * factor).tolist() for name in stacked},
        _CATEGORY_COLOURS,
        axis=f"measured time of the rank ({unit})",
        name="breakdown",
        description="Run time of each rank by phase of its trainer",
        texts={name: [format_duration(value) for value in shown[name]] for name in stacked},
    )
    caption = (
        "Run time split into the phases of the trainer, which follow one another: wait is the fetch of the next "
        "batch, other is the measured time outside of all phases. The time of a phase is the length of the union of "
        "its intervals. The table below the figure contains the work of loader workers."
    )
    if len(shown) < len(table):
        caption += f" {len(table) - len(shown)} ranks are not shown."
    return Figure(svg, "Run time of each rank, by phase of the trainer", caption, status)


def _phase_table(whole: pd.DataFrame) -> Table:
    grouped = whole.groupby("category")
    seconds, share = grouped["seconds"].agg(["mean", "min", "max"]), grouped["share"].mean()
    ranks = int(whole["rank"].nunique())
    rows = []
    for name in CATEGORIES:
        if name not in seconds.index:
            rows.append([name, NOT_MEASURED, "", "", _CATEGORY_MEANS[name]])
            continue
        mean, low, high = seconds.loc[[name]].to_numpy(float)[0]
        spread = "" if ranks == 1 else f"{format_duration(low)} to {format_duration(high)}"
        rows.append([name, format_duration(mean), percent(float(share[name])), spread, _CATEGORY_MEANS[name]])
    time = "mean of ranks" if ranks > 1 else "time"
    note = (
        "Time of a category: length of the union of its intervals over all processes and threads of a rank "
        "(TimeLogger's merged intervals), so concurrent work counts once. Loading runs concurrently with training, "
        "so the categories do not add up to the measured time; wait, copy, train, checkpoint, evaluate and other "
        "do. Share: time / measured time of the rank (from its first span to its last, without the generation of "
        "data). Means are over the ranks that have the category."
    )
    heads = ("<category", time, "share of measured time", *(("range over ranks",) if ranks > 1 else ()), "<definition")
    if ranks == 1:
        rows = [[*row[:3], row[4]] for row in rows]
    return Table("Categories", heads, rows, note)


def _epoch_table(epochs: pd.DataFrame) -> Table:
    means = epochs.pivot_table(index="epoch", columns="category", values="seconds", aggfunc="mean")
    names = [name for name in CATEGORIES if name in means]
    rows = [
        [str(epoch), *("" if pd.isna(row[name]) else format_duration(float(row[name])) for name in names)]
        for epoch, row in means.head(_MOST_EPOCHS).iterrows()
    ]
    left = len(means) - len(rows)
    note = ("Times within each epoch, defined as in the table of the whole run; means over the ranks.") + (
        f" {left} later epochs are not shown." if left else ""
    )
    return Table("Epochs", ("epoch", *names), rows, note)
