"""Descriptions of the figures of a trial: name, unit, better direction and definition."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Direction = Literal["higher", "lower", "neither"]


@dataclass(frozen=True)
class Metric:
    """A figure that every trial has.

    Args:
        key: its name in a trial's figures: the column of ``table.csv``, the dotted name in ``summary.json``.
        label: its name for people.
        unit: ``"s"`` (a duration), ``"B/s"`` (a rate of bytes), ``"share"`` (0 to 1), ``"B"`` (bytes), or any other
            text, which is set behind the number.
        better: which direction is better; ``neither`` for a figure that tells the state, such as the cache's.
        definition: how it is computed, a sentence without its full stop.
        counted: whether it is a count that is the same in every run of a setting, so that one run tells it.
    """

    key: str
    label: str
    unit: str
    better: Direction
    definition: str
    counted: bool = False


THROUGHPUT = Metric(
    "train.samples_per_s",
    "throughput",
    "samples/s",
    "higher",
    "samples of all ranks / elapsed time of the measured steps",
)
ELAPSED = Metric("train.elapsed_s", "elapsed time", "s", "lower", "time of the measured steps")
AU = Metric(
    "au.mean", "accelerator utilisation", "share", "higher", "requested compute time / elapsed time, mean of ranks"
)
AU_LIMIT_OF_LOADER = Metric(
    "au_limit_of_loader.mean",
    "limit of the loader",
    "share",
    "higher",
    "accelerator utilisation of the same steps with loader.replay=reads, so that reads cost nothing, mean of ranks",
)
AU_OF_STORAGE = Metric(
    "au_of_storage.mean",
    "limit of the storage",
    "share",
    "higher",
    "accelerator utilisation that the run's requests and prefetching allow with a loader that costs nothing, mean of "
    "ranks",
)
FETCH = Metric("step.fetch_s.mean", "wait for data", "s", "lower", "mean time of next() per measured step, all ranks")
FETCH_SHARE = Metric("shares.fetch", "share of time waiting for data", "share", "lower", "wait for data / elapsed time")
STEP = Metric("step.duration_s.mean", "step", "s", "lower", "mean duration of a measured step")
RATE = Metric("train.bytes_per_s", "rate of tensors", "B/s", "higher", "bytes of all batches / elapsed time")
DEVICE_SHARE = Metric(
    "io.device_read_share",
    "bytes from the device",
    "share",
    "neither",
    "bytes that the device delivered / bytes that read calls returned, at most 1; all ranks",
)
STORAGE_RATE = Metric(
    "storage.bytes_per_s",
    "rate of reading",
    "B/s",
    "neither",
    "bytes that the device delivered (that read calls returned, where the page cache served them) / time of the "
    "epochs, all ranks",
)
STORAGE_LIMIT = Metric(
    "storage.limit_bytes_per_s",
    "storage limit",
    "B/s",
    "neither",
    "measured rate of reads of the same size, order and number of readers in the same directory",
)
STORAGE_SHARE = Metric(
    "storage.share", "share of the storage limit", "share", "neither", "rate of reading / storage limit"
)
CPU = Metric("trial.cpu_s", "CPU time of a run", "s", "lower", "user and system time of all processes of a run")
METRICS = (
    *(THROUGHPUT, AU, AU_LIMIT_OF_LOADER, AU_OF_STORAGE, FETCH, STEP, RATE),
    *(DEVICE_SHARE, STORAGE_RATE, STORAGE_LIMIT, STORAGE_SHARE),
)
"""Metrics on the page of a sweep that names none; metrics that no trial has are left out."""

_OTHERS = (
    ELAPSED,
    FETCH_SHARE,
    CPU,
    Metric(
        "trial.peak_rss_bytes", "peak memory of a process", "B", "lower", "largest resident set of any process of a run"
    ),
    Metric(
        "reads.bytes_per_sample",
        "bytes read per sample",
        "B",
        "neither",
        "bytes that read calls returned (rchar) / samples delivered",
        counted=True,
    ),
    Metric(
        "reads.calls_per_sample",
        "read calls per sample",
        "",
        "neither",
        "read calls (syscr) / samples delivered",
        counted=True,
    ),
    Metric(
        "goodput.lost_share_at_interval",
        "time lost to checkpoints and failures",
        "share",
        "lower",
        "expected share of time that saves and failures cost at the configured interval of saves (checkpoint.mtbf_s)",
    ),
    Metric(
        "goodput.lost_share",
        "time lost at the best interval",
        "share",
        "lower",
        "expected share of time that saves and failures cost at the best interval of saves (checkpoint.mtbf_s)",
    ),
    Metric(
        "goodput.best_interval_s",
        "best interval of saves",
        "s",
        "neither",
        "time between the beginnings of two saves at which the lost share is smallest",
    ),
    Metric(
        "checkpoints.save.stall_s.mean",
        "stall of a save",
        "s",
        "lower",
        "mean time for which training stands still for a save, on its slowest rank",
    ),
    Metric(
        "checkpoints.save.durable_s.mean",
        "time until a save is durable",
        "s",
        "lower",
        "mean time from the begin of a save until its files are complete, on its slowest rank",
    ),
    Metric(
        "checkpoints.save.bytes_per_s.mean",
        "rate of saves",
        "B/s",
        "higher",
        "mean of the bytes of a checkpoint / time of the slowest rank until it is durable, all ranks",
    ),
    Metric(
        "checkpoints.restore.bytes_per_s.mean",
        "rate of restores",
        "B/s",
        "higher",
        "mean of the bytes of a checkpoint / time in which the slowest rank read it, all ranks",
    ),
    Metric(
        "checkpoints.slowdown",
        "slowdown by saves",
        "share",
        "lower",
        "median duration of steps during saves in the background / that of undisturbed steps - 1",
    ),
    Metric(
        "checkpoints.fetch_slowdown",
        "longer waits for data by saves",
        "share",
        "lower",
        "median wait for data of steps during saves in the background / that of undisturbed steps - 1",
    ),
    Metric(
        "checkpoints.peak_host_bytes",
        "memory of saves",
        "B",
        "lower",
        "largest memory above the level before a save while saves run, of the rank with the most",
    ),
    Metric("reads.mean_bytes", "mean size of a read call", "B", "neither", "rchar / syscr", counted=True),
)
_KNOWN = {item.key: item for item in (*METRICS, *_OTHERS)}


def metric(name: str) -> Metric:
    """Returns the metric for a dotted name of ``summary.json``; an unknown metric gets this name as its label."""
    known = _KNOWN.get(name)
    return Metric(name, name, _unit(name), "neither", "") if known is None else known


def _unit(name: str) -> str:
    if name.startswith(("shares.", "au.", "au_")) or name.endswith("share"):
        return "share"
    if name.endswith("bytes_per_s"):
        return "B/s"
    if any(part.endswith("_s") and not part.endswith("_per_s") for part in name.split(".")):
        return "s"
    if name.endswith("bytes"):
        return "B"
    return name.rpartition(".")[2].removesuffix("_per_s").replace("_", " ") + "/s" if name.endswith("_per_s") else ""
