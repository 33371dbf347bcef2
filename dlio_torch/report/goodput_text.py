"""Sentences on the share of time that saves and failures cost, and on the best interval of saves."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dlio_torch.checkpoint.goodput import NO_MTBF, Goodput, interval_steps
from dlio_torch.report.terminal import NOT_MEASURED
from dlio_torch.units import counted, format_duration, percent


def goodput_rows(part: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Rows of the console from ``goodput`` of ``summary.json``; none if checkpoint.mtbf_s is not given."""
    if part["lost_share"] is not None:
        yield "goodput", f"{best_text(part)}; {interval_text(part)}"
        if part["why"]:
            yield "", part["why"]
    elif part["why"] != NO_MTBF:
        yield "goodput", f"{NOT_MEASURED}: {part['why']}"


def best_text(part: Mapping[str, Any]) -> str:
    """Best interval in time and steps, and the share of time that is lost there."""
    seconds, mtbf_s = part["best_interval_s"], part["inputs"]["mtbf_s"]
    return (
        f"with a failure every {format_duration(mtbf_s)}, a save every {format_duration(seconds)} "
        f"({steps_text(part)}) is best: saves and failures cost {share_text(part, 'lost_share')} of the time"
    )


def interval_text(part: Mapping[str, Any]) -> str:
    """Interval of the run, and the share of time that is lost there."""
    if part["interval_s"] is None:
        return "the interval of this run is not fixed"
    interval = format_duration(part["interval_s"])
    if part["lost_share_at_interval"] is None:
        return f"this run saves every {interval}, which is too often"
    return f"this run's interval, {interval}, costs {share_text(part, 'lost_share_at_interval')}"


def share_text(part: Mapping[str, Any], name: str) -> str:
    """A lost share in percent; ``at least`` where the time to read a checkpoint was not measured."""
    share = percent(part[name], 2 if part[name] < 0.01 else 1)
    return share if part["inputs"]["read_s"] is not None else f"at least {share}"


def steps_text(part: Mapping[str, Any]) -> str:
    """Steps between two saves at the best interval, a whole number."""
    return counted(interval_steps(Goodput(**part["inputs"]), part["best_interval_s"]), "step")
