"""Builds the section on goodput: time lost to saves and failures over the interval of saves."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.checkpoint.goodput import Goodput
from dlio_torch.report.goodput_text import best_text, interval_text
from dlio_torch.report.html.page_blocks import NOT_MEASURED, Absent, Facts, Figure, Notes, Section, Text
from dlio_torch.report.html.run.goodput_figure import goodput_figure
from dlio_torch.units import format_duration, percent

_TITLE = "Time lost to saves and failures"
_METHOD = (
    "Blue: expected share of time that is not kept as training, 1 - W exp(-(R + W + D) / M) / (M (1 - exp(-T / M))), "
    "with T the interval, W the training between two saves, D the time until a save is durable, R a restart and M the "
    "mean time between failures. Orange: the share that saves would cost without failures."
)
_STATUS = "Estimated: a model of failures (checkpoint.mtbf_s), from the measured times below; no failure was caused."


def goodput_sections(summary: Mapping[str, Any] | None) -> list[Section]:
    """The section of a run with checkpoints; none for other runs, and for older ones, which have no such figures."""
    part = None if summary is None else summary.get("goodput")
    return [] if part is None else [goodput_section(part)]


def goodput_section(part: Mapping[str, Any]) -> Section:
    """Builds the curve, the times that it follows from, and the assumptions.

    Args:
        part: ``goodput`` of ``summary.json``.
    """
    if part["lost_share"] is None:
        return Section("goodput", _TITLE, [Absent(f"The lost time was not computed: {part['why']}.")])
    inputs = Goodput(**part["inputs"])
    sentence = f"{best_text(part)}; {interval_text(part)}."
    notes = [*part["assumptions"], *([f"Limits: {part['why']}."] if part["why"] else [])]
    return Section(
        "goodput",
        _TITLE,
        [
            Text(sentence[0].upper() + sentence[1:]),
            Figure(goodput_figure(inputs), "Lost time over the interval of saves", _METHOD, _STATUS),
            Facts(_times(inputs)),
            Notes(notes),
        ],
    )


def _times(inputs: Goodput) -> list[tuple[str, str]]:
    """Times from which the curve follows."""
    read = NOT_MEASURED if inputs.read_s is None else format_duration(inputs.read_s)
    slower = [] if inputs.slowdown is None else [("longer steps while a save is written", percent(inputs.slowdown))]
    return [
        ("stall of a save", format_duration(inputs.stall_s)),
        ("time until a save is durable", format_duration(inputs.durable_s)),
        *slower,
        ("step without a save", format_duration(inputs.step_s)),
        ("time between failures (checkpoint.mtbf_s)", format_duration(inputs.mtbf_s)),
        ("detecting a failure and starting (checkpoint.restart_s)", format_duration(inputs.start_s)),
        ("reading a checkpoint", read),
    ]
