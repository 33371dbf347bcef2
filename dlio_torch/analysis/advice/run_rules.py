"""Rules outside the loader: restarted workers, copies, checkpoints, gradients, evaluation."""

from __future__ import annotations

import math
from collections.abc import Iterator

from dlio_torch.analysis.advice import worker_rules
from dlio_torch.analysis.advice.advice_item import Advice, Predicted
from dlio_torch.analysis.advice.choice import Finding
from dlio_torch.analysis.advice.evidence import LEAST, Evidence
from dlio_torch.analysis.advice.value_text import percent
from dlio_torch.units import format_duration, format_rate, format_size

COSTLY = 0.1
"""Share of the time from which checkpoints, the allreduce or evaluation are worth advice."""
_AIM = 0.05  # share of the time that checkpoints should take
UNEVEN = 0.5
"""Smallest / mean allreduce time of ranks below which ranks wait for each other, not for the network."""
_LATE_S = 2e-4  # mean lateness that any timer may have
_MIN_CHECKPOINTS = 2
_LARGE = 1 << 20  # a gradient whose reduction takes time in proportion to its bytes


def persistent_workers(evidence: Evidence) -> Iterator[Finding]:
    """Workers end and start between epochs."""
    loader, between = evidence.config.loader, evidence.number("shares.between_epochs")
    if between is None or not loader.num_workers or loader.persistent_workers or evidence.config.train.epochs < 2:
        return
    begun = (evidence.part("not_started") or 0.0) * evidence.waits
    if between + begun < LEAST or between < LEAST / 2 or not evidence.allows({"loader.persistent_workers": True}):
        return
    scaled = "; epochs are scaled down here, in whole ones it is less" if evidence.amount_scaled else ""
    yield Advice(
        "persistent_workers",
        "loader.persistent_workers",
        "true",
        f"{percent(between)} of the time goes between epochs, in which {loader.num_workers} workers end and start; "
        "loader.persistent_workers=true keeps them",
        (
            ("shares.between_epochs", between),
            ("stalls.shares.not_started", evidence.part("not_started")),
            ("train.epochs", evidence.config.train.epochs),
        ),
        Predicted(
            figure="shares.between_epochs",
            now=between,
            low=0.0,
            high=None,
            gain_low=None,
            gain_high=between + begun,
            assumption=f"all of that time is the end and the start of workers{scaled}",
        ),
        "low" if evidence.amount_scaled else "medium",
    )


def pinned_memory(evidence: Evidence) -> Iterator[Finding]:
    """Copies from pageable memory to a GPU take much of the time."""
    share, rate = evidence.number("shares.copy"), evidence.number("copies.bytes_per_s")
    if share is None or rate is None or share < LEAST or evidence.config.loader.pin_memory:
        return
    if not evidence.allows({"loader.pin_memory": True}):
        return
    yield Advice(
        "pinned_memory",
        "loader.pin_memory",
        "true",
        f"copying batches to the GPU takes {percent(share)} of the time ({format_rate(rate)}), out of memory that can "
        "be paged; loader.pin_memory=true puts them into page-locked memory, which a GPU reads by itself",
        (("shares.copy", share), ("copies.bytes_per_s", rate)),
        Predicted(
            figure="shares.copy",
            now=share,
            low=0.0,
            high=None,
            gain_low=None,
            gain_high=share,
            assumption="the loader's threads have the time to fill that memory",
        ),
        "medium",
    )


def checkpoints(evidence: Evidence) -> Iterator[Finding]:
    """Checkpoints take much of the time."""
    share, saved = evidence.number("shares.checkpoint"), evidence.config.checkpoint
    if share is None or share < COSTLY:
        return
    if evidence.config.scale.checkpoint != 1 or evidence.config.scale.checkpoint_size != 1:
        yield f"fewer checkpoints: they take {percent(share)} of this run, whose checkpoints are scaled"
        return
    count = int(evidence.number("checkpoints.measured") or 0)
    if count < _MIN_CHECKPOINTS:
        yield f"fewer checkpoints: {count} measured checkpoint is too few"
        return
    name = "every_steps" if saved.every_steps else "every_epochs"
    interval = getattr(saved, name)
    if not interval:
        return
    # The time of checkpoints goes down with their number, the rest of the time stays.
    factor = math.ceil(share * (1 - _AIM) / (_AIM * (1 - share)))
    then = (share / factor) / (1 - share + share / factor)
    each = evidence.number("checkpoints.duration_s.mean")
    key = f"checkpoint.{name}"
    yield Advice(
        "checkpoints",
        key,
        str(interval * factor),
        f"checkpoints take {percent(share)} of the time, {format_duration(each or 0.0)} each; "
        f"{key}={interval * factor} (now {interval}) is predicted to bring that to {percent(then)}, at {factor} times "
        "the work lost in a crash",
        (
            ("shares.checkpoint", share),
            ("checkpoints.measured", count),
            ("checkpoints.duration_s.mean", each),
            ("saved.bytes", evidence.number("saved.bytes")),
        ),
        Predicted(
            figure="shares.checkpoint",
            now=share,
            low=then,
            high=then,
            gain_low=share - share / factor,
            gain_high=share - share / factor,
            assumption="each checkpoint takes as long as now",
        ),
        "medium",
    )


