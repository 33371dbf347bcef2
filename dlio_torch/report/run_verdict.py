"""Verdict on a run in one sentence: the accelerator's utilisation and the largest loss of time."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.analysis.cache import COLD, WARM
from dlio_torch.units import format_duration

AHEAD = 0.05
"""Share of the bytes read above which device bytes beyond the requested ones are mentioned."""

_LOSSES = {
    "fetch": "waiting for data",
    "copy": "copying batches to the GPU",
    "allreduce": "the allreduce of the gradients",
    "checkpoint": "saving checkpoints",
    "other": "the work of dlio_torch itself between the measured parts",
    "between_epochs": "restarting the loaders between epochs",
    "late": "emulated compute that ran longer than requested",
}


def verdict(summary: Mapping[str, Any]) -> str:
    """Verdict on the accelerator's utilisation and the largest loss of time, in one sentence."""
    why = summary["train"].get("why")
    if why:
        return f"Nothing was measured: {why}."
    fetch = summary["step"]["fetch_s"]["mean"]
    duration = summary["step"]["duration_s"]["mean"]
    losses = _losses(summary)
    largest = max(losses, key=lambda name: losses[name])
    au = summary["au"]["mean"]
    who = f"{_source(summary)} and loader"
    if au is None:
        return (
            f"No compute was emulated, so there is no accelerator utilisation: {who.lower()} deliver "
            f"{_rate(summary)}, and a step of {format_duration(duration)} spends most of its time "
            f"({percent(losses[largest])}) on {_LOSSES[largest]}."
        )
    busy = percent(au)
    if 1 - au < 0.01:
        return f"{who} keep the emulated accelerator {busy} busy; a step waits {format_duration(fetch)} for data."
    if largest == "fetch":
        return (
            f"{who} keep the emulated accelerator {busy} busy: a step of {format_duration(duration)} waits "
            f"{format_duration(fetch)} for data, {percent(losses['fetch'])} of the time."
        )
    return (
        f"The emulated accelerator is {busy} busy, and {who.lower()} do not limit it: {_LOSSES[largest]} takes "
        f"{percent(losses[largest])} of the time, waiting for data {percent(losses['fetch'])}."
    )


def cache_state(summary: Mapping[str, Any]) -> str:
    """Text on the bytes that came from the device and from the page cache."""
    io = summary["io"]
    share = io["device_read_share"]
    if share is None:
        text = "not measured"
    else:
        kind = "cold" if share >= COLD else "cached" if share <= WARM else "partly cached"
        more = io["read_bytes"] / io["rchar_bytes"] - share
        ahead = (
            f" (and {100 * more:.0f} % more that read calls did not request: read-ahead of the kernel, or pages of "
            "programs)"
            if more >= AHEAD
            else ""
        )
        text = f"{kind}: the device delivered {percent(share)} of the bytes that were read{ahead}"
    before = io["cached_share_before"]
    return text if before is None else f"{text}; {percent(before)} of the data were in the page cache before the run"


def percent(share: float) -> str:
    """A share as text: ``0.973`` is ``97.3 %``; never rounded up to a full 100 %."""
    text = f"{100 * share:.1f} %"
    return ">99.9 %" if text == "100.0 %" and share < 1 else text


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
        return "Memory"  # nothing is read from files during the steps
    share = io["device_read_share"]
    if share is None or share >= COLD:
        return "Storage"
    return "Page cache" if share <= WARM else "Storage, page cache"


def _rate(summary: Mapping[str, Any]) -> str:
    train = summary["train"]
    return f"{train['samples_per_s']:.4g} samples/s ({train['mib_per_s']:.4g} MiB/s)"
