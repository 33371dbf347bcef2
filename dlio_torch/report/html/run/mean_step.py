"""Draws the mean step of a run as a bar of its parts, above bars of its limits: compute, storage and loader.

Every bar is seconds per step of one rank::

    this run       elapsed time of the measured steps / steps, split into the mean time of each part; mean of the ranks
    compute alone  requested compute time per step: utilisation of a rank times its elapsed time; mean of the ranks
    storage        bytes per step of all ranks / measured limit (``storage.limit_bytes_per_s``); the bytes are those
                   that the limit is about: delivered by the device, or returned by read calls
    loader         production time of a batch / producers, as if no producer ever waited for the trainer

A run that did not finish has the first bar only: the mean of its recorded training steps.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from dlio_torch.analysis.rank_steps import PARTS as STEP_PARTS
from dlio_torch.report.html.bar_figure import bar_figure
from dlio_torch.report.html.page_blocks import Figure
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import BLUE, BROWN, PARTS, SLATE, time_unit
from dlio_torch.train.steps import TIMED
from dlio_torch.units import counted, format_duration, format_rate, format_size

_PARTS = {
    "fetch": ("waiting for data", PARTS["fetch"]),
    "copy": ("copy to the GPU", PARTS["copy"]),
    "compute": ("emulated compute", PARTS["compute"]),
    "late": ("compute beyond the requested time", "#8FD3BD"),
    "allreduce": ("allreduce", PARTS["allreduce"]),
    "checkpoint": ("checkpoints", PARTS["checkpoint"]),
    "other": ("dlio_torch itself", PARTS["other"]),
    "between_epochs": ("between epochs", SLATE),
    "storage": ("storage", BROWN),
    "loader": ("loader", BLUE),
}
_LEAST = 1e-4  # share of the time below which a part is not in the figure


@dataclass(frozen=True)
class StepBar:
    """One bar of the figure: its label, and the seconds of each part by the part's key."""

    label: str
    parts: Mapping[str, float]


def mean_step_figure(view: View) -> Figure | None:
    """Draws where the time of a mean step went, and the limits that are known; None if nothing was measured."""
    run = _of_run(view.summary) if view.summary is not None else _of_unfinished_run(view)
    if run is None:
        return None
    if view.summary is not None:
        bars, notes = _limits(view, view.summary, run)
        basis = "every measured step was recorded"
    else:
        bars, notes = [run], [f"This run: mean of the training steps before it ended ({_total(run)})"]
        basis = "every recorded step"
    factor, unit = time_unit(max(sum(bar.parts.values()) for bar in bars))
    keys = [key for key in _PARTS if any(bar.parts.get(key) for bar in bars)]
    names = {key: _PARTS[key][0] for key in keys}
    svg = bar_figure(
        [bar.label for bar in bars],
        {names[key]: [bar.parts.get(key, 0.0) * factor for bar in bars] for key in keys},
        {names[key]: _PARTS[key][1] for key in keys},
        axis=f"time per step ({unit})",
        name="meanstep",
        description="Time of a mean step by part, and the time that compute, storage and loader need for a step",
        texts={names[key]: [format_duration(bar.parts.get(key, 0.0)) for bar in bars] for key in keys},
        ends=[_total(bar) for bar in bars],
        explained=[names[key] for key in keys if key not in ("storage", "loader")],
    )
    title = "Mean step of one rank, and what limits it"
    return Figure(
        svg,
        title,
        f"{'; '.join(notes)}.",
        f"Exact: {basis}; means over steps and ranks; {view.cache}.",
    )


def _limits(view: View, summary: Mapping[str, Any], run: StepBar) -> tuple[list[StepBar], list[str]]:
    """The bars of a finished run and a note on each of them."""
    bars, notes = [run], [f"This run: elapsed time of the measured steps / steps ({_total(run)})"]
    requested = run.parts.get("compute")
    if summary["au"]["mean"] is not None and requested:
        bars.append(StepBar("compute alone", {"compute": requested}))
        notes.append("compute alone: the requested compute time, the ideal")
    for bar, note in (_of_storage(summary), _of_loader(view, summary)):
        bars += [bar] if bar is not None else []
        notes.append(note)
    return bars, notes


