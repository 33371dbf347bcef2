"""The benchmark of ``au_of_storage``: its truth agrees with closed forms, and its cases compose."""

from __future__ import annotations

import pytest

from benchmarks.au_truth import Case, cases, io_max_missing, options
from benchmarks.utilisation.ideal import ideal_utilisation
from benchmarks.utilisation.storage_run import COMMON
from dlio_torch.config.compose import compose
from dlio_torch.data.engines.delayed_reads import StorageDelay

SIZES = [1000, 3000]


@pytest.mark.parametrize(
    ("storage", "workers", "ranks", "known"),
    [
        (StorageDelay(0.002), 0, 1, 0.2),  # 1 ms of compute, 2 requests of 2 ms
        (StorageDelay(0.002), 1, 1, 0.25),
        (StorageDelay(0.002), 2, 1, 0.5),
        (StorageDelay(0.002), 4, 2, 1.0),
        (StorageDelay(0.0, 1e6), 0, 1, 0.2),  # 4 ms of transfer
        (StorageDelay(0.0, 1e6), 4, 1, 0.25),
        (StorageDelay(0.0, 1e6), 4, 2, 0.125),  # shared
        (StorageDelay(0.001, 0.0, 0.002), 1, 1, 0.25),  # the mean of the jitter counts
    ],
)
def test_the_truth_is_the_closed_form_where_there_is_one(
    storage: StorageDelay, workers: int, ranks: int, known: float
) -> None:
    assert ideal_utilisation(storage, SIZES, 1e-3, workers, ranks, steps=1000) == pytest.approx(known, rel=0.02)


def test_cases_compose() -> None:
    every = list(cases())
    assert {case.workers for case in every} == {0, 1, 2, 4}
    assert {case.ranks for case in every} == {1, 2}
    for case in (every[0], every[-1], Case(1.4, "npz", 2, 2)):
        config = compose([*COMMON, f"dataset={case.data}", *options(case)], environ={}).config
        assert config.loader.num_workers == case.workers
        assert config.compute.step_s == pytest.approx(case.step_ms / 1e3)
        assert config.trace.posix


def test_the_check_with_a_device_is_left_out_with_a_reason() -> None:
    assert "control group" in io_max_missing()
