"""Builds the lanes of saves in the background: one for each save of a rank, as in the trace."""

from __future__ import annotations

import numpy as np
import pandas as pd

from dlio_torch.iotrace.figures.breakdown import is_span
from dlio_torch.iotrace.figures.intervals import EMPTY, Intervals, difference, intersection, union
from dlio_torch.report.html.run.lane_figure import Lane, Layer
from dlio_torch.report.html.theme import PARTS, YELLOW

MOST_LANES = 16
"""Most lanes of saves in a figure, over all ranks."""


def save_lanes(rows: pd.DataFrame, rank: int, ranks: int) -> list[Lane]:
    """Lanes of the saves of a rank, in the order of their begins; many saves share the last lane.

    Args:
        rows: all events of the rank.
        rank: its number.
        ranks: number of ranks in the figure.
    """
    saves = rows[is_span(rows, ("save",))].sort_values("start_ns", kind="stable")
    stalls = _intervals(rows[is_span(rows, ("checkpoint",))])
    most = max(1, MOST_LANES // ranks)
    alone = len(saves) if len(saves) <= most else most - 1
    lanes = [
        _lane(rank, f"save of step {step}", saves.iloc[number : number + 1], stalls)
        for number, step in enumerate(saves["step"].iloc[:alone].tolist())
    ]
    if rest := len(saves) - alone:
        lanes.append(_lane(rank, f"{rest} {'later saves' if alone else 'saves'}", saves.iloc[alone:], stalls))
    return lanes


def _lane(rank: int, name: str, saves: pd.DataFrame, stalls: Intervals) -> Lane:
    """A lane of saves that go on in the background, with the times in which training stands still for them."""
    background = _intervals(saves)
    still = intersection(background, _begun(stalls, saves))
    written = Layer(difference(background, still), YELLOW, "save in the background")
    return Lane(rank, name, (Layer(still, PARTS["checkpoint"], "stall of a save"), written))


def _begun(stalls: Intervals, saves: pd.DataFrame) -> Intervals:
    """The stalls in which these saves began; another save may stall the training while these are written."""
    begins = saves["start_ns"].to_numpy()
    if not stalls[0].size:
        return EMPTY
    last = np.searchsorted(stalls[0], begins, side="right") - 1
    within = np.unique(last[(last >= 0) & (begins < stalls[1][last])])
    return stalls[0][within], stalls[1][within]


def _intervals(rows: pd.DataFrame) -> Intervals:
    return union(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy())
