"""Lanes of saves in the background: one for each save, with its own stall; many saves share the last lane."""

from __future__ import annotations

import pandas as pd
import pytest
from io_events import Call, table

pytest.importorskip("matplotlib")

from dlio_torch.report.html.run.lane_figure import Lane
from dlio_torch.report.html.run.save_lanes import MOST_LANES, save_lanes


def events(*spans: tuple[str, int, int, int]) -> pd.DataFrame:
    """Spans of the trainer from (name, step, start, end)."""
    frame = table([Call(op, start=start, end=end, file=None, layer="app") for op, _, start, end in spans])
    frame["step"] = [step for _, step, _, _ in spans]
    return frame


def times(lane: Lane) -> dict[str, list[tuple[int, int]]]:
    return {
        layer.label: list(zip(*(bounds.tolist() for bounds in layer.intervals), strict=True)) for layer in lane.layers
    }


def test_saves_that_overlap_have_lanes_and_stalls_of_their_own() -> None:
    # The second save begins in its stall, and awaits the first one there.
    spans = [("checkpoint", 2, 0, 10), ("save", 2, 1, 60), ("checkpoint", 4, 50, 70), ("save", 4, 51, 100)]
    first, second = save_lanes(events(*spans, ("compute", 3, 10, 50)), 3, 1)
    assert (first.rank, first.name, second.name) == (3, "save of step 2", "save of step 4")
    assert times(first) == {"stall of a save": [(1, 10)], "save in the background": [(10, 60)]}
    assert times(second) == {"stall of a save": [(51, 70)], "save in the background": [(70, 100)]}


def test_the_order_is_that_of_begins_and_a_stall_may_be_missing() -> None:
    lanes = save_lanes(events(("save", 9, 40, 60), ("save", 5, 0, 20)), 0, 1)
    assert [lane.name for lane in lanes] == ["save of step 5", "save of step 9"]
    assert times(lanes[1]) == {"stall of a save": [], "save in the background": [(40, 60)]}
    assert save_lanes(events(("compute", 1, 0, 5), ("checkpoint", 1, 5, 6)), 0, 1) == []


@pytest.mark.parametrize(("ranks", "names"), [(1, MOST_LANES), (4, MOST_LANES // 4), (100, 1)])
def test_many_saves_share_the_last_lane(ranks: int, names: int) -> None:
    saves = [("save", step, 10 * step, 10 * step + 5) for step in range(MOST_LANES + 3)]
    lanes = save_lanes(events(*saves), 0, ranks)
    assert len(lanes) == names
    rest = MOST_LANES + 3 - (names - 1)
    assert lanes[-1].name == (f"{rest} later saves" if names > 1 else f"{rest} saves")
    assert len(times(lanes[-1])["save in the background"]) == rest
