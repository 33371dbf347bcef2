"""Computes the figures of a run from the records of its steps, for ``summary.json``.

Definitions, for the *measured* steps of one rank (phase ``train``; warm-up and evaluation are left out)::

    duration of a step   start of the next step of the epoch - its own start; of the last one, and of
                         one before an evaluation: fetch + copy + compute + allreduce + checkpoint
    measured intervals   from the start of the first measured step to the end of the last, without the
                         evaluations of this rank and without its pauses, in which the page cache is
                         prepared.  The time before an epoch's first step, in which loaders are
                         started again, is inside
    elapsed              length of the measured intervals
    au                   sum of the requested compute times / elapsed
                         (accelerator utilisation as MLPerf Storage defines it: total compute time /
                         total time; requested, because a timer that is late is not a busy accelerator)
    other                duration - fetch - copy - compute - allreduce - checkpoint: the tool's own time, of the
                         steps after which another one begins; what follows the last one is not seen
    between_epochs       elapsed - sum of the durations: before the first step of an epoch, and from
                         an evaluation to the next step
    share of a part      its sum / elapsed; the shares add up to 1

Over all ranks: ``elapsed_s`` is the length of the union of the ranks' measured intervals (of the longest
rank, where their clocks turn out to have nothing in common), samples and bytes are sums, ``au`` and
shares are means over ranks.  ``None`` (JSON ``null``) means not measured.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from dlio_torch.analysis.batch_means import ratio_interval
from dlio_torch.analysis.distribution import distribution
from dlio_torch.analysis.rank_steps import PARTS, RankSteps, elapsed_ns
from dlio_torch.config.schema import Config
from dlio_torch.train.result import CopyTimes
from dlio_torch.train.steps import EVAL, TRAIN, WARMUP, Steps

__all__ = ["PARTS", "SCHEMA", "SHARES", "VERSION", "summarise"]

SCHEMA = "dlio_torch.summary"
VERSION = "1"
SHARES = (*PARTS, "between_epochs")

_MIB = 1024.0 * 1024.0
_S = 1e-9


def summarise(
    steps_by_rank: Sequence[Steps], *, config: Config, extra: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """Computes the content of ``summary.json``: plain values, no NaN.

    Args:
        steps_by_rank: records of each rank in the order of ranks, each in the order of time.
        config: the resolved configuration of the run.
        extra: what the caller counted.  Four keys are read here, all others are passed through:
            ``io``: for each rank ``{"rchar": bytes asked for by read calls, "read_bytes": bytes the
            device delivered, "from_device": how many of the former it delivered (see
            :mod:`dlio_torch.analysis.cache`), "cached_share": share of the data set in the page cache before
            the run}``, each of them or the whole entry ``None`` where unknown; ``clock_offset_ns``: for each rank what
            to add to its ``start_ns`` to bring all ranks on one clock (none: they share a clock);
            ``copies_ahead``: for each rank its copies to a GPU that ran ahead of their steps, or ``None``;
            ``pauses``: for each rank begin and end of the times between epochs that count nowhere, on its clock.

    Returns:
        A dict with ``schema``, ``version``, ``recipe``, ``description``, ``scale``, ``seed``,
        ``world_size``, ``compute``, ``warmup``, ``train``, ``eval``, ``au``, ``step``, ``shares``,
        ``copies``, ``copies_ahead``, ``checkpoints``, ``compute_error``, ``ranks``, ``io`` and what else
        ``extra`` holds.
    """
    given = dict(extra or {})
    io = given.pop("io", None)
    offsets = given.pop("clock_offset_ns", None)
    offsets = offsets or [0] * len(steps_by_rank)
    ahead = given.pop("copies_ahead", None) or ()
    pauses = given.pop("pauses", None) or [()] * len(steps_by_rank)
    ranks = [RankSteps(*rank) for rank in zip(steps_by_rank, offsets, pauses, strict=True)]
    measured = [rank for rank in ranks if rank.train.size and rank.elapsed_ns > 0]
    why = None if measured else _why_nothing(ranks)
    emulated = any(rank.requested_ns > 0 for rank in ranks)
    au = [rank.au if emulated else None for rank in ranks]
    known = [value for value in au if value is not None]
    return {
        "schema": SCHEMA,
        "version": VERSION,
        "recipe": config.recipe,
        "description": config.description,
        "scale": config.scale.name,
        "seed": config.seed,
        "world_size": len(ranks),
        "compute": {"mode": config.compute.mode, "emulated": emulated},
        "warmup": _phase(ranks, WARMUP),
        "train": {**_phase(ranks, TRAIN), "why": why},
        "eval": _phase(ranks, EVAL),
        "au": {
            "mean": float(np.mean(known)) if known else None,
            "min": min(known, default=None),
            "ci95": _au_interval(measured, known),
            "per_rank": au,
            "definition": "requested compute time / elapsed time of the measured steps",
            "why": why or (None if emulated else "no compute was emulated"),
        },
        "step": _breakdown(measured, config),
        "shares": _shares(measured, config),
        "copies": _copies(measured, config),
        "copies_ahead": _copies_ahead(ranks, ahead),
        "checkpoints": _checkpoints(measured),
        "compute_error": _compute_error(measured),
        "ranks": [_rank_row(number, rank, au[number], config) for number, rank in enumerate(ranks)],
        "io": _io(io, len(ranks)),
        **given,
    }


def _au_interval(measured: Sequence[RankSteps], known: Sequence[float]) -> list[float] | None:
    """Confidence interval of the mean utilisation, see :func:`ratio_interval`."""
    if not known:
        return None
    computed = [rank.train["requested_ns"] * _S for rank in measured]
    return ratio_interval(computed, [rank.train_duration * _S for rank in measured], float(np.mean(known)))


def _phase(ranks: Sequence[RankSteps], phase: int) -> dict[str, Any]:
    steps, samples, size = [], 0, 0
    for rank in ranks:
        chosen = rank.of_phase(phase)
        steps.append(int(chosen.size))
        samples += int(chosen["samples"].sum())
        size += int(chosen["bytes"].sum())
    elapsed = elapsed_ns([rank.intervals(phase) for rank in ranks]) * _S
    rate = 1 / elapsed if elapsed > 0 else None
    return {
        "steps": max(steps, default=0),
        "samples": samples,
        "bytes": size,
        "elapsed_s": elapsed if elapsed > 0 else None,
        "samples_per_s": samples * rate if rate else None,
        "mib_per_s": size / _MIB * rate if rate else None,
    }


def _breakdown(measured: Sequence[RankSteps], config: Config) -> dict[str, Any]:
    rows: dict[str, Any] = {
        "duration_s": time_figures(np.concatenate([rank.train_duration for rank in measured]) if measured else None)
    }
    for part in PARTS:
        values = np.concatenate([rank.part(part) for rank in measured]) if _was_done(part, measured, config) else None
        rows[f"{part}_s"] = time_figures(values)
    return rows


def _shares(measured: Sequence[RankSteps], config: Config) -> dict[str, float | None]:
    shares: dict[str, float | None] = dict.fromkeys(SHARES)
    if not measured:
        return shares
    for part in PARTS:
        if _was_done(part, measured, config):
            shares[part] = float(np.mean([rank.part(part).sum() / rank.elapsed_ns for rank in measured]))
    gaps = [(rank.elapsed_ns - rank.train_duration.sum()) / rank.elapsed_ns for rank in measured]
    shares["between_epochs"] = float(np.mean(gaps))
    return shares


def _was_done(part: str, measured: Sequence[RankSteps], config: Config) -> bool:
    """Whether the run had this part of a step; a part that the run did not have is not measured, not 0."""
    configured = {
        "copy": config.train.device != "cpu",
        "compute": config.compute.emulated,
        "allreduce": config.train.allreduce_bytes > 0,
        "checkpoint": config.checkpoint.layout != "none",
        "other": any(rank.followed.any() for rank in measured),
    }.get(part, True)
    return bool(measured) and (configured or any(rank.part(part).any() for rank in measured))


def _checkpoints(measured: Sequence[RankSteps]) -> dict[str, Any]:
    times = np.concatenate([rank.part("checkpoint") for rank in measured]) if measured else np.zeros(0, dtype=np.int64)
    saved = times[times > 0]
    return {"measured": int(saved.size), "duration_s": time_figures(saved)}


def _copies(measured: Sequence[RankSteps], config: Config) -> dict[str, Any] | None:
    """Rate of batch copies to a GPU: bytes over the time until the GPU held them, mean over ranks."""
    if config.loader.prefetch_to_device or config.loader.read_to == "device":
        return None  # a step starts other copies and waits for the rest of its own, or copies nothing
    rates, times = [], []
    for rank in measured:
        copied = rank.train[rank.part("copy") > 0]  # a batch that serves several steps is copied in the first
        if copied.size:
            rates.append(float(copied["bytes"].sum() / (copied["copy_ns"].sum() * _S)))
            times.append(copied["copy_ns"])
    return {"bytes_per_s": float(np.mean(rates)), "duration_s": time_figures(np.concatenate(times))} if rates else None


def _copies_ahead(ranks: Sequence[RankSteps], copies: Sequence[CopyTimes | None]) -> dict[str, Any] | None:
    """Copies of batches ahead of their steps, of all steps: rate on the GPU, and time that no step waited for."""
    if not (times := [each for each in copies if each is not None and each.ns]):
        return None
    ns, size = np.concatenate([np.asarray(each.ns) for each in times]), sum(sum(each.sizes) for each in times)
    waited = sum(int(rank.steps["copy_ns"][rank.phase != EVAL].sum()) for rank in ranks)
    return {
        "batches": int(ns.size),
        "bytes": size,
        "bytes_per_s": size / (float(ns.sum()) * _S) if ns.any() else None,
        "duration_s": time_figures(ns),
        "hidden_share": max(0.0, 1 - waited / float(ns.sum())) if ns.any() else None,
    }


def _compute_error(measured: Sequence[RankSteps]) -> dict[str, Any] | None:
    """Achieved minus requested compute time of the steps that requested any."""
    requested = np.concatenate([rank.part("requested") for rank in measured]) if measured else np.zeros(0)
    computing = requested > 0
    if not computing.any():
        return None
    requested = requested[computing]
    error = np.concatenate([rank.part("compute") for rank in measured])[computing] - requested
    size = np.abs(error)
    return {
        "requested_s": time_figures(requested),
        "median_s": float(np.median(error)) * _S,
        "p95_abs_s": float(np.percentile(size, 95)) * _S,
        "max_abs_s": float(size.max()) * _S,
        "relative_median": float(np.median(error / requested)),
        "relative_p95_abs": float(np.percentile(size / requested, 95)),
        "relative_max_abs": float((size / requested).max()),
        "relative_total": float(error.sum() / requested.sum()),
    }


def _rank_row(number: int, rank: RankSteps, au: float | None, config: Config) -> dict[str, Any]:
    elapsed = rank.elapsed_ns * _S
    row: dict[str, Any] = {
        "rank": number,
        "steps": int(rank.train.size),
        "samples": int(rank.train["samples"].sum()),
        "bytes": int(rank.train["bytes"].sum()),
        "elapsed_s": elapsed or None,
        "samples_per_s": int(rank.train["samples"].sum()) / elapsed if elapsed else None,
        "au": au,
    }
    for part in PARTS:
        values = rank.part(part)
        done = values.size and _was_done(part, [rank], config)
        row[f"{part}_s"] = float(values.mean()) * _S if done else None
    return row


def _io(counters: Sequence[Mapping[str, Any] | None] | None, world_size: int) -> dict[str, Any]:
    """Bytes that read calls returned, and bytes that the device delivered."""
    rows = list(counters or [None] * world_size)

    def total(key: str) -> int | None:
        values = [None if row is None else row.get(key) for row in rows]
        return None if not values or any(value is None for value in values) else int(sum(v for v in values if v))

    requested, delivered, of_them = total("rchar"), total("read_bytes"), total("from_device")
    shares = [None if row is None else row.get("cached_share") for row in rows]
    cached = [float(share) for share in shares if share is not None]
    return {
        "rchar_bytes": requested,
        "read_bytes": delivered,
        "device_read_share": of_them / requested if requested and of_them is not None else None,
        "cached_share_before": float(np.mean(cached)) if cached else None,
        "per_rank": [None if row is None else dict(row) for row in rows],
    }


def time_figures(nanoseconds: NDArray[Any] | None) -> dict[str, float] | None:
    """Mean, median, 95th percentile (linear interpolation) and maximum, in seconds."""
    return distribution(nanoseconds, _S)


def _why_nothing(ranks: Sequence[RankSteps]) -> str:
    warmup = sum(int((rank.phase == WARMUP).sum()) for rank in ranks)
    if warmup:
        return f"all {warmup} training steps were warm-up; lower train.warmup_steps or train for more steps"
    return "the run ended before its first step"
