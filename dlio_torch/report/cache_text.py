"""Console text on the preparation of the page cache and its result."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.analysis.cache import share_of
from dlio_torch.storage.cache_state import CachePreparation, DataSize
from dlio_torch.units import format_duration, format_rate, format_size, percent

_DONE = {"cold": "evicted", "warm": "read"}


def prepared_line(state: str, prepared: CachePreparation, size: DataSize) -> str:
    """One line on the preparation of the page cache before the first epoch.

    Args:
        state: ``cold`` or ``warm``.
        prepared: what came of it.
        size: of the data.
    """
    times = "" if prepared.attempts == 1 else f" {prepared.attempts} times"
    done = f"cache: {state}: {format_size(size.bytes)} {_DONE[state]}{times} in {format_duration(prepared.seconds)}"
    if prepared.cached_share is None:
        return f"{done}; the result was not checked: {prepared.why}"
    left = f"{percent(prepared.cached_share)} of the data are in the page cache"
    return (
        f"{done}; {left}"
        if prepared.reached
        else (f"{done}; the requested state was not reached: {left}: {prepared.why}")
    )


def epochs_text(cache: Mapping[str, Any]) -> str | None:
    """One line on the device's share of the bytes read in the first and in later epochs; ``None`` for one epoch.

    Args:
        cache: ``cache`` of ``summary.json``.
    """
    epochs = cache["epochs"]
    if len(epochs) < 2 or any(epoch["device_read_share"] is None for epoch in epochs):
        return None
    later = epochs[1:]
    share = share_of(later)
    assert share is not None
    which = "epoch 2" if len(later) == 1 else f"epochs 2 to {len(epochs)}"
    return f"epoch 1: {percent(epochs[0]['device_read_share'])} from the device, {which}: {percent(share)}"


def storage_text(storage: Mapping[str, Any]) -> str:
    """One line on the read rate of a run as a share of the storage's measured limit.

    Args:
        storage: ``storage`` of ``summary.json``.
    """
    shares = []
    if storage["share"] is not None:
        limit = format_rate(storage["limit_bytes_per_s"])
        shares.append(f"{percent(storage['share'])} of the limit {limit} ({storage['how']})")
    if storage["share_of_most"] is not None:
        most = format_rate(storage["most_bytes_per_s"])
        shares.append(f"{percent(storage['share_of_most'])} of the largest measured rate {most}")
    if not shares:
        return f"not measured: {storage['why']}"
    return f"{format_rate(storage['bytes_per_s'])} read on average over the epochs: {', '.join(shares)}"
