"""Computes the part ``goodput`` of ``summary.json`` from the measured times of a run's checkpoints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from dlio_torch.checkpoint.goodput import NO_MTBF, Goodput, figures, no_figures, steps_interval_s
from dlio_torch.config.schema import Config
from dlio_torch.config.schema_training import CheckpointConfig

_READING = ("metadata_s", "plan_s", "read_s", "copy_s")
_NOT_FLUSHED = "Saves of this run were not flushed to the device (no fsync), so they may be durable later than assumed."
_SCALED = "The scale changed the size of checkpoints or the steps between them; scale=paper measures them as described."
_TWICE = "Both checkpoint.every_steps and checkpoint.every_epochs save; the one that saves more often counts."


def goodput_part(summary: Mapping[str, Any], config: Config) -> dict[str, Any] | None:
    """Goodput of a run with checkpoints.

    Args:
        summary: steps, epochs, ``checkpoints``, ``restore`` and ``saved`` of the run.
        config: the resolved configuration.

    Returns:
        As :func:`dlio_torch.checkpoint.goodput.figures` gives it; ``None`` if the run saved nothing, and no time
        between failures is given.
    """
    options = config.checkpoint
    if not summary["saved"]["checkpoints"] and not options.mtbf_s:
        return None
    inputs = measured_inputs(summary, options)
    if inputs is None:
        return no_figures("no checkpoint was saved in a measured step" if options.mtbf_s else NO_MTBF)
    part = figures(replace(inputs, interval_s=_interval_s(summary, options, inputs)))
    if part["assumptions"]:
        part["assumptions"] += _conditions(summary, options)
    return part


def measured_inputs(summary: Mapping[str, Any], options: CheckpointConfig) -> Goodput | None:
    """Measured times of saves, steps and restarts; ``None`` if no checkpoint was saved in a measured step.

    A save of which only ``checkpoints.duration_s`` is known is synchronous: it is durable when its stall ends.
    """
    saved = summary["checkpoints"]
    parts, step_s = saved.get("save") or {}, _step_s(summary)
    stall_s = _mean(parts.get("stall_s"), saved["duration_s"])
    durable_s = _mean(parts.get("durable_s"), parts.get("stall_s"), saved["duration_s"])
    if stall_s is None or durable_s is None or step_s is None:
        return None
    slowdown = _mean(saved.get("slowdown"))
    return Goodput(
        stall_s=stall_s,
        durable_s=max(stall_s, durable_s),
        slowdown=None if slowdown is None else max(0.0, slowdown),
        step_s=step_s,
        mtbf_s=options.mtbf_s,
        start_s=options.restart_s,
        read_s=_read_s(summary),
    )


def _mean(*sources: Any) -> float | None:
    """Mean, or else median, of the first source that was measured: a number, or statistics by name."""
    source = next((each for each in sources if each is not None), None)
    if isinstance(source, Mapping):
        source = source.get("mean", source.get("median"))
    return None if source is None else float(source)


def _step_s(summary: Mapping[str, Any]) -> float | None:
    """Mean seconds of a measured step without its save; ``None`` if no step was measured.

    Steps during saves in the background are left out where the slowdown says how much longer they take.
    """
    saved = summary["checkpoints"]
    if saved.get("slowdown") is not None and (undisturbed := saved.get("undisturbed")) is not None:
        return _mean(undisturbed["step_s"])
    whole, saving = _mean(summary["step"]["duration_s"]), _mean(summary["step"]["checkpoint_s"])
    if whole is None:
        return None
    step_s = whole if saving is None else whole - saving
    return step_s if step_s > 0 else None


def _read_s(summary: Mapping[str, Any]) -> float | None:
    """Seconds in which the slowest rank reads a checkpoint: the whole restore, or the sum of its parts."""
    parts = summary["checkpoints"].get("restore") or {}
    if parts.get("duration_s") is not None:
        return _mean(parts["duration_s"])
    if _mean(parts.get("read_s")) is not None:
        return sum(value for name in _READING if (value := _mean(parts.get(name))) is not None)
    return max((value for value in summary["restore"]["seconds"] if value is not None), default=None)


def _interval_s(summary: Mapping[str, Any], options: CheckpointConfig, inputs: Goodput) -> float | None:
    """Seconds between two saves as configured, the shorter ones if two options say it; ``None`` if none does."""
    intervals = []
    if options.every_steps:
        intervals.append(steps_interval_s(inputs, options.every_steps))
    if options.every_epochs and (epoch_s := _epoch_s(summary)) is not None:
        intervals.append(options.every_epochs * epoch_s)
    return min(intervals, default=None)


def _epoch_s(summary: Mapping[str, Any]) -> float | None:
    """Mean seconds of an epoch of the slowest rank, saves and evaluations included; ``None`` without epochs."""
    ranks = [[epoch["seconds"] for epoch in rank] for rank in summary["epochs"]]
    slowest = [max(times) for times in zip(*ranks, strict=False)]
    return float(np.mean(slowest)) if slowest else None


def _conditions(summary: Mapping[str, Any], options: CheckpointConfig) -> list[str]:
    """Sentences on the saves that this run's times hold for."""
    flushed = summary["saved"]["fsync"] or (summary["checkpoints"].get("save") or {}).get("fsync_s") is not None
    scaled = any("checkpoint." in note for note in summary.get("scaled") or ())
    twice = options.every_steps and options.every_epochs
    sentences = {_NOT_FLUSHED: not flushed, _SCALED: scaled, _TWICE: twice}
    return [sentence for sentence, holds in sentences.items() if holds]
