"""The picture of a mean step: its parts, and the time that compute and storage need."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest
from io_events import recording, table

from dlio_torch.report.html.page_blocks import Figure
from dlio_torch.report.html.run.key_figures import unfinished_tiles
from dlio_torch.report.html.run.mean_step import mean_step_figure
from dlio_torch.report.html.run.view import View
from dlio_torch.train.steps import EVAL, STEP_DTYPE, TRAIN

pytest.importorskip("matplotlib")


def rank(elapsed_s: float, fetch_s: float, compute_s: float, au: float | None) -> dict[str, Any]:
    return {"steps": 10, "elapsed_s": elapsed_s, "fetch_s": fetch_s, "compute_s": compute_s, "other_s": 0.0, "au": au}


def summary(*ranks: dict[str, Any], au: float | None, **storage: Any) -> dict[str, Any]:
    return {
        "ranks": list(ranks),
        "au": {"mean": au},
        "shares": {"between_epochs": 0.1},
        "train": {"steps": 10, "samples": 80},
        "reads": {"samples": 160},
        "io": {"read_bytes": 16_000, "device_read_share": 1.0},
        "cache": {"epochs": [{"rchar_bytes": 32_000, "read_bytes": 16_000}]},
        "warmup": {"steps": 0},
        "storage": {"cached": "cold", "limit_bytes_per_s": None, "why": None, **storage},
    }


def drawn(content: dict[str, Any]) -> Figure:
    figure = mean_step_figure(View(recording(table([])), summary=content))
    assert figure is not None
    return figure


def test_parts_are_means_of_ranks_and_add_up() -> None:
    figure = drawn(summary(rank(0.1, 0.004, 0.005, 0.4), rank(0.05, 0.001, 0.0025, 0.4), au=0.4))
    assert "elapsed time of the measured steps / steps (7.50 ms)" in figure.method
    times = {
        "waiting for data": "2.50 ms",
        "emulated compute": "3 ms",
        "compute beyond the requested time": "750 µs",
        "between epochs": "750 µs",
        "dlio_torch itself": "500 µs",
    }
    for part, time in times.items():
        assert f"this run, {part}: {time}" in figure.svg
    assert "compute alone, emulated compute: 3 ms" in figure.svg


def test_the_storage_needs_the_bytes_of_all_ranks_at_its_limit() -> None:
    # 16,000 B from the device for 160 samples, 8 samples per step of all ranks
    figure = drawn(summary(rank(0.1, 0.004, 0.005, 0.4), au=0.4, limit_bytes_per_s=1e6))
    assert "storage at its limit, storage: 800 µs" in figure.svg
    warm = drawn(summary(rank(0.1, 0.004, 0.005, 0.4), au=0.4, limit_bytes_per_s=1e6, cached="warm"))
    assert "page cache at its limit, storage: 1.60 ms" in warm.svg


def test_limits_that_are_not_known_have_no_bar() -> None:
    figure = drawn(summary(rank(0.1, 0.004, 0.005, None), au=None))
    assert "compute alone" not in figure.svg
    assert "at its limit" not in figure.svg
    assert "the limit of the storage was not measured (set storage.limits=measure)" in figure.method
    assert "loader: the production of batches was not recorded" in figure.method


def test_nothing_measured_gives_no_picture() -> None:
    content = summary(rank(0.1, 0.0, 0.0, None) | {"steps": 0}, au=None)
    assert mean_step_figure(View(recording(table([])), summary=content)) is None


def test_an_unfinished_run_whose_steps_took_no_time_has_no_picture_and_no_rate() -> None:
    steps = pd.DataFrame(np.zeros(3, STEP_DTYPE)).assign(rank=0, phase=TRAIN)
    view = View(recording(table([])), summary=None, steps=steps)
    assert mean_step_figure(view) is None
    assert [value for value, *_ in unfinished_tiles(view)][:2] == ["3", "not measured"]
    assert unfinished_tiles(View(recording(table([])), summary=None, steps=steps.assign(phase=EVAL))) == []
