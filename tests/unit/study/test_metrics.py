"""Figures of a study: the limits of the utilisation are columns of its tables, and known by name and unit."""

from __future__ import annotations

import pytest

from dlio_torch.study.metrics import METRICS, metric
from dlio_torch.study.model import Trial
from dlio_torch.study.tables import points_table, trials_table


@pytest.mark.parametrize(
    ("name", "label"),
    [("au_limit_of_loader.mean", "limit of the loader"), ("au_of_storage.mean", "limit of the storage")],
)
def test_limits_of_the_utilisation_are_figures_of_every_study(name: str, label: str) -> None:
    assert metric(name) in METRICS
    assert (metric(name).label, metric(name).unit, metric(name).better) == (label, "share", "higher")
    figures: dict[str, float | None] = {"au.mean": 0.5, name: 0.75}
    trial = Trial((), 1, 1, (), 1, "done", 0, None, "x", "fresh", "2026-01-01", figures, "cold", ())
    assert trials_table([trial])[name].tolist() == [0.75]
    assert points_table([trial])[[name, f"{name}.min"]].to_numpy().tolist() == [[0.75, 0.75]]


def test_bounds_of_a_limit_are_shares() -> None:
    assert metric("au_limit_of_loader.min").unit == "share"


def test_goodput_has_units_and_a_better_direction() -> None:
    names = ("goodput.lost_share_at_interval", "goodput.lost_share", "goodput.best_interval_s")
    assert [(metric(name).unit, metric(name).better) for name in names] == [
        ("share", "lower"),
        ("share", "lower"),
        ("s", "neither"),
    ]


def test_figures_of_checkpoints_have_units_and_a_better_direction() -> None:
    parts = ("stall_s", "durable_s", "bytes_per_s")
    names = (*(f"checkpoints.save.{part}.mean" for part in parts), "checkpoints.slowdown")
    assert [(metric(name).unit, metric(name).better) for name in names] == [
        ("s", "lower"),
        ("s", "lower"),
        ("B/s", "higher"),
        ("share", "lower"),
    ]
    assert metric("checkpoints.save.write_s.max").unit == "s"
