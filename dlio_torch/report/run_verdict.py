"""One sentence on a run: the accelerator's utilisation and its largest loss."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.analysis.cache import COLD, WARM
from dlio_torch.units import format_duration

AHEAD = 0.05
"""Share of the bytes read from which additional device bytes are mentioned."""

_LOSSES = {
    "fetch": "waiting for data",
    "copy": "copying batches to the GPU",
    "allreduce": "the allreduce of the gradient",
    "checkpoint": "saving checkpoints",
    "other": "the tool's own work between the timed parts",
    "between_epochs": "starting the loaders again between epochs",
    "late": "emulated compute that ran longer than requested",
}


def verdict(summary: Mapping[str, Any]) -> str:
    """One sentence on the accelerator's utilisation and the largest loss."""
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
            f"No compute was emulated, so no accelerator had to be kept busy: {who.lower()} deliver "
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
        f"{who} are not what holds the emulated accelerator at {busy}: {_LOSSES[largest]} takes "
        f"{percent(losses[largest])} of the time, waiting for data {percent(losses['fetch'])}."
    )


def cache_state(summary: Mapping[str, Any]) -> str:
    """Text on bytes from the device and from the page cache."""
    io = summary["io"]
    share = io["device_read_share"]
    if share is None:
        text = "not measured"
    else:
        kind = "cold" if share >= COLD else "cached" if share <= WARM else "partly cached"
        more = io["read_bytes"] / io["rchar_bytes"] - share
        ahead = (
            f" (and {100 * more:.0f} % more that were not requested: the kernel reads ahead, or pages of programs)"
            if more >= AHEAD
            else ""
        )
        text = f"{kind}: the device delivered {percent(share)} of the bytes that were read{ahead}"
    before = io["cached_share_before"]
    return text if before is None else f"{text}; {percent(before)} of the data were in the page cache before"


def percent(share: float) -> str:
    """``0.973`` as ``97.3 %``; never rounded up to a full 100 %."""
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
