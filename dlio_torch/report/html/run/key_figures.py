"""Tiles of the key figures: four for a run, four for recorded I/O calls."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dlio_torch.analysis.run_recording import LIMITS
from dlio_torch.report.html.page_blocks import NOT_MEASURED
from dlio_torch.report.html.run.io_time_figure import KINDS, seconds_by_kind
from dlio_torch.report.html.run.view import View
from dlio_torch.report.utilisation_text import LABELS, allowed
from dlio_torch.train.steps import TIMED
from dlio_torch.units import format_duration, format_number, format_rate, format_size, percent

Tile = tuple[str, str, str]
_OF_TIME = "of the elapsed time of the measured steps"


def run_tiles(view: View) -> list[Tile]:
    """Utilisation, throughput, wait for data and bytes read of a run."""
    summary = view.summary
    assert summary is not None
    train, step = summary["train"], summary["step"]
    tiles = [_utilisation(summary)]
    if train["elapsed_s"] is None:
        tiles += [(NOT_MEASURED, name, str(train["why"] or "")) for name in ("throughput", "wait for data per step")]
    else:
        rate, share = format_rate(train["mib_per_s"] * 2**20), summary["shares"]["fetch"]
        tiles.append(
            (f"{format_number(train['samples_per_s'])} samples/s", "throughput, all ranks", f"{rate} of tensors")
        )
        waited = NOT_MEASURED if share is None else f"{percent(share)} {_OF_TIME}"
        tiles.append((format_duration(step["fetch_s"]["mean"]), "wait for data per step, mean", waited))
    return [*tiles, _bytes_read(summary)]


def _utilisation(summary: Mapping[str, Any]) -> Tile:
    au, name = summary["au"], "accelerator utilisation"
    if au["mean"] is None:
        return NOT_MEASURED, name, str(au["why"])
    interval = au.get("ci95")
    sure = "too few steps for a confidence interval"
    if interval is not None:
        sure = f"{percent(interval[0])} to {percent(interval[1])} with 95 % confidence"
    limits = "".join(f"; {label}: {percent(value)}" for label, value in _limits(summary))
    return percent(au["mean"]), name, f"{sure}; share of the requested compute time in the elapsed time{limits}"


def _limits(summary: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    """Yields the names and values of the known limits of the utilisation."""
    for name in LIMITS:
        if (value := allowed(summary, name)) is not None:
            yield LABELS[name], value


def _bytes_read(summary: Mapping[str, Any]) -> Tile:
    io, saved = summary["io"], summary.get("saved")
    written = ""
    if saved and saved["bytes"]:
        flushed = {True: ", flushed to the device", False: ", not flushed", None: ""}[saved.get("fsync")]
        written = f"; checkpoints written: {format_size(saved['bytes'])}{flushed}"
    if io["rchar_bytes"] is None:
        return NOT_MEASURED, "bytes read in the epochs", f"the kernel counted no read calls of data files{written}"
    device = [rank["from_device"] for rank in io["per_rank"]]
    if io["device_read_share"] is None or any(size is None for size in device):
        origin = "page cache and device cannot be told apart"
    else:
        cached, delivered = format_size(io["rchar_bytes"] - sum(device)), format_size(sum(device))
        origin = f"{cached} from the page cache, {delivered} from the device"
    return format_size(io["rchar_bytes"]), "read in all epochs, all ranks and workers", f"{origin}{written}"


def unfinished_tiles(view: View) -> list[Tile]:
    """Steps, throughput, wait for data and bytes of tensors of a run that did not finish; none without a step."""
    steps = view.training_steps
    if steps is None:
        return []
    ends = steps["start_ns"] + steps[[f"{part}_ns" for part in TIMED]].sum(axis=1)
    by_rank = steps.assign(end_ns=ends).groupby("rank")
    seconds = float((by_rank["end_ns"].max() - by_rank["start_ns"].min()).max()) * 1e-9
    samples, size = int(steps["samples"].sum()), int(steps["bytes"].sum())
    rate = f"{format_number(samples / seconds)} samples/s" if seconds > 0 else NOT_MEASURED
    return [
        (f"{len(steps):,}", "training steps before the run ended", f"all ranks, in {format_duration(seconds)}"),
        (rate, "throughput, all ranks", "until the last recorded step"),
        (format_duration(steps["fetch_ns"].mean() * 1e-9), "wait for data per step, mean", "warm-up included"),
        (format_size(size), "tensors delivered, all ranks", f"{samples:,} samples"),
    ]


def call_tiles(view: View) -> list[Tile]:
    """I/O time, bytes read, bytes written and order of the recorded calls of a program."""
    if not len(view.calls):
        return _counter_tiles(view)
    spent, share = view.io_time, view.io_share
    tiles = [
        (
            format_duration(spent.global_s),
            "time in I/O calls",
            f"{percent(share[0])} of the {share[1]}" if share else "",
        )
    ]
    for kind, done in (("read", "read"), ("write", "written")):
        figures = view.bandwidth[kind]
        rate = "" if figures.bytes_per_s is None else f", {format_rate(figures.bytes_per_s)} during I/O time"
        tiles.append((format_size(figures.bytes), f"{done} by recorded calls", f"{figures.calls:,} calls{rate}"))
    sizes, order = view.sizes["all"], view.order["all"]
    median = NOT_MEASURED if sizes.median is None else format_size(sizes.median)
    remark = ""
    if order.sequential is not None:
        remark = f"{percent(order.sequential)} {view.placed_words or 'of the accesses'} are sequential"
    return [*tiles, (median, "median transfer size", remark)]


def _counter_tiles(view: View) -> list[Tile]:
    """Bytes read and written through the layer with the most, time in calls, and files, from a log's counters."""
    if not view.counted_only:
        return []
    layer, moved = max(view.counted_only.items(), key=lambda item: sum(item[1]))
    others = "; ".join(
        f"{format_size(read)} read, {format_size(written)} written through {other}"
        for other, (read, written) in view.counted_only.items()
        if other != layer
    )
    remark = "known from counters: single calls were not recorded"
    times = seconds_by_kind(view)
    spent = (NOT_MEASURED, "time in I/O calls, all ranks", "")
    if times is not None:
        kind, share = times.largest
        spent = (format_duration(float(times.seconds.sum())), spent[1], f"{percent(share)} in {KINDS[kind]} calls")
    return [
        (format_size(moved[0]), f"read through {layer}", remark),
        (format_size(moved[1]), f"written through {layer}", others),
        spent,
        (f"{view.files['file'].nunique():,}", "files", ""),
    ]
