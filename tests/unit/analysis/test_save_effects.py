"""Slowed steps during saves in the background: hand-computed ratios, and reasons where there is none."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from figure_checks import check_figures

from dlio_torch.analysis.checkpoint_part import checkpoint_part
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.train.result import TrainResult
from dlio_torch.train.steps import EVAL, STEP_DTYPE, TRAIN, WARMUP, Steps

MS = 1_000_000
STALL = 5


def steps(times: Sequence[tuple[int, int, int, int]]) -> Steps:
    """Steps after one another from (phase, fetch, compute, checkpoint), ms."""
    rows, now = [], 0
    for number, (phase, fetch, compute, checkpoint) in enumerate(times, start=1):
        spent = (fetch, 0, compute, compute, 0, checkpoint)
        rows.append((1, number, phase, now * MS, *(each * MS for each in spent), 4, 1000))
        now += fetch + compute + checkpoint
    return np.array(rows, dtype=STEP_DTYPE)


def save(start: int, durable: int, step: int = 6) -> SaveTimes:
    """A save that begins and is durable at these times, ms."""
    return SaveTimes(step, start * MS, STALL / 1e3, (durable - start) / 1e3, bytes=1000, write_s=0.01)


def part(*ranks: tuple[Steps, list[SaveTimes]], **more: Any) -> dict[str, Any]:
    return checkpoint_part([TrainResult(log, saves=saves, **more) for log, saves in ranks])


# Six steps of 10 ms, the last with a stall of 5 ms; six of 15 ms; seven of 10 ms, of which nothing follows the last.
LOG = steps([*[(TRAIN, 2, 8, 0)] * 5, (TRAIN, 2, 8, STALL), *[(TRAIN, 5, 10, 0)] * 6, *[(TRAIN, 2, 8, 0)] * 7])
SAVE = save(60, 150)


def test_steps_that_began_before_a_save_was_durable_are_compared_with_the_others() -> None:
    figures = part((LOG, [SAVE]))
    assert figures["slowdown"] == pytest.approx(15 / 10 - 1)
    assert figures["fetch_slowdown"] == pytest.approx(5 / 2 - 1)
    assert figures["slowdown_why"] is figures["fetch_slowdown_why"] is None
    assert (figures["during_saves"]["steps"], figures["undisturbed"]["steps"]) == (6, 12)
    assert figures["undisturbed"]["step_s"]["max"] == pytest.approx(0.010)  # without the stall
    check_figures({"checkpoints": figures})


def test_a_save_is_durable_when_the_slowest_rank_is() -> None:
    figures = part((LOG, [save(60, 80)]), (LOG, [SAVE]), (LOG, []))
    assert (figures["during_saves"]["steps"], figures["undisturbed"]["steps"]) == (12, 24)
    assert figures["save"]["durable_s"]["mean"] == pytest.approx(0.090)


def test_warm_up_evaluation_and_last_steps_do_not_count() -> None:
    log = LOG.copy()
    log["phase"][:3] = WARMUP
    log["phase"][14] = EVAL
    figures = part((log, [SAVE]))
    # Of 19 steps: three of warm-up, the evaluation and the step before it, and the last one.
    assert (figures["during_saves"]["steps"], figures["undisturbed"]["steps"]) == (6, 7)


@pytest.mark.parametrize(
    ("saves", "why"),
    [
        ([], "no checkpoint was saved"),
        ([save(60, 60 + STALL)], "no measured step began while a save was written in the background"),
        ([save(60, 90)], "5 steps during saves and 5 undisturbed ones are needed, but this run has 2 and 16"),
        ([save(5, 500)], "5 steps during saves and 5 undisturbed ones are needed, but this run has 17 and 1"),
    ],
)
def test_why_no_slowdown_is_known(saves: list[SaveTimes], why: str) -> None:
    figures = part((LOG, saves))
    assert (figures["slowdown"], figures["fetch_slowdown"]) == (None, None)
    assert figures["slowdown_why"] == figures["fetch_slowdown_why"] == why
    assert (figures["slowdown_ci95"], figures["slowdown_ci95_why"]) == (None, why)
    check_figures({"checkpoints": figures})


def test_few_steps_have_a_slowdown_without_an_interval() -> None:
    figures = part((LOG, [SAVE]), (LOG, [SAVE]), (LOG, [SAVE]), (LOG, [SAVE]))
    assert (figures["during_saves"]["steps"], figures["undisturbed"]["steps"]) == (24, 48)
    assert figures["slowdown"] is not None
    assert figures["slowdown_ci95"] is figures["fetch_slowdown_ci95"] is None
    why = "steps of several ranks at the same time counted once, but this run has 6 and 12"
    assert figures["slowdown_ci95_why"].endswith(why)
    assert figures["fetch_slowdown_ci95_why"].endswith(why)


def test_the_interval_surrounds_the_slowdown_and_narrows_with_the_scatter() -> None:
    def figures(scatter: int) -> dict[str, Any]:
        slow = [(TRAIN, 4, 10 + scatter * (number % 7), 0) for number in range(30)]
        plain = [(TRAIN, 2, 8, 0)] * 30
        log = steps([*plain, (TRAIN, 2, 8, STALL), *slow, *plain])
        durable = 310 + STALL + sum(fetch + compute for _, fetch, compute, _ in slow)
        return part((log, [save(310, durable)]))

    even, rough = figures(0), figures(1)
    assert even["slowdown_ci95"] == pytest.approx([even["slowdown"]] * 2)  # all steps of a kind are equal
    low, high = rough["slowdown_ci95"]
    assert low < rough["slowdown"] < high
    assert rough["slowdown_ci95_why"] is None
    assert rough["fetch_slowdown_ci95"] == pytest.approx([1, 1])
    check_figures({"checkpoints": rough})


def test_waits_of_nothing_have_no_interval() -> None:
    log = steps([*[(TRAIN, 2, 8, 0)] * 30, (TRAIN, 2, 8, STALL), *[(TRAIN, 0, 9, 0)] * 30, *[(TRAIN, 2, 8, 0)] * 9])
    figures = part((log, [save(310, 580)]))
    assert figures["slowdown_ci95"] is not None
    assert figures["fetch_slowdown"] == -1
    assert figures["fetch_slowdown_ci95"] is None
    assert figures["fetch_slowdown_ci95_why"] == "the median of a tenth of the steps is 0"


def test_waits_that_hardly_exist_are_not_compared() -> None:
    log = LOG.copy()
    log["fetch_ns"] = 1000
    figures = part((log, [SAVE]))
    assert figures["slowdown"] is not None
    assert figures["fetch_slowdown"] is None
    assert figures["fetch_slowdown_why"] == "undisturbed steps wait for data less than 1 % of their time"


def test_saves_of_warm_up_and_outside_of_steps_are_not_measured() -> None:
    log = LOG.copy()
    log["phase"][:6] = WARMUP
    assert part((log, [SAVE, save(200, 230, 12), save(900, 990, 19)]))["save"]["count"] == 1
    log["phase"] = WARMUP
    figures = part((log, [SAVE]))
    assert (figures["save"]["count"], figures["save"]["why"]) == (0, "no save was measured")


def test_memory_is_that_of_the_rank_with_most() -> None:
    assert part((LOG, [SAVE]), save_peak_bytes=7)["peak_host_bytes"] == 7
    unknown = part((LOG, [SAVE]))
    assert unknown["peak_host_bytes"] is None
    assert unknown["peak_host_why"].startswith("no save raised the memory of the trainer")


def test_the_restore_of_a_run() -> None:
    figures = part((LOG, [SAVE]), restored=RestoreTimes(2.0, 500, read_s=1.5))
    assert figures["restore"]["bytes_per_s"]["mean"] == 250
    check_figures({"checkpoints": figures})
