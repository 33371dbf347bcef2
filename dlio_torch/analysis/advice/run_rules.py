"""Rules on costs outside the loader: restarted workers, copies to GPUs, allreduce, evaluation."""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.analysis.advice import worker_rules
from dlio_torch.analysis.advice.advice_item import Advice, Predicted
from dlio_torch.analysis.advice.choice import Finding
from dlio_torch.analysis.advice.evidence import LEAST, Evidence
from dlio_torch.units import format_duration, format_rate, format_size, percent

COSTLY = 0.1
"""Share of the time above which checkpoints, the allreduce or evaluation are worth advice."""
UNEVEN = 0.5
"""Ratio of smallest to mean allreduce time of ranks; below it, ranks wait for a slow rank, not for the network."""
_LATE_S = 2e-4  # mean lateness that any timer may have
_LARGE = 1 << 20  # a gradient whose reduction takes time in proportion to its bytes


def persistent_workers(evidence: Evidence) -> Iterator[Finding]:
    """Rule on workers that end and start again between epochs."""
    loader, between = evidence.config.loader, evidence.number("shares.between_epochs")
    if between is None or not loader.num_workers or loader.persistent_workers or evidence.config.train.epochs < 2:
        return
    begun = (evidence.part("not_started") or 0.0) * evidence.waits
    if between + begun < LEAST or between < LEAST / 2 or not evidence.allows({"loader.persistent_workers": True}):
        return
    scaled = (
        ("; the scale shortens the epochs of this run, so the share is smaller in full epochs")
        if evidence.amount_scaled
        else ""
    )
    yield Advice(
        "persistent_workers",
        "loader.persistent_workers",
        "true",
        f"{percent(between)} of the time passes between epochs, when {loader.num_workers} workers end and start "
        "again; loader.persistent_workers=true keeps the workers",
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
            assumption=f"workers that end and start again take all of the time between epochs{scaled}",
        ),
        "low" if evidence.amount_scaled else "medium",
    )


def pinned_memory(evidence: Evidence) -> Iterator[Finding]:
    """Rule on slow copies from pageable memory to a GPU."""
    share, rate = evidence.number("shares.copy"), evidence.number("copies.bytes_per_s")
    if share is None or rate is None or share < LEAST or evidence.config.loader.pin_memory:
        return
    if not evidence.allows({"loader.pin_memory": True}):
        return
    yield Advice(
        "pinned_memory",
        "loader.pin_memory",
        "true",
        f"copying batches to the GPU takes {percent(share)} of the time ({format_rate(rate)}), because they lie in "
        "pageable memory; loader.pin_memory=true puts batches into page-locked memory, which a GPU reads without "
        "the CPU",
        (("shares.copy", share), ("copies.bytes_per_s", rate)),
        Predicted(
            figure="shares.copy",
            now=share,
            low=0.0,
            high=None,
            gain_low=None,
            gain_high=share,
            assumption="the loader's threads have enough time to copy batches into page-locked memory",
        ),
        "medium",
    )


def allreduce(evidence: Evidence) -> Iterator[Finding]:
    """Rule on an allreduce that takes much of the time."""
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
            f"the allreduce takes {percent(share)} of the time, {format_duration(mean)} per step on average but "
            f"{format_duration(least)} on rank {slowest}: in the allreduce, the other ranks wait for the slow rank "
            f"{slowest}",
            (*figures, ("slowest_rank", slowest)),
            Predicted(
                figure="shares.allreduce",
                now=share,
                low=share * least / mean,
                high=None,
                gain_low=None,
                gain_high=share * (1 - least / mean),
                assumption=f"rank {slowest} becomes as fast as the others",
            ),
            "medium",
        )
        return
    if evidence.config.scale.allreduce != 1:
        yield (
            f"smaller gradients: the allreduce takes {percent(share)} of this run's time, but the scale changes the "
            "size of its gradient"
        )
        return
    if size < _LARGE:
        yield f"smaller gradients: the allreduce of {format_size(size)} is limited by network latency, not by its size"
        return
    yield Advice(
        "allreduce",
        "train.allreduce_bytes",
        str(size // 2),
        f"the allreduce of {format_size(size)} takes {percent(share)} of the time ({format_rate(size / mean)}); "
        f"train.allreduce_bytes={size // 2} emulates gradients of half the size (16 bits)",
        (*figures, ("train.allreduce_bytes", size)),
        Predicted(
            figure="shares.allreduce",
            now=share,
            low=(share / 2) / (1 - share / 2),
            high=None,
            gain_low=None,
            gain_high=share / 2,
            assumption="the time of the allreduce is proportional to its bytes; its latency does not change",
        ),
        "low",
    )


def evaluation(evidence: Evidence) -> Iterator[Finding]:
    """Rule for runs that spend much of their time on evaluation, which the shares of a training step leave out."""
    spent, trained = evidence.number("eval.elapsed_s"), evidence.number("train.elapsed_s")
    train = evidence.config.train
    if not spent or not trained or spent / (spent + trained) < 2 * COSTLY:
        return
    share = spent / (spent + trained)
    if evidence.amount_scaled:
        yield (
            f"fewer evaluations: they take {percent(share)} of this run's time, but the scale changes its amount of "
            "data"
        )
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
        f"to reduce this share to {percent(then)}",
        (("eval.elapsed_s", spent), ("train.elapsed_s", trained), ("eval.steps", evidence.number("eval.steps"))),
        Predicted(
            figure="eval.share",
            now=share,
            low=then,
            high=then,
            gain_low=share / 2,
            gain_high=share / 2,
            assumption="each evaluation takes as long as in this run",
        ),
        "medium",
    )


def late_compute(evidence: Evidence) -> Iterator[Finding]:
    """Rule on emulated compute that ran longer than requested, because the machine is too busy."""
    share, busy = evidence.number("shares.compute"), evidence.number("au.mean")
    late, steps = evidence.number("compute_error.relative_total"), evidence.number("train.steps")
    requested = evidence.number("compute_error.requested_s.mean")
    if share is None or busy is None or late is None or requested is None or share - busy < LEAST:
        return
    if late * requested < _LATE_S:
        yield (
            f"late compute: emulated compute ends {format_duration(late * requested)} late per step, which is the "
            "normal lateness of timers"
        )
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
            yield (
                f"late compute: {workers} workers use the cores of the emulated compute, but {room} workers are "
                "predicted to make steps longer"
            )
            return
        key, value = "loader.num_workers", str(room)
    change = f"{key}={value} leaves more cores for compute" if key else "stop the other programs, which use the cores"
    yield Advice(
        "late_compute",
        key,
        value,
        f"emulated compute took {percent(late)} longer than requested, which is {percent(share - busy)} of the time: "
        f"the machine has fewer cores ({'not known' if cores is None else f'{cores:g}'}) than its programs need; "
        f"{change}",
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
            assumption="emulated compute gets all cores that it needs",
        ),
        "medium",
    )
