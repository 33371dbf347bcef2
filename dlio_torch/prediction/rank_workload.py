"""Derives the load that one rank of a measured run puts on the machine: the input of the simulation.

Of each batch the making is cut in two: what the thread was blocked for while it read, which is the measured
storage's and is left out where a described one takes its place, and the rest, which needs a core.  Bytes and requests
are those of the recorded calls where there are any (``trace.posix=true``), else the kernel's counts per sample.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from dlio_torch.analysis.advice.batch_times import RankTimes, rank_times
from dlio_torch.analysis.advice.evidence import loader_setup_of
from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.analysis.producers import Floats
from dlio_torch.config.schema import Config
from dlio_torch.data.engines import registry as engines
from dlio_torch.errors import PreconditionError
from dlio_torch.formats.core.registry import facts
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.prediction.batch_calls import Calls, calls_of
from dlio_torch.prediction.predicted_saves import Checkpoint, checkpoint_of
from dlio_torch.train.steps import TRAIN, Steps
from dlio_torch.units import percent

_CACHED = 0.01  # share of the bytes from the device up to which a run read from memory


@dataclass(frozen=True)
class RankWorkload:
    """Load of one rank, as means or batch by batch; times in seconds.

    Attributes:
        samples: of a batch, over all steps that it serves.
        cpu: of each measured batch, making it on a core.
        locked: share of that in which the thread holds a lock that the rank's others need; 0: there is none.
        blocked: of each measured batch, time that making it was blocked and that stays, whatever the storage.
        slept: the same with the measured storage's part.
        compute: of each measured batch, the emulated compute of the steps that it serves.
        after: of each measured batch, the tool's own time behind the steps.
        compute_ratio: requested / achieved compute time; None: no compute was emulated.
        serial: of a transfer, the trainer's part.
        sending: of a transfer, what the producer does beside its next batch.
        setup: the threads or workers that produce batches.
        bytes: that a batch reads.
        requests: read calls of a batch.
        in_order: whether they follow one another in the file, so that reading ahead joins them.
        opens: files that a batch opens, in the long run.
        first_opens: files that a producer opens as it begins.
        header_requests: reads that the opening of a file takes; None: not recorded.
        load_bytes: that a rank reads into memory before the first step.
        files: of the data set.
        stored_bytes: of a sample in its file; 0: not known.
        epoch_samples: of an epoch, over all ranks.
        global_batch: samples of all ranks' batch where that is fixed; 0: each rank's is.
        ranks: of the measured run.
        barrier: whether ranks wait for each other in each step.
        allreduce_bytes: gradient of the steps that a batch serves.
        checkpoint: None: nothing is saved.
        measured: figures of the run itself: ``samples_per_s``, ``au``, ``wait_share``, ``between_epochs``.
        notes: remarks on the origin of these figures, one sentence each.
    """

    samples: float
    cpu: Floats
    locked: float
    blocked: Floats
    slept: Floats
    compute: Floats
    after: Floats
    compute_ratio: float | None
    serial: float
    sending: float
    setup: LoaderSetup
    bytes: float
    requests: float
    in_order: bool
    opens: float
    first_opens: float
    header_requests: float | None
    load_bytes: float
    files: int
    stored_bytes: float
    epoch_samples: int
    global_batch: int
    ranks: int
    barrier: bool
    allreduce_bytes: float
    checkpoint: Checkpoint | None
    measured: Mapping[str, float | None]
    notes: tuple[str, ...]


def workload_of(
    config: Config, summary: Mapping[str, Any], recording: Recording, steps: Mapping[int, Steps]
) -> RankWorkload:
    """Derives the workload of one rank from a finished run.

    Args:
        config: its resolved configuration.
        summary: content of its ``summary.json``.
        recording: its events.
        steps: records of its steps, by rank.

    Raises:
        PreconditionError: the run did not record what the simulation needs, or read in a way that it does not know.
    """
    _refuse(config, summary)
    times = rank_times(recording, steps)
    if times is None or not any(epoch.measured.any() for epoch in times):
        raise PreconditionError(
            f"{recording.path}: the spans of the run's batches are missing or do not match its steps",
            hint="repeat the run with trace.spans=true",
        )
    calls = calls_of(recording, config)
    train = np.concatenate([records[records["phase"] == TRAIN] for records in steps.values()])
    per_batch = float(np.concatenate([epoch.steps[epoch.measured] for epoch in times]).mean())
    samples = float(train["samples"].mean()) * per_batch
    cpu, blocked, notes = _making(times, summary)
    size, requests, read_from = _reads(summary, calls, samples)
    known = [epoch.transfer[0] for epoch in times if epoch.transfer is not None]
    requested, achieved = float(train["requested_ns"].sum()), float(train["compute_ns"].sum())
    files, epoch_samples = _amount(config, summary)
    opens, first_opens = _opens(config, calls, samples / per_batch, several=epoch_samples > files)
    return RankWorkload(
        samples=samples,
        cpu=cpu,
        locked=_locked(config, times),
        blocked=blocked,
        slept=np.nan_to_num(_joined(times, "asleep")),
        compute=_joined(times, "before"),
        after=_after(times, config),
        compute_ratio=requested / achieved if requested > 0 and achieved > 0 else None,
        serial=float(np.median([transfer.serial for transfer in known])) if known else 0.0,
        sending=float(np.median([transfer.sending for transfer in known])) if known else 0.0,
        setup=loader_setup_of(config),
        bytes=size,
        requests=requests,
        in_order=_in_order(config, summary),
        opens=opens,
        first_opens=first_opens,
        header_requests=calls.header_requests,
        load_bytes=_mean(summary["load"]["bytes"]),
        files=files,
        stored_bytes=summary["cache"]["bytes"] / epoch_samples if summary.get("cache") and epoch_samples else 0.0,
        epoch_samples=epoch_samples,
        global_batch=config.train.batch_size if config.train.batch_scope == "global" else 0,
        ranks=int(summary["world_size"]),
        barrier=config.train.allreduce_bytes > 0,
        allreduce_bytes=config.train.allreduce_bytes * per_batch,
        checkpoint=checkpoint_of(config, summary),
        measured={
            "samples_per_s": summary["train"]["samples_per_s"],
            "au": summary["au"]["mean"],
            "wait_share": summary["shares"]["fetch"],
            "between_epochs": summary["shares"]["between_epochs"],
        },
        notes=(*notes, read_from),
    )


def _refuse(config: Config, summary: Mapping[str, Any]) -> None:
    source = "of the measured run"
    if not summary["train"]["samples_per_s"]:
        raise PreconditionError(
            (f"the measured run has no measured steps: {summary['train']['why']}"),
            hint=("repeat the run with more steps"),
        )
    if not config.trace.spans:
        raise PreconditionError(
            f"trace.spans=false ({source}): the production times of batches were not recorded",
            hint=("repeat the run with trace.spans=true"),
        )
    if config.loader.replay != "none":
        raise PreconditionError(
            f"loader.replay={config.loader.replay} ({source}): this run left out the cost of its reads",
            hint="repeat the run with loader.replay=none, and predict from the new run",
        )
    if engines.facts(config.loader.engine).counts_bytes(config.loader):
        raise PreconditionError(
            f"loader.engine={config.loader.engine} ({source}): this engine reads ahead by bytes, which the "
            "simulation does not support",
            hint="repeat the run with loader.engine=dataloader",
        )


def _making(times: list[RankTimes], summary: Mapping[str, Any]) -> tuple[Floats, Floats, list[str]]:
    """Seconds per batch on a core, seconds blocked by something other than storage, and remarks on both."""
    production, asleep = _joined(times, "production"), _joined(times, "asleep")
    share = summary["io"]["device_read_share"]
    device = "it is not known how much the device delivered"
    if share is not None:
        device = f"the device delivered {percent(share, 0)} of the bytes"
    if np.isnan(asleep).any():
        note = (
            f"the blocked time of batch production was not recorded ({device}): all {production.mean() * 1e3:.3g} ms "
            "count as CPU time"
        )
        return np.nan_to_num(production), np.zeros(production.size), [note]
    cpu, blocked = np.maximum(production - asleep, 0), np.minimum(asleep, production)
    spent = f"producing a batch took {cpu.mean() * 1e3:.3g} ms on a core and {blocked.mean() * 1e3:.3g} ms blocked"
    if share is not None and share <= _CACHED:
        said = (
            f"{spent}; {device}: the run read from the page cache, so both times remain, and the described storage's "
            "time is added"
        )
        return cpu, blocked, [said]
    said = (
        f"{spent}; {device}: the blocked time counts as storage time and is replaced by the time of the described "
        "storage"
    )
    return cpu, np.zeros(production.size), [said]


def _reads(summary: Mapping[str, Any], calls: Calls, samples: float) -> tuple[float, float, str]:
    if calls.requests is not None and calls.bytes is not None:
        return calls.bytes, calls.requests, "bytes and requests per batch come from the recorded read calls"
    reads = summary["reads"]
    if reads["bytes_per_sample"] is None:
        return 0.0, 0.0, "no batch read from files"
    said = (
        "bytes and requests per batch come from the kernel's counters, which include a few reads of the trainer; "
        "set trace.posix=true in the measured run to exclude them"
    )
    return reads["bytes_per_sample"] * samples, max(1.0, reads["calls_per_sample"] * samples), said


def _amount(config: Config, summary: Mapping[str, Any]) -> tuple[int, int]:
    """Number of files and samples of the training data."""
    layout = summary["dataset"]["layout"]  # of existing data
    if layout is not None:
        return max(1, int(layout["files"])), int(layout["samples"])
    return max(1, config.dataset.num_files), config.dataset.num_files * config.dataset.samples_per_file


def _opens(config: Config, calls: Calls, samples: float, *, several: bool) -> tuple[float, float]:
    """Files that a batch opens in the long run, and files that a producer opens at its start.

    Where the few files of a small run stay open, its counts would tell of its size and not of its access.
    """
    kept = facts(config.dataset.format).keeps_files(config) and calls.files <= config.loader.max_open_files
    if config.access.pattern != "samples" or not calls.files or not kept:
        return calls.opens, max(0.0, calls.first_opens - calls.opens)
    return (0.0, calls.files_of_producer) if several else (samples, 0.0)


def _locked(config: Config, times: list[RankTimes]) -> float:
    """Share of production during which the rank's other threads cannot read."""
    one_lock = facts(config.dataset.format).one_lock and not config.loader.in_memory
    if loader_setup_of(config).by != "threads" or not (one_lock or any(epoch.turns for epoch in times)):
        return 0.0
    production, read = _joined(times, "production"), _joined(times, "read")
    return float(np.clip(np.nan_to_num(read).sum() / max(production.sum(), 1e-12), 0, 1))


def _after(times: list[RankTimes], config: Config) -> Floats:
    after = _joined(times, "after")
    # Checkpoints are inside; they are simulated apart.
    return after if config.checkpoint.layout == "none" else np.full(after.size, np.median(after))


def _in_order(config: Config, summary: Mapping[str, Any]) -> bool:
    storage = summary.get("storage") or {}
    if storage.get("pattern") is not None:
        return bool(storage["pattern"] == "sequential")
    return config.access.pattern != "samples" or config.access.order == "sequential"


def _joined(times: list[RankTimes], name: str) -> Floats:
    joined: Floats = np.concatenate([getattr(epoch, name)[epoch.measured] for epoch in times])
    return joined


def _mean(values: list[int | None]) -> float:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else 0.0
