"""Sentences on the saves and restores of a run: size, times, rates, slowed steps, memory."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlio_torch.units import counted, format_duration, format_rate, format_size, percent

_NOT_FLUSHED = "not flushed: perhaps still in memory (no fsync)"


def checkpoint_rows(summary: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Rows of the console on saves and restores; none for what was not measured.

    Args:
        summary: content of ``summary.json``.
    """
    figures, saved = summary["checkpoints"], summary.get("saved") or {}
    if (figures.get("save") or {}).get("count"):
        yield "checkpoints", f"{save_text(figures['save'])}{_flush_text(figures['save'], saved)}"
    elif figures["measured"]:  # a run of an older version
        yield "checkpoints", f"{_duration_text(figures, saved)}{_flush_text({}, saved)}"
    if effects := effects_text(figures):
        yield "", effects
    if (figures.get("restore") or {}).get("count"):
        yield "restore", restore_text(figures["restore"])


def save_text(part: Mapping[str, Any]) -> str:
    """Number, size, stall, time until durable and rates of saves: ``checkpoints.save``."""
    size, durable = format_size(part["bytes"]["mean"]), format_duration(part["durable_s"]["mean"])
    if part["stall_s"] == part["durable_s"]:
        return f"{part['count']}, {durable} each: {size} at {rates_text(part)}"
    stall = format_duration(part["stall_s"]["mean"])
    return (
        f"{part['count']} of {size}: training stands still for {stall} each, durable after {durable} at "
        f"{rates_text(part)}"
    )


def restore_text(part: Mapping[str, Any]) -> str:
    """Size, time and rates of restores: ``checkpoints.restore``."""
    size, whole = format_size(part["bytes"]["mean"]), format_duration(part["duration_s"]["mean"])
    return f"{whole}: {size} at {rates_text(part)}"


def rates_text(part: Mapping[str, Any]) -> str:
    """Rate of all ranks, and mean rate of one where there are several."""
    if part["bytes_per_s"] is None:
        return "no measured rate"
    rate = format_rate(part["bytes_per_s"]["mean"])
    single = [row["bytes_per_s"] for row in part["per_rank"] if row["bytes_per_s"] is not None]
    return f"{rate} in all, {format_rate(_mean(single))} per rank" if len(single) > 1 else rate


def unflushed_rate_text(part: Mapping[str, Any]) -> str:
    """Rate of a save without its flush; empty if the ranks do not tell it: ``checkpoints.save``."""
    rate = part.get("unflushed_bytes_per_s")
    return f"{format_rate(rate['mean'])} without it" if rate else ""


def effects_text(figures: Mapping[str, Any]) -> str:
    """How much longer steps take during saves, and what memory saves hold: ``checkpoints``; empty if not measured."""
    texts = []
    if figures.get("slowdown") is not None:
        texts.append(slowdown_text(figures))
    if figures.get("peak_host_bytes"):
        texts.append(f"saves hold up to {format_size(figures['peak_host_bytes'])} of memory")
    return "; ".join(texts)


def slowdown_text(figures: Mapping[str, Any]) -> str:
    """How much longer steps and their waits for data take while a save is written, with intervals if there are any."""
    steps = counted(figures["during_saves"]["steps"], "step")
    sure = _interval(figures.get("slowdown_ci95"))
    text = f"while a save is written, steps take {_relative(figures['slowdown'])} ({sure}{steps})"
    if (fetch := figures.get("fetch_slowdown")) is None:
        return text
    sure = _interval(figures.get("fetch_slowdown_ci95")).removesuffix("; ")
    return f"{text} and wait for data {_relative(fetch)}" + (f" ({sure})" if sure else "")


def _interval(bounds: Sequence[float] | None) -> str:
    """Bounds within which the true increase lies; empty if there are too few steps."""
    return "" if bounds is None else f"95 %: {' to '.join(f'{100 * bound:+.1f} %' for bound in bounds)}; "


def _relative(increase: float) -> str:
    """The increase of a duration in words."""
    return f"{percent(abs(increase))} {'longer' if increase >= 0 else 'shorter'}"


def _duration_text(measured: Mapping[str, Any], saved: Mapping[str, Any]) -> str:
    """Number, time, size and rate of checkpoints of which only the stall is known."""
    seconds = measured["duration_s"]["mean"]
    text = f"{measured['measured']}, {format_duration(seconds)} each"
    if saved.get("checkpoints") and saved.get("bytes"):
        size = saved["bytes"] / saved["checkpoints"]
        text += f": {format_size(size)} at {format_rate(size / seconds)}"
    return text


def _flush_text(part: Mapping[str, Any], saved: Mapping[str, Any]) -> str:
    """Whether checkpoints reached the device, and how long that took."""
    if saved.get("fsync") is None:
        return ""
    if not saved["fsync"]:
        return f", {_NOT_FLUSHED}"
    if (flush := part.get("fsync_s")) is None:
        return ", flushed to the device"
    texts = [f"{format_duration(flush['mean'])} of it", unflushed_rate_text(part)]
    return f", flushed to the device ({', '.join(filter(None, texts))})"


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)
