"""Builds the section on the page cache: bytes from the device and bytes from memory."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.report.cache_text import storage_text
from dlio_torch.report.html.bar_figure import bar_figure
from dlio_torch.report.html.page_blocks import NOT_MEASURED, Absent, Block, Facts, Figure, Notes, Section
from dlio_torch.report.html.run.view import View
from dlio_torch.report.html.theme import SKY, VERMILLION, size_unit
from dlio_torch.report.stage_text import stage_words
from dlio_torch.units import format_size, percent

_MOST_EPOCHS = 24
_DEVICE, _CACHE = "from the device", "from the page cache"


def cache_section(view: View) -> Section:
    """Builds the section on the device bytes and the returned bytes of each epoch."""
    title = "Page cache"
    if view.summary is None:
        return Section("cache", title, [Absent(f"The state of the page cache was not recorded. {view.get_run}")])
    io = view.summary["io"]
    before = io["cached_share_before"]
    blocks: list[Block] = [
        Facts(
            [
                ("state", view.cache),
                ("bytes returned by read calls", _size(io["rchar_bytes"])),
                ("bytes delivered by the device", _size(io["read_bytes"])),
                (
                    ("share of the data in the page cache before the run"),
                    NOT_MEASURED if before is None else percent(before),
                ),
                *_staged(view.summary.get("stage")),
                *_wanted_state(view.summary.get("cache")),
                *_limit(view.summary.get("storage")),
            ]
        )
    ]
    warnings = (view.summary.get("cache") or {}).get("warnings")
    if warnings:
        blocks.append(Notes(warnings))
    # Where the device is not counted, the kernel shows zeros, which would read as "all from memory"; mapped files are
    # not in what read calls returned.
    epochs = _epochs(view.summary) if io["device_read_share"] is not None else []
    if not epochs:
        return Section("cache", title, blocks)
    left = len(epochs) - _MOST_EPOCHS
    epochs = epochs[:_MOST_EPOCHS]
    factor, unit = size_unit(max(returned for _, returned, _ in epochs))
    device = [min(read, returned) for _, returned, read in epochs]
    cached = [max(returned - read, 0) for _, returned, read in epochs]
    svg = bar_figure(
        [f"epoch {epoch}" for epoch, _, _ in epochs],
        {_DEVICE: [value * factor for value in device], _CACHE: [value * factor for value in cached]},
        {_DEVICE: VERMILLION, _CACHE: SKY},
        axis=f"{unit} returned by read calls, all ranks",
        name="cache",
        description="Bytes read in each epoch, split into bytes from the device and bytes from the page cache",
        texts={_DEVICE: [format_size(v) for v in device], _CACHE: [format_size(v) for v in cached]},
    )
    caption = (
        "Bytes per epoch, summed over all ranks and their workers, as the kernel counts them (/proc/PID/io). Length "
        "of a bar: bytes returned by read calls (rchar); from the device: read_bytes; from the page cache: rchar - "
        "read_bytes."
    )
    ahead = sum(1 for _, returned, read in epochs if read > returned)
    if ahead:
        epochs_ahead = "one epoch" if ahead == 1 else f"{ahead} epochs"
        caption += (
            f" In {epochs_ahead} the device delivered more bytes than read calls returned, because the kernel reads "
            "ahead of the calls."
        )
    if left > 0:
        caption += f" {left} later epochs are not shown."
    status = "The byte counts are exact; page faults of mapped files count in read_bytes, but not in rchar."
    blocks.append(Figure(svg, "Bytes read in each epoch, by origin", caption, status))
    return Section("cache", title, blocks)


def _wanted_state(cache: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    """Facts on the requested state of the page cache, and on the sizes of data and memory."""
    if cache is None:
        return []
    when = " before each epoch" if cache["every_epoch"] else ""
    direct = ", read by direct I/O" if cache["direct_io"] else ""
    room = cache["memory_bytes"]
    memory = "" if room is None else f"; the page cache could hold {format_size(room)}"
    return [
        ("requested state", f"{cache['state']}{when}{direct}"),
        ("data", f"{format_size(cache['bytes'])} on {cache['file_system'] or 'an unknown file system'}{memory}"),
    ]


def _staged(stage: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    return [] if stage is None else [("copied to node-local storage", stage_words(stage))]


def _limit(storage: Mapping[str, Any] | None) -> list[tuple[str, str]]:
    return [] if storage is None else [("read rate and storage limit", storage_text(storage))]


def _epochs(summary: Mapping[str, Any]) -> list[tuple[int, int, int]]:
    """Epoch, returned bytes and device bytes, summed over ranks; empty if a rank has no counters."""
    sums: dict[int, list[int]] = {}
    for rank in summary.get("epochs", ()):
        for entry in rank:
            if entry["io"] is None or entry["io"]["read_bytes"] is None:
                return []
            total = sums.setdefault(entry["epoch"], [0, 0])
            total[0] += entry["io"]["rchar"]
            total[1] += entry["io"]["read_bytes"]
    return [(epoch, returned, read) for epoch, (returned, read) in sorted(sums.items()) if returned]


def _size(value: int | None) -> str:
    return NOT_MEASURED if value is None else format_size(value)
