"""Draws the timeline of steps: the time of each step by part, in one plot per rank."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from dlio_torch.report.html.stack_figure import MOST_BARS, axis_top, draw_stack, grouped, step_plot
from dlio_torch.report.html.svg import TimePlot, to_svg
from dlio_torch.report.html.theme import BLACK, PARTS, canvas, legend, time_unit
from dlio_torch.train.steps import EVAL, TIMED, WARMUP
from dlio_torch.units import format_duration

if TYPE_CHECKING:
    from matplotlib.axes import Axes

DRAWN = (*TIMED, "other")
_MOST_RANKS = 4
_MOST_LABELS = 12
_SHADE = "#EBEBEB"
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class StepFigure:
    """The timeline of steps as a figure, with the facts for its caption.

    Args:
        svg: text of the element.
        group: steps that share a bar.
        ranks: ranks that are shown.
        hidden_ranks: number of ranks that are not.
        cut: bars that reach beyond the axis.
        evaluations: steps of evaluations, which are not shown.
    """

    svg: str
    group: int
    ranks: tuple[int, ...]
    hidden_ranks: int
    cut: int
    evaluations: int


@dataclass(frozen=True)
class _Bars:
    """The bars of one rank, in ms or another unit."""

    rank: int
    edges: Floats
    heights: Floats  # (bars, parts)
    slowest: Floats
    epochs: list[tuple[float, int]]
    warmup: float  # where warm-up ends
    moments: Floats | None  # begin of each step and the end of the last one, seconds on the page's time axes


def step_figure(steps: pd.DataFrame) -> StepFigure | None:
    """Draws bars of steps, stacked from their parts.

    A run of more than 240 steps is shown in groups of consecutive steps: a bar is the mean of its group, a line
    above it the slowest step of the group.  Of more than four ranks, the first, the last and the two that
    waited longest are shown.

    Args:
        steps: records of :data:`dlio_torch.train.steps.STEP_DTYPE` with a column ``rank``, and where it is known
            with a column ``moment_s``, the begin of each step on the page's time axes.

    Returns:
        None where no training step was recorded.
    """
    training = steps[steps["phase"] != EVAL]
    if not len(training):
        return None
    ranks = _chosen(training)
    durations = {rank: _durations(steps, rank) for rank in ranks}
    longest = float(max(values.sum(axis=1).max() for values, _ in durations.values())) * 1e-9
    factor, unit = time_unit(longest)
    group = -(-int(training.groupby("rank").size().max()) // MOST_BARS)
    bars = [
        _bars(rank, values * 1e-9 * factor, rows, group, _moments(rows, values.sum(axis=1) * 1e-9))
        for rank, (values, rows) in durations.items()
    ]
    top, cut = axis_top(np.concatenate([rank_bars.heights.sum(axis=1) for rank_bars in bars]))
    with canvas(0.75 + 1.75 * len(bars), len(bars)) as (figure, plots):
        for axes, rank_bars in zip(plots, bars, strict=True):
            _draw(axes, rank_bars, top, group)
            axes.set_ylabel(f"rank {rank_bars.rank}\n{unit} per step")
        shown = [
            name for index, name in enumerate(DRAWN) if any(rank_bars.heights[:, index].any() for rank_bars in bars)
        ]
        entries = [(name, PARTS[name]) for name in shown]
        if any(rank_bars.warmup for rank_bars in bars):
            entries.append(("warm-up", _SHADE))
        legend(figure, entries)
        plots[-1].set_xlabel("training step, numbered over all epochs")
        text = f"Time of each training step by part, {len(bars)} ranks, longest step {format_duration(longest)}"
        svg = to_svg(figure, "steps", text, plots=_time_plots(plots, bars, unit))
    hidden = int(training["rank"].nunique()) - len(bars)
    return StepFigure(svg, group, tuple(ranks), hidden, cut, len(steps) - len(training))


def _time_plots(plots: Sequence[Axes], bars: Sequence[_Bars], unit: str) -> list[TimePlot]:
    return [
        step_plot(
            axes,
            rank_bars.edges,
            rank_bars.moments[:-1],
            float(rank_bars.moments[-1]),
            {name: rank_bars.heights[:, index] for index, name in enumerate(DRAWN)},
            unit,
        )
        for axes, rank_bars in zip(plots, bars, strict=True)
        if rank_bars.moments is not None
    ]


def _moments(rows: pd.DataFrame, durations: Floats) -> Floats | None:
    if "moment_s" not in rows:
        return None
    begins = rows["moment_s"].to_numpy(np.float64)
    return np.append(begins, begins[-1] + durations[-1])


def _chosen(training: pd.DataFrame) -> list[int]:
    ranks: list[int] = sorted(training["rank"].unique().tolist())
    if len(ranks) <= _MOST_RANKS:
        return ranks
    waits = training.groupby("rank")["fetch_ns"].sum().drop([ranks[0], ranks[-1]])
    return sorted({ranks[0], ranks[-1], *waits.nlargest(_MOST_RANKS - 2).index.tolist()})


def _durations(steps: pd.DataFrame, rank: int) -> tuple[Floats, pd.DataFrame]:
    """Nanoseconds of each part of a rank's training steps, shape ``(steps, parts)``, and the steps' rows."""
    mine = steps[steps["rank"] == rank].sort_values("start_ns", kind="stable")
    parts = mine[[f"{name}_ns" for name in DRAWN[:-1]]].to_numpy(np.float64)
    loop = (mine["phase"] == EVAL).to_numpy()
    other = np.zeros(len(mine))
    if len(mine) > 1:
        # The tool's own time is known where the next step follows at once: same epoch, same loop.
        follows = (np.diff(mine["epoch"]) == 0) & (loop[1:] == loop[:-1])
        gap = np.diff(mine["start_ns"]) - parts[:-1].sum(axis=1)
        other[:-1] = np.where(follows, np.maximum(gap, 0), 0)
    return np.column_stack((parts, other))[~loop], mine[~loop]


def _bars(rank: int, values: Floats, rows: pd.DataFrame, group: int, moments: Floats | None) -> _Bars:
    count = len(values)
    firsts = np.arange(0, count, group)
    epoch = rows["epoch"].to_numpy()
    starts = np.flatnonzero(np.concatenate(([True], epoch[1:] != epoch[:-1])))
    warmup = np.flatnonzero(rows["phase"].to_numpy() == WARMUP)
    return _Bars(
        rank,
        np.append(firsts, count) + 0.5,
        grouped(values, group),
        np.maximum.reduceat(values.sum(axis=1), firsts),
        [(index + 0.5, int(epoch[index])) for index in starts.tolist()],
        float(warmup[-1] + 1.5) if warmup.size else 0.0,
        moments,
    )


def _draw(axes: Axes, bars: _Bars, top: float, group: int) -> None:
    if bars.warmup:
        axes.axvspan(0.5, bars.warmup, color=_SHADE, linewidth=0, zorder=0)
    draw_stack(axes, bars.edges, {name: bars.heights[:, index] for index, name in enumerate(DRAWN)}, PARTS, top)
    if group > 1:
        middle = (bars.edges[1:] + bars.edges[:-1]) / 2
        axes.plot(middle, np.minimum(bars.slowest, top), color=BLACK, linewidth=0.6, zorder=4)
    if 1 < len(bars.epochs) <= _MOST_LABELS:
        for position, epoch in bars.epochs:
            axes.axvline(position, color="#777777", linewidth=0.7, linestyle=":", zorder=4)
            axes.text(position, top * 0.985, f" epoch {epoch}", fontsize=8, color="#555555", va="top", zorder=5)
