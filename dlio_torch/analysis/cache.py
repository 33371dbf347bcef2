"""Share of the data that came from the page cache, and whether the requested cache state was measured.

::

    device share    of the bytes that read calls returned (rchar), those that the device delivered: the smallest
                    of rchar, read_bytes and the uncached bytes in each epoch of each rank / rchar.  At most 1: what
                    the kernel reads ahead and nobody asks for is in read_bytes alone, as are pages of programs and
                    libraries.  Where the kernel reads ahead and finds some in the page cache, it is the most that
                    the share can be.  Not known where files are mapped: what page faults bring is in read_bytes and
                    not in rchar
    uncached bytes  of the data, those that were not in the page cache when that was last looked at before the epoch;
                    not known where the file system does not tell, where the data do not fit into memory, so that pages
                    may have gone since, or where reads go past the page cache
    fresh bytes     the smaller one of rchar and the size of the data: what a run that finds nothing in the
                    page cache must at the least get from the device, unless it asks for the same bytes often
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dlio_torch.config.schema import CacheGoal, Config
from dlio_torch.formats.core.registry import facts
from dlio_torch.iotrace.recorder.io_counters import IoCounters
from dlio_torch.storage.cache_state import CachePreparation, DataSize
from dlio_torch.storage.local.eviction import MEMORY_FILE_SYSTEMS
from dlio_torch.units import format_size

# File systems whose device is no block device by its name, and whose reads the kernel counts all the same.
_COUNTED = ("overlay", "btrfs", "zfs")
_FROM_CACHE = 0.5
"""Share of the expected device bytes below which a run with a cold cache did not measure the device."""
COLD = 0.9
"""Device share of the bytes read above which a run measured the storage."""
WARM = 0.05
"""Device share of the bytes read up to which a run measured memory."""


def counts_device(mount: Mapping[str, Any]) -> bool:
    """Whether the kernel counts the device bytes of this mount; network file systems show zeros.

    Args:
        mount: an entry of ``mounts`` in ``environment.json``.
    """
    device, kind = mount["device"], mount["file_system"]
    return kind in _COUNTED or (device is not None and device.startswith("/dev/"))


def from_device(counted: Iterable[tuple[IoCounters | None, int | None]]) -> int | None:
    """Upper bound of the bytes that read calls returned and the device delivered; None if an epoch was not counted.

    Args:
        counted: what the kernel counted in each epoch of a rank, and the uncached bytes before it.
    """
    candidates = [
        None if io is None else min(io.rchar, io.read_bytes, *(() if missing is None else (missing,)))
        for io, missing in counted
    ]
    return None if None in candidates else sum(size for size in candidates if size is not None)


def uncached_bytes(config: Config, size: DataSize, prepared: Sequence[CachePreparation], epoch: int) -> int | None:
    """Bytes of the data that only the device can deliver in an epoch, as they are not cached; None if not known.

    Args:
        config: the resolved configuration.
        size: of the data.
        prepared: what was done, or only looked at, before epochs.
        epoch: its number, from 1.
    """
    if config.dataset.direct_io or not size.fits:
        return None
    last = next((preparation for preparation in reversed(prepared) if preparation.epoch <= epoch), None)
    if last is None or last.cached_share is None or (config.stage.every_epoch and last.epoch != epoch):
        return None  # copies that were made since are other files
    return round((1 - last.cached_share) * size.bytes)


def maps_files(config: Config) -> bool:
    """Whether samples are read by page faults of mapped files instead of read calls."""
    return facts(config.dataset.format).maps_files(config)


def cache_summary(
    config: Config,
    goal: CacheGoal,
    size: DataSize,
    prepared: Sequence[CachePreparation],
    epochs: Sequence[Sequence[Mapping[str, Any]]],
    mount: Mapping[str, Any],
    *,
    can_read_direct: bool = False,
) -> dict[str, Any]:
    """Computes the part ``cache`` of ``summary.json``.

    Args:
        config: the resolved configuration.
        goal: state into which the page cache was brought.
        size: of the data.
        prepared: what was done before epochs.
        epochs: ``epochs`` of the summary: for each rank, its epochs; none where batches came from memory.
        mount: where the data lie, of ``environment.json``.
        can_read_direct: whether the format could read past the page cache.

    Returns:
        ``state``, ``every_epoch`` and ``direct_io`` as configured; ``goal``; ``file_system``; ``files``, ``bytes``,
        ``memory_bytes`` and ``fits_in_memory`` of the data; ``prepared``, a dictionary for each
        :class:`~dlio_torch.storage.cache_state.CachePreparation`; ``epochs``: bytes returned, delivered, their ratio,
        summed over ranks; ``warnings``: sentences for the user.  None where not known.
    """
    device = counts_device(mount)
    missing = [uncached_bytes(config, size, prepared, epoch["epoch"]) for epoch in epochs[0]] if epochs else []
    shares = _epochs(epochs, missing, device, mapped=maps_files(config))
    figures: dict[str, Any] = {
        "state": config.cache.state,
        "goal": goal,
        "every_epoch": config.cache.every_epoch,
        "direct_io": config.dataset.direct_io,
        "file_system": mount["file_system"],
        "machines": size.machines,
        "files": size.files,
        "bytes": size.bytes,
        "memory_bytes": size.room_bytes,
        "fits_in_memory": size.fits,
        "prepared": [asdict(preparation) for preparation in prepared],
        "epochs": shares,
    }
    warnings = [
        *_not_reached(config, goal, prepared),
        *_untold(config, mount, device),
        *_not_from_device(config, goal, size, shares),
        *_memory(config, goal, size, shares, mount, can_read_direct),
    ]
    return {**figures, "warnings": warnings}


def share_of(epochs: Sequence[Mapping[str, Any]]) -> float | None:
    """Device share of the bytes read in several epochs; None if the share of one epoch is not known.

    Args:
        epochs: of ``cache`` of ``summary.json``.
    """
    read = [epoch for epoch in epochs if epoch["rchar_bytes"] != 0]
    if not read or any(epoch["device_read_share"] is None for epoch in read):
        return None
    requested = sum(epoch["rchar_bytes"] for epoch in read)
    return float(sum(epoch["device_read_share"] * epoch["rchar_bytes"] for epoch in read) / requested)


def _epochs(
    epochs: Sequence[Sequence[Mapping[str, Any]]], missing: Sequence[int | None], device: bool, *, mapped: bool
) -> list[dict[str, Any]]:
    rows = []
    for ranks, uncached in zip(zip(*epochs, strict=True), missing, strict=True):
        counted = [IoCounters(**rank["io"]) for rank in ranks if rank["io"] is not None]
        known = len(counted) == len(ranks)
        requested = sum(io.rchar for io in counted) if known else None
        delivered = sum(io.read_bytes for io in counted) if known and device else None
        of_them = from_device((io, uncached) for io in counted) if known and device and not mapped else None
        share = of_them / requested if requested and of_them is not None else None
        rows.append(
            {
                "epoch": ranks[0]["epoch"],
                "rchar_bytes": requested,
                "read_bytes": delivered,
                "device_read_share": share,
                "seconds": max(rank["seconds"] for rank in ranks),
            }
        )
    return rows


def _not_reached(config: Config, goal: CacheGoal, prepared: Sequence[CachePreparation]) -> list[str]:
    label = _label(config, goal)
    missed = [
        (preparation, preparation.cached_share)
        for preparation in prepared
        if preparation.reached is False and preparation.cached_share is not None
    ]
    if missed:
        preparation, share = missed[0]
        others = f" (and before {len(missed) - 1} later epochs)" if len(missed) > 1 else ""
        problem = f"{100 * share:.0f} % of the data were in the page cache when epoch {preparation.epoch} began{others}"
        return [f"{label} was not reached: {problem}; {preparation.why}"]
    untold = [preparation for preparation in prepared if preparation.cached_share is None and goal != "as_is"]
    return [f"{label} was prepared, but cannot be checked: {untold[0].why}"] if untold else []


def _label(config: Config, goal: CacheGoal) -> str:
    """``cache=cold``, or ``cache=auto (cold)`` where the option leaves the state to the tool."""
    state = config.cache.state
    return f"cache={state}" if state == goal else f"cache={state} ({goal})"


def _untold(config: Config, mount: Mapping[str, Any], device: bool) -> list[str]:
    if device or mount["file_system"] in MEMORY_FILE_SYSTEMS:
        return []
    return [
        f"the {mount['file_system']} file system does not report which bytes its storage delivered and which a "
        "cache: the device's share of the bytes read is not measured"
    ]


def _not_from_device(config: Config, goal: CacheGoal, size: DataSize, shares: Sequence[Mapping[str, Any]]) -> list[str]:
    """Warns if the device delivered too little after a cold cache was reached."""
    if goal != "cold" or size.bytes == 0:
        return []
    for epoch in shares if config.cache.every_epoch else shares[:1]:
        if epoch["read_bytes"] is None or not epoch["rchar_bytes"]:
            continue
        fresh = min(epoch["rchar_bytes"], size.bytes)
        share = epoch["read_bytes"] / fresh
        if share < _FROM_CACHE:
            return [
                f"{_label(config, goal)}, but the device delivered only {100 * share:.0f} % of the "
                f"{format_size(fresh)} of data that epoch {epoch['epoch']} read: either the data came back into the "
                "page cache, or the run reads the same bytes repeatedly"
            ]
    return []


def _memory(
    config: Config,
    goal: CacheGoal,
    size: DataSize,
    shares: Sequence[Mapping[str, Any]],
    mount: Mapping[str, Any],
    can_read_direct: bool,
) -> list[str]:
    """Warns if the result shows memory more than storage."""
    if mount["file_system"] in MEMORY_FILE_SYSTEMS:
        return [
            f"{mount['file_system']} keeps its files in memory: the result shows memory, not storage; place the data "
            "set on another file system"
        ]
    if goal == "warm" or config.dataset.direct_io or not size.fits or size.room_bytes is None:
        return []
    share = share_of(shares)
    if not any(epoch["rchar_bytes"] for epoch in shares) or (share is not None and share >= COLD):
        return []
    if goal == "cold" and (config.cache.every_epoch or len(shares) == 1):
        return []  # what little came from the device is said elsewhere
    ways = ["set cache.every_epoch=true" if goal == "cold" else "set cache=cold cache.every_epoch=true"]
    if can_read_direct:
        ways.append("dataset.direct_io=true")
    ways.append("or use a data set larger than memory")
    fits = (
        f"the data ({format_size(size.bytes)}) fit into the {format_size(size.room_bytes)} that the page cache can use"
    )
    if share is None:
        measured = "the device's share of the bytes read is not known: the result may show memory"
    elif share <= WARM:
        measured = f"the device delivered {100 * share:.0f} % of the bytes read: the result shows memory"
    else:
        measured = (
            f"the device delivered {100 * share:.0f} % of the bytes read and memory the rest: the result shows the "
            "storage only in part"
        )
    return [f"{fits}, and {measured}; to measure the storage, {', '.join(ways)}"]
