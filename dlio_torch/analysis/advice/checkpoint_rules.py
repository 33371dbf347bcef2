"""Rules on checkpoints that take much of the time: saves in the background, more threads, longer intervals."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from dlio_torch.analysis.advice.advice_item import Advice, Predicted, Value
from dlio_torch.analysis.advice.choice import Finding
from dlio_torch.analysis.advice.evidence import LEAST, Evidence
from dlio_torch.analysis.advice.run_rules import COSTLY
from dlio_torch.checkpoint.goodput import Goodput, interval_steps
from dlio_torch.checkpoint.registry import BUILTIN
from dlio_torch.units import counted, format_duration, percent

_AIM = 0.05  # share of the time that checkpoints should take
_MIN_CHECKPOINTS = 2
# Options that only some layouts have (see Layout.options).
_BACKGROUND, _THREADS = "async_save", "thread_count"
_MOSTLY = 0.5  # share of a stall from which its largest part is worth advice


def checkpoints(evidence: Evidence) -> Iterator[Finding]:
    """Rule on checkpoints that take much of the time."""
    share, scale = evidence.number("shares.checkpoint"), evidence.config.scale
    if share is None or share < COSTLY:
        return
    if scale.checkpoint != 1 or scale.checkpoint_size != 1:
        yield f"fewer checkpoints: they take {percent(share)} of this run's time, but the scale changes its checkpoints"
        return
    count = int(evidence.number("checkpoints.measured") or 0)
    if count < _MIN_CHECKPOINTS:
        yield f"fewer checkpoints: a prediction needs {_MIN_CHECKPOINTS} measured checkpoints, but this run has {count}"
        return
    if _option(evidence, _BACKGROUND) == "none":
        yield _background(evidence, share, count)
        yield from _more_threads(evidence, share)
    elif evidence.number("goodput.lost_share_at_interval") is not None and evidence.config.checkpoint.every_steps:
        yield _best_interval(evidence, evidence.figure("goodput"), share)
    else:
        yield from _fewer(evidence, share, count)


def _option(evidence: Evidence, name: str) -> Value:
    """Value of an option of the saver; ``None`` if its layout does not have the option."""
    options = evidence.config.checkpoint
    has_option = options.layout in BUILTIN and name in BUILTIN[options.layout].options
    value: Value = getattr(options, name, None) if has_option else None
    return value


def _background(evidence: Evidence, share: float, count: int) -> Advice:
    """Advice to write while the training goes on; planning and staging still take their time."""
    stall = evidence.number("checkpoints.save.stall_s.mean")
    staged = [evidence.number(f"checkpoints.save.{part}.mean") for part in ("plan_s", "stage_s")]
    left = share * min(1.0, sum(part for part in staged if part is not None) / stall) if stall else 0.0
    return Advice(
        "checkpoints",
        f"checkpoint.{_BACKGROUND}",
        "thread",
        f"training stands still for checkpoints {percent(share)} of the time; checkpoint.{_BACKGROUND}=thread writes "
        "them while training goes on",
        (
            ("shares.checkpoint", share),
            ("checkpoints.measured", count),
            ("checkpoints.save.stall_s.mean", stall),
        ),
        Predicted(
            figure="shares.checkpoint",
            now=share,
            low=left,
            high=None,
            gain_low=None,
            gain_high=share - left,
            assumption="steps are as fast while a checkpoint is written, and the copy in memory takes little time",
        ),
        "medium",
    )


def _more_threads(evidence: Evidence, share: float) -> Iterator[Advice]:
    """Advice to write with twice as many threads where a stall is mostly writing."""
    threads, cores = _option(evidence, _THREADS), evidence.cores
    stall = evidence.number("checkpoints.save.stall_s.mean")
    write = evidence.number("checkpoints.save.write_s.mean")
    if not isinstance(threads, int) or not stall or write is None or write < _MOSTLY * stall:
        return
    if cores is None or 2 * threads > cores / evidence.ranks_here:
        return
    gain = share * min(1.0, write / stall) / 2
    yield Advice(
        "save_threads",
        f"checkpoint.{_THREADS}",
        str(2 * threads),
        f"writing takes {percent(min(1.0, write / stall))} of the stall of a save; "
        f"checkpoint.{_THREADS}={2 * threads} (now {threads}) writes with twice as many threads",
        (("shares.checkpoint", share), ("checkpoints.save.write_s.mean", write)),
        Predicted(
            figure="shares.checkpoint",
            now=share,
            low=share - gain,
            high=None,
            gain_low=None,
            gain_high=gain,
            assumption="the storage writes twice as fast for twice as many threads",
        ),
        "low",
    )


def _best_interval(evidence: Evidence, goodput: Mapping[str, Any], share: float) -> Finding:
    """Advice to save at the interval at which saves and failures cost least."""
    interval, now, least = (
        evidence.config.checkpoint.every_steps,
        goodput["lost_share_at_interval"],
        goodput["lost_share"],
    )
    inputs = Goodput(**goodput["inputs"])
    steps = interval_steps(inputs, goodput["best_interval_s"])
    failures = f"a failure every {format_duration(inputs.mtbf_s)}"
    if steps <= interval or now - least < LEAST:
        return (
            f"fewer checkpoints: they take {percent(share)} of the time, but with {failures} another interval saves "
            f"less than {percent(LEAST, 0)} of it"
        )
    return Advice(
        "checkpoints",
        "checkpoint.every_steps",
        str(steps),
        f"checkpoints take {percent(share)} of the time; with {failures}, checkpoint.every_steps={steps} (now "
        f"{interval}) is best: saves and failures cost {percent(least)} of the time instead of {percent(now)}",
        (
            ("shares.checkpoint", share),
            ("goodput.lost_share_at_interval", now),
            ("goodput.lost_share", least),
            ("goodput.best_interval_s", goodput["best_interval_s"]),
        ),
        Predicted(
            figure="goodput.lost_share_at_interval",
            now=now,
            low=least,
            high=least,
            gain_low=now - least,
            gain_high=now - least,
            assumption="saves take as long as in this run, and failures are as rare as checkpoint.mtbf_s says",
        ),
        "medium",
    )


def _fewer(evidence: Evidence, share: float, count: int) -> Iterator[Advice]:
    """Advice on a longer interval, so that checkpoints take a small share of the time."""
    saved = evidence.config.checkpoint
    name, unit = ("every_steps", "step") if saved.every_steps else ("every_epochs", "epoch")
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
        f"checkpoints take {percent(share)} of the time, {format_duration(each or 0.0)} each; with "
        f"{key}={interval * factor} (now {interval}), {percent(then)} of the shorter time is predicted, but a crash "
        f"loses up to {counted(interval * factor, unit)} of work",
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
            assumption="each checkpoint takes as long as in this run",
        ),
        "medium",
    )