def _total(bar: StepBar) -> str:
    return format_duration(sum(bar.parts.values()))


def _of_run(summary: Mapping[str, Any]) -> StepBar | None:
    ranks = [rank for rank in summary["ranks"] if rank["steps"] and rank["elapsed_s"]]
    if not ranks:
        return None
    lengths = [rank["elapsed_s"] / rank["steps"] for rank in ranks]
    length = sum(lengths) / len(ranks)
    parts = {name: sum(rank.get(f"{name}_s") or 0.0 for rank in ranks) / len(ranks) for name in STEP_PARTS}
    parts["between_epochs"] = length * (summary["shares"]["between_epochs"] or 0.0)
    parts["other"] = max(0.0, length - sum(seconds for name, seconds in parts.items() if name != "other"))
    if summary["au"]["mean"] is not None:
        requested = sum(rank["au"] * seconds for rank, seconds in zip(ranks, lengths, strict=True)) / len(ranks)
        if parts["compute"] > requested:
            parts |= {"compute": requested, "late": parts["compute"] - requested}
    return StepBar("this run", {name: parts[name] for name in _PARTS if parts.get(name, 0.0) >= _LEAST * length})


def _of_unfinished_run(view: View) -> StepBar | None:
    """The mean of the recorded training steps, warm-up included."""
    steps = view.training_steps
    if steps is None:
        return None
    parts = {part: seconds for part in TIMED if (seconds := steps[f"{part}_ns"].mean() * 1e-9) > 0}
    return StepBar("this run", parts) if parts else None


def _of_storage(summary: Mapping[str, Any]) -> tuple[StepBar | None, str]:
    """The bar of the storage, and a note on how it was computed or how to measure it."""
    storage, train = summary.get("storage") or {}, summary["train"]
    limit, cache, samples = storage.get("limit_bytes_per_s"), summary.get("cache"), summary["reads"]["samples"]
    if not limit or not cache or not samples or not train["steps"]:
        why = str(storage.get("why") or "")
        hint = "set storage.limits=measure" if "storage.limits" in why or not why else why
        return None, f"the limit of the storage was not measured ({hint})"
    warm = storage["cached"] == "warm" or summary["io"]["read_bytes"] is None
    size = sum(epoch["rchar_bytes" if warm else "read_bytes"] for epoch in cache["epochs"])
    per_step = size / samples * train["samples"] / train["steps"]
    source = "page cache" if storage["cached"] == "warm" else "storage"
    note = f"{source}: {format_size(round(per_step))} per step of all ranks at the measured limit {format_rate(limit)}"
    return StepBar(f"{source} at its limit", {"storage": per_step / limit}), note


def _of_loader(view: View, summary: Mapping[str, Any]) -> tuple[StepBar | None, str]:
    """The bar of the loader, and a note on how it was computed or why it is missing."""
    spans = view.recording.spans
    fetches = spans[(spans["op"] == "fetch") & (spans["step"] > int(summary["warmup"]["steps"]))]
    batches = spans[spans["op"] == "batch"].drop_duplicates(["rank", "offset"])
    produced = batches.merge(fetches[["rank", "offset"]].drop_duplicates(), on=["rank", "offset"])
    if not len(produced) or not len(fetches):
        return None, "loader: the production of batches was not recorded"
    producers = _producers(view)
    seconds = float((produced["end_ns"] - produced["start_ns"]).sum()) * 1e-9 / len(fetches)
    by = f" by {counted(producers, 'producer')}" if producers > 1 else ""
    note = f"loader: production of a batch takes {format_duration(seconds)}{by}"
    label = "loader alone" if producers == 1 else f"loader alone, {producers} producers"
    return StepBar(label, {"loader": seconds / producers}), note


def _producers(view: View) -> int:
    """Number of threads or workers of a rank that produce batches."""
    loader = view.options.get("loader")
    if not isinstance(loader, Mapping):
        return 1
    counts = (str(loader.get(name)) for name in ("num_workers", "read_threads"))
    return max([1, *(int(count) for count in counts if count.isdigit())])
