"""Verdict on a run: what limits it, how sure that is, what to change, and which part of the run to work on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.analysis.cache import COLD, WARM
from dlio_torch.report.checkpoint_text import slowdown_text
from dlio_torch.report.utilisation_text import work_on
from dlio_torch.units import format_duration, format_number, format_rate, format_size, percent

AHEAD = 0.05
"""Share of the bytes read from which additional device bytes are mentioned."""

_LOSSES = {
    "fetch": "waiting for data",
    "copy": "copying batches to the GPU",
    "allreduce": "the allreduce of the gradients",
    "checkpoint": "saving checkpoints",
    "other": "the work of dlio_torch itself between the measured parts",
    "between_epochs": "restarting the loaders between epochs",
    "late": "emulated compute that ran longer than requested",
}
_LOADING = ("fetch", "between_epochs")  # losses that storage or loader cause
BUSY = 0.99
"""Utilisation from which nothing limits a run."""
_SLOWS = 0.05
"""Relative increase of a step's duration from which saves in the background are mentioned."""
_LIMITS = 0.2
"""Share of the time from which a loss limits a run."""


def verdict(summary: Mapping[str, Any]) -> str:
    """Verdict on a run: a sentence on what limits it and what to change, and one on the part to work on, if known."""
    why = summary["train"].get("why")
    if why:
        return f"Nothing was measured: {why}."
    losses = _losses(summary)
    largest = max(losses, key=lambda name: losses[name])
    au = summary["au"]["mean"]
    who = f"{_source(summary).lower()} and loader"
    step = summary["step"]
    duration, wait = format_duration(step["duration_s"]["mean"]), format_duration(step["fetch_s"]["mean"])
    if au is None:
        return (
            f"No compute was emulated, so there is no accelerator utilisation: {who} deliver {_rate(summary)}, and a "
            f"step of {duration} spends most of its time ({percent(losses[largest])}) on {_LOSSES[largest]}"
            f"{_change(summary, largest)}.{_beside_saves(summary)}"
        )
    accelerator = "the emulated accelerator"
    busy = f"{percent(au)} busy ({_sureness(summary)})"
    if au >= BUSY:
        return f"Nothing limits this run: {who} keep {accelerator} {busy}; a step waits {wait} for data."
    limits = "limits this run" if losses[largest] >= _LIMITS else "is the largest loss of this run"
    cause = f"{_LOSSES[largest][0].upper()}{_LOSSES[largest][1:]} {limits}"
    waits = percent(losses["fetch"])
    part = work_on(summary, waits=largest in _LOADING)
    last = f"{_change(summary, largest)}.{_beside_saves(summary)}{f' {part}' if part else ''}"
    if largest == "fetch":
        return (
            f"{cause}: {who} keep {accelerator} {busy}, and a step of {duration} waits {wait} for "
            f"data, {waits} of the time{last}"
        )
    return (
        f"{cause}: it takes {percent(losses[largest])} of the time, and {accelerator} is {busy}; waiting for "
        f"data takes {waits}{last}"
    )


def level(summary: Mapping[str, Any]) -> str:
    """How well the accelerator was fed: ``good``, ``fair`` or ``poor``; empty without a utilisation."""
    au = summary["au"]["mean"]
    if au is None:
        return ""
    return "good" if au >= 0.9 else "fair" if au >= 0.5 else "poor"


def _sureness(summary: Mapping[str, Any]) -> str:
    steps = summary["train"]["steps"]
    interval = summary["au"].get("ci95")
    if interval is None:
        return f"too few steps to be sure: {steps}"
    return f"± {50 * (interval[1] - interval[0]):.1f} points at 95 % confidence, {steps} steps"


def _change(summary: Mapping[str, Any], loss: str) -> str:
    """The first piece of advice that is an option, with what it is predicted to save, as the end of a sentence.

    If checkpoints are the largest loss, advice on them comes first.
    """
    items = [item for item in (summary.get("advice") or {}).get("items") or () if item["key"] is not None]
    on_loss = [item for item in items if loss == "checkpoint" and item["key"].startswith("checkpoint.")]
    first = next(iter((*on_loss, *items)), None)
    if first is None:
        return ""
    saved = saved_share(first)
    return f"; try {settings_of(first)}" + (f", which saves {saved} of the time" if saved else "")


def _beside_saves(summary: Mapping[str, Any]) -> str:
    """Sentence that saves in the background slow the steps; empty if they hardly do, or it was not measured."""
    slowdown = summary["checkpoints"].get("slowdown")
    if slowdown is None or slowdown < _SLOWS:
        return ""
    text = slowdown_text(summary["checkpoints"])
    return f" {text[0].upper()}{text[1:]}."


def settings_of(item: Mapping[str, Any]) -> str:
    """The options of a piece of advice, as on the command line."""
    return " ".join(f"{key}={value}" for key, value in ((item["key"], item["value"]), *item["also"]))


def saved_share(item: Mapping[str, Any]) -> str:
    """The share of the elapsed time that a piece of advice is predicted to save; empty: not predicted."""
    predicted = item["predicted"]
    if predicted is None or predicted["gain_high"] is None:
        return ""
    high = percent(max(0.0, predicted["gain_high"]))
    if predicted["gain_low"] is None:
        return f"at most {high}"
    low = percent(max(0.0, predicted["gain_low"]))
    return high if low == high else f"{low} to {high}"


def cache_state(summary: Mapping[str, Any]) -> str:
    """Text on bytes from the device and from the page cache."""
    io = summary["io"]
    share = io["device_read_share"]
    if share is None:
        text = "not measured"
    else:
        kind = "cold" if share >= COLD else "cached" if share <= WARM else "partly cached"
        read = io["rchar_bytes"]
        more = io["read_bytes"] / read - share
        ahead = (
            f" (and {format_size(more * read)} more that no read call requested: read-ahead of the kernel, or pages "
            "of programs)"
            if more >= AHEAD
            else ""
        )
        text = f"{kind}: the device delivered {percent(share)} of the {format_size(read)} that were read{ahead}"
    before = io["cached_share_before"]
    return text if before is None else f"{text}; {percent(before)} of the data were in the page cache before the run"


def _losses(summary: Mapping[str, Any]) -> dict[str, float]:
    shares = summary["shares"]
    losses = {name: shares.get(name) or 0.0 for name in _LOSSES if name != "late"}
    au = summary["au"]["mean"]
    if au is not None and shares["compute"] is not None:
        losses["late"] = shares["compute"] - au
    return losses


def _source(summary: Mapping[str, Any]) -> str:
    io = summary["io"]
    if io["rchar_bytes"] is None:
        if any(rank is not None and rank["by"] == "io_uring" for rank in summary.get("loader_io") or ()):
            return "Storage or page cache"  # the kernel does not count what io_uring reads
        return "Memory"  # nothing is read from files during the steps
    share = io["device_read_share"]
    if share is None or share >= COLD:
        return "Storage"
    return "Page cache" if share <= WARM else "Storage, page cache"


def _rate(summary: Mapping[str, Any]) -> str:
    train = summary["train"]
    return f"{format_number(train['samples_per_s'])} samples/s ({format_rate(train['mib_per_s'] * 2**20)})"
