"""The benchmark of predictions: what it would run can be run, and what it tells predict of this machine."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from benchmarks.predict_check import ALONE, COMMON, Case, Published, cases, published, system_of
from dlio_torch.config.compose import compose


@pytest.mark.parametrize("work", list(published()), ids=lambda work: work.name)
def test_the_published_workloads_are_those_of_recipes(work: Published) -> None:
    config = compose([*ALONE, *work.options], environ={}).config
    assert config.train.batch_size == 1
    assert config.compute.step_s > 0
    assert config.trace.posix


@pytest.mark.parametrize("case", list(cases()), ids=lambda case: case.name)
def test_cases_compose(case: Case) -> None:
    assert compose([*COMMON, *case.options], environ={}).config.trace.spans


def test_the_system_is_the_emulated_device_the_measured_disk_or_the_page_cache(tmp_path: Path) -> None:
    (tmp_path / "summary.json").write_text(json.dumps({"storage": {"most_bytes_per_s": 5e8}}), encoding="utf-8")
    device, disk, memory = (
        system_of(case, tmp_path) for case in (Case("a", (), device_s=0.5), Case("b", (), cold=True), Case("c", ()))
    )
    assert "system.read_bytes_per_s=524288" in device
    assert "system.read_bytes_per_s=500000000" in disk
    assert memory[-1] == "cached=1"
