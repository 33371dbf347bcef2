"""Draws the share of time that saves and failures cost over the interval of saves."""

from __future__ import annotations

from typing import TYPE_CHECKING

from dlio_torch.checkpoint.goodput import Goodput, GoodputPoint, best_interval_s, curve, lost_share
from dlio_torch.report.html.svg import to_svg
from dlio_torch.report.html.theme import BLUE, GREEN, ORANGE, VERMILLION, canvas, legend, log_ticks, time_unit
from dlio_torch.units import format_duration, percent

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_ALL, _SAVES, _BEST, _RUN = "saves and failures", "saves alone", "best interval", "interval of this run"
_COLOURS = {_ALL: BLUE, _SAVES: ORANGE, _BEST: GREEN, _RUN: VERMILLION}


def goodput_figure(inputs: Goodput, name: str = "goodput") -> str:
    """Draws the lost share over the interval on a logarithmic axis, with the best and the configured interval.

    Args:
        inputs: times of the job; the time between failures is known.
        name: unique on the page.
    """
    points, best = curve(inputs), best_interval_s(inputs)
    factor, unit = time_unit(best)
    marks = {_BEST: best, **_configured(inputs)}
    tips: dict[str, str] = {}
    with canvas(3.1) as (figure, [axes]):
        _lines(axes, points, factor)
        for number, (label, seconds) in enumerate(marks.items()):
            share = lost_share(inputs, seconds)
            axes.plot([seconds * factor], [100 * share], marker="o", color=_COLOURS[label], markersize=7, zorder=4)
            axes.lines[-1].set_gid(f"mark-{number}")
            tips[f"mark-{number}"] = f"{label}: {format_duration(seconds)}, {percent(share)} lost"
        intervals = [*(point.interval_s * factor for point in points), *(each * factor for each in marks.values())]
        axes.set_xscale("log")
        log_ticks(axes.xaxis, min(intervals), max(intervals))
        axes.set_xlabel(f"time between the beginnings of two saves ({unit}, log scale)")
        axes.set_ylabel("lost time (%)")
        axes.set_ylim(bottom=0)
        legend(figure, [(label, colour) for label, colour in _COLOURS.items() if label != _RUN or _RUN in marks])
        text = f"Lost share of time over the interval of saves; smallest at {format_duration(best)}"
        return to_svg(figure, name, text, tips)


def _lines(axes: Axes, points: list[GoodputPoint], factor: float) -> None:
    """Draws the two curves, in percent."""
    intervals = [point.interval_s * factor for point in points]
    axes.plot(intervals, [100 * point.lost_share for point in points], color=_COLOURS[_ALL])
    axes.plot(intervals, [100 * point.save_share for point in points], color=_COLOURS[_SAVES], linestyle="--")


def _configured(inputs: Goodput) -> dict[str, float]:
    """The interval of the run, if it has one that is long enough."""
    seconds = inputs.interval_s
    return {} if seconds is None or seconds < inputs.durable_s else {_RUN: seconds}