def allreduce(evidence: Evidence) -> Iterator[Finding]:
    """Reducing gradients takes much of the time."""
    share, size = evidence.number("shares.allreduce"), evidence.config.train.allreduce_bytes
    ranks = [rank for rank in evidence.figure("ranks") or () if rank.get("allreduce_s") is not None]
    if share is None or share < COSTLY or len(ranks) < 2:
        return
    times = {int(rank["rank"]): float(rank["allreduce_s"]) for rank in ranks}
    mean, (slowest, least) = sum(times.values()) / len(times), min(times.items(), key=lambda item: item[1])
    figures = (("shares.allreduce", share), ("allreduce_s.mean", mean), ("allreduce_s.least", least))
    if least < UNEVEN * mean:
        yield Advice(
            "uneven_ranks",
            None,
            None,
            f"the allreduce takes {percent(share)} of the time, {format_duration(mean)} a step on average and "
            f"{format_duration(least)} on rank {slowest}: the other ranks wait in it for rank {slowest}",
            (*figures, ("slowest_rank", slowest)),
            Predicted(
                figure="shares.allreduce",
                now=share,
                low=share * least / mean,
                high=None,
                gain_low=None,
                gain_high=share * (1 - least / mean),
                assumption="all ranks are as fast as the others",
            ),
            "medium",
        )
        return
    if evidence.config.scale.allreduce != 1:
        yield f"smaller gradients: the allreduce takes {percent(share)} of this run, whose gradient is scaled"
        return
    if size < _LARGE:
        yield f"smaller gradients: {format_size(size)} take as long as one call of the network, whatever their size"
        return
    yield Advice(
        "allreduce",
        "train.allreduce_bytes",
        str(size // 2),
        f"the allreduce of {format_size(size)} takes {percent(share)} of the time ({format_rate(size / mean)}); "
        f"gradients of half the size (16 bits) would be train.allreduce_bytes={size // 2}",
        (*figures, ("train.allreduce_bytes", size)),
        Predicted(
            figure="shares.allreduce",
            now=share,
            low=(share / 2) / (1 - share / 2),
            high=None,
            gain_low=None,
            gain_high=share / 2,
            assumption="the time goes with the bytes; latency stays",
        ),
        "low",
    )


def evaluation(evidence: Evidence) -> Iterator[Finding]:
    """Evaluation takes much of the time; it is in no other share."""
    spent, trained = evidence.number("eval.elapsed_s"), evidence.number("train.elapsed_s")
    train = evidence.config.train
    if not spent or not trained or spent / (spent + trained) < 2 * COSTLY:
        return
    share = spent / (spent + trained)
    if evidence.amount_scaled:
        yield f"fewer evaluations: they take {percent(share)} of this run, whose amounts of data are scaled"
        return
    name = "eval_every_steps" if train.eval_every_steps else "eval_every_epochs"
    interval = getattr(train, name)
    if not interval:
        return
    then = (spent / 2) / (spent / 2 + trained)
    yield Advice(
        "evaluation",
        f"train.{name}",
        str(2 * interval),
        f"evaluation takes {percent(share)} of the time; train.{name}={2 * interval} (now {interval}) is predicted "
        f"to bring that to {percent(then)}",
        (("eval.elapsed_s", spent), ("train.elapsed_s", trained), ("eval.steps", evidence.number("eval.steps"))),
        Predicted(
            figure="eval.share",
            now=share,
            low=then,
            high=then,
            gain_low=share / 2,
            gain_high=share / 2,
            assumption="each evaluation takes as long as now",
        ),
        "medium",
    )


def late_compute(evidence: Evidence) -> Iterator[Finding]:
    """Emulated compute ran longer than requested: the machine is too busy."""
    share, busy = evidence.number("shares.compute"), evidence.number("au.mean")
    late, steps = evidence.number("compute_error.relative_total"), evidence.number("train.steps")
    requested = evidence.number("compute_error.requested_s.mean")
    if share is None or busy is None or late is None or requested is None or share - busy < LEAST:
        return
    if late * requested < _LATE_S:
        yield f"late compute: {format_duration(late * requested)} a step is what timers are late by"
        return
    gain, model = share - busy, evidence.model
    config, cores = evidence.config, evidence.cores
    threads = config.compute.threads if config.compute.mode == "spin" else 0
    workers = config.loader.num_workers
    cores_of_rank = None if cores is None else max(1, int(cores // evidence.ranks_here))
    room = None if cores_of_rank is None else max(1, cores_of_rank - threads)
    key = value = None
    if cores_of_rank is not None and threads > cores_of_rank:
        key, value = "compute.threads", str(cores_of_rank)
    elif model is not None and room is not None and workers * model.cpu_share > room and not model.taken_by_others:
        if worker_rules.with_workers(model, room).step_s > worker_rules.LONGER * model.modelled.step_s:
            yield f"late compute: {workers} workers have its cores, and {room} are predicted to make steps longer"
            return
        key, value = "loader.num_workers", str(room)
    change = f"{key}={value} leaves it cores" if key else "leave it cores: other programs take them"
    yield Advice(
        "late_compute",
        key,
        value,
        f"emulated compute took {percent(late)} longer than requested, {percent(share - busy)} of the time: the "
        f"machine has more to do than it has cores for ({'not known' if cores is None else f'{cores:g}'}); {change}",
        (
            ("shares.compute", share),
            ("au.mean", busy),
            ("compute_error.relative_total", late),
            ("train.steps", steps),
            ("environment.cpu.cores_usable", cores),
            ("loader.num_workers", workers),
        ),
        Predicted(
            figure="compute_error.relative_total",
            now=late,
            low=0.0,
            high=None,
            gain_low=None,
            gain_high=gain,
            assumption="compute gets the cores that it asks for",
        ),
        "medium",
    )
