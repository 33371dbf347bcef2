"""Advice on simulated trainings: following it brings what it predicts, and where that is not known nothing is said."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from advice_data import evidence
from hypothesis import given, settings
from hypothesis import strategies as st
from loader_sim import WARM, Machine, Simulated, Work, simulate
from span_events import Span, recorded

from dlio_torch.analysis.advice.advise import advise
from dlio_torch.analysis.advice.batch_times import rank_times
from dlio_torch.analysis.advice.evidence import Evidence, changed, loader_setup_of
from dlio_torch.analysis.advice.loader_model import LoaderModel
from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.analysis.advice.transfer_times import TransferTime, fitted
from dlio_torch.analysis.stalls import attribute, summary
from dlio_torch.config.convert import convert
from dlio_torch.config.fields import lookup
from dlio_torch.config.yamlfile import parse_value
from dlio_torch.train.steps import EVAL, STEP_DTYPE, TRAIN

LARGE = Machine(cores=16)


@dataclass(frozen=True)
class Case:
    """A training that is limited by one thing, and what is advised for it.

    Attributes:
        work: what its batches cost.
        rule: that gives the advice.
        loader: its options.
        machine: that it runs on.
        known_cores: what is known of the machine's cores; None: the truth.
        steps: of a run.
    """

    work: Work
    rule: str
    loader: dict[str, Any] = field(default_factory=dict)
    machine: Machine = LARGE
    known_cores: int | None = None
    steps: int = 60


def workers(count: int, factor: int = 2) -> dict[str, Any]:
    return {"loader.num_workers": count, "loader.prefetch_factor": factor}


def threads(count: int) -> dict[str, Any]:
    return {"loader.read_threads": count, "loader.prefetch_batches": count}


def run(case: Case, **figures: Any) -> tuple[Simulated, Evidence]:
    """A run of the case, and what is known after it."""
    plain = evidence(settings=case.loader)
    done = simulate(case.work, loader_setup_of(plain.config), case.machine, case.steps)
    times = rank_times(done.recording, {0: done.steps})
    waited = summary(attribute(done.recording), WARM)
    cores = case.known_cores or case.machine.cores
    environment = {"cpu": {"cores_usable": cores}, "memory": {"available_bytes": 1 << 30}}
    found = evidence(settings=case.loader, times=times, cores=cores, environment=environment, stalls=waited, **figures)
    assert found.waits == pytest.approx(done.waits, abs=0.01)
    return done, found


def followed(case: Case, found: Evidence, item: dict[str, Any]) -> Simulated:
    """The run with the advised setting."""
    pairs = [(item["key"], item["value"]), *item["also"]]
    options = {key: convert(parse_value(value, key), lookup(key.split("."))) for key, value in pairs}
    config = changed(found.config, options)
    return simulate(case.work, loader_setup_of(config), case.machine, case.steps)


MEASURED = {
    # Nothing is left open: the prediction has two ends.
    "CPU, a worker": Case(Work(preprocess=30), "more_readers", workers(1)),
    "CPU, a worker, cores for two": Case(Work(preprocess=30), "more_readers", workers(1), Machine(cores=2)),
    "CPU, a thread": Case(Work(preprocess=30), "more_readers", threads(1)),
    "CPU and device, a worker": Case(Work(preprocess=20, device=10), "more_readers", workers(1)),
    "short steps, slow transfer": Case(Work(preprocess=12, copy=2, take=2, step=3), "more_readers", workers(1)),
    "uneven, a worker": Case(Work(nap=[2] * 7 + [90], step=20), "deeper_prefetch", workers(1, 1)),
    "uneven, a thread": Case(Work(nap=[2] * 7 + [90], step=20), "deeper_prefetch", threads(1)),
}
AT_BEST = {
    "sleeping, nobody": Case(Work(nap=30), "more_readers"),
    "sleeping, a worker": Case(Work(nap=30), "more_readers", workers(1)),
    "sleeping, a thread": Case(Work(nap=30), "more_readers", threads(1)),
    "CPU, nobody": Case(Work(preprocess=30), "more_readers"),
    "the interpreter's lock, a thread": Case(Work(decode=30), "more_readers", threads(1)),
    "fast device, a worker": Case(Work(device=30), "more_readers", workers(1)),
    "slow device, a worker": Case(Work(device=30), "more_readers", workers(1), Machine(cores=16, slots=1)),
    "slow device, nobody": Case(Work(device=30), "more_readers", {}, Machine(cores=16, slots=1)),
    "transfer": Case(Work(preprocess=2, copy=40, step=5), "hand_over", workers(2)),
}


@pytest.mark.parametrize("name", MEASURED)
def test_what_was_predicted_comes(name: str) -> None:
    case = MEASURED[name]
    before, found = run(case)
    assert found.model is not None
    assert abs(found.model.error) < 0.05
    [item] = [item for item in advise(found)["items"] if item["rule"] == case.rule]
    predicted, after = item["predicted"], followed(case, found, item)
    assert predicted["low"] - 0.02 <= after.waits <= predicted["high"] + 0.02
    saved = 1 - after.step_s / before.step_s
    assert predicted["gain_low"] - 0.02 <= saved <= predicted["gain_high"] + 0.02
    assert saved > 0.1
    assert item["confidence"] in ("medium", "high")


@pytest.mark.parametrize("name", AT_BEST)
def test_what_was_predicted_at_best_is_not_exceeded(name: str) -> None:
    case = AT_BEST[name]
    _, found = run(case)
    [item] = [item for item in advise(found)["items"] if item["rule"] == case.rule]
    predicted, after = item["predicted"], followed(case, found, item)
    assert predicted["high"] is None
    assert "at best" in item["text"]
    assert after.waits >= predicted["low"] - 0.02
    assert item["confidence"] in ("low", "medium")


def test_the_interpreter_s_lock_makes_workers_of_threads() -> None:
    case = AT_BEST["the interpreter's lock, a thread"]
    _, found = run(case)
    [item] = advise(found)["items"]
    assert (item["key"], dict(item["also"])["loader.read_threads"]) == ("loader.num_workers", "0")
    assert simulate(case.work, LoaderSetup("threads", 4, 4), case.machine, case.steps).waits > 0.6
    assert followed(case, found, item).waits < 0.05


def test_a_device_that_was_not_measured_is_named() -> None:
    _, found = run(AT_BEST["slow device, a worker"])
    [item] = advise(found)["items"]
    assert item["text"].endswith(
        "at best, if the storage delivers a higher rate for more concurrent requests (set storage.limits=measure to "
        "measure its limit)"
    )
    assert item["confidence"] == "low"


@pytest.mark.parametrize("slots", [1, 4])
def test_a_device_that_was_measured_limits_the_prediction(slots: int) -> None:
    case = Case(Work(device=30), "more_readers", workers(1), Machine(cores=16, slots=slots), steps=240)
    before, found = run(case, storage={"share": None, "share_of_most": 1 / slots, "pattern": "sequential"})
    advice = advise(found)
    if slots == 1:
        assert advice["items"] == []
        assert advice["conclusion"].startswith(
            "The storage is the bottleneck: it delivers 100.0 % of its largest measured rate"
        )
        more = simulate(case.work, LoaderSetup("workers", 4, 8), case.machine, case.steps)
        assert more.step_s > 0.95 * before.step_s
        return
    [item] = advice["items"]
    after = followed(case, found, item)
    assert item["predicted"]["low"] - 0.02 <= after.waits <= item["predicted"]["high"] + 0.02


def test_all_cores_in_use_is_no_case_for_more_workers() -> None:
    case = Case(Work(preprocess=30), "", workers(2), Machine(cores=2))
    _, found = run(case)
    advice = advise(found)
    assert advice["items"] == []
    assert "more workers: the machine has no free core (2 CPU cores)" in advice["withheld"]


def test_fewer_workers_than_cores_are_as_fast() -> None:
    case = Case(Work(preprocess=30, step=1), "fewer_workers", workers(8), Machine(cores=2), steps=240)
    before, found = run(case)
    [item] = advise(found)["items"]
    assert (item["rule"], item["value"]) == ("fewer_workers", "2")
    assert followed(case, found, item).step_s <= 1.05 * before.step_s


def test_cores_that_others_have_are_no_reason_for_fewer_workers() -> None:
    """Half of the cores are not the run's: each worker that goes leaves its share of the time to the others."""
    case = Case(Work(preprocess=30, step=1), "", workers(8), Machine(cores=2), known_cores=4)
    _, found = run(case)
    advice = advise(found)
    assert advice["items"] == []
    assert any("other programs" in reason for reason in advice["withheld"])
    assert "repeat the run on an idle machine" in advice["conclusion"]


@pytest.mark.parametrize("cores", [4, 16])
def test_workers_hand_batches_over_one_after_another(cores: int) -> None:
    case = Case(Work(preprocess=5, copy=40, take=3, step=5), "hand_over", workers(2), Machine(cores=cores))
    _, found = run(case)
    model = found.model
    assert model is not None
    assert abs(model.error) < 0.05
    for count in (1, 3, 4, 6):
        setup = LoaderSetup("workers", count, 2 * count)
        least, most = (one.outcome(setup).step_s for one in (model, model.cautious()))
        step = simulate(case.work, setup, case.machine, case.steps).step_s
        assert 0.97 * least <= step <= 1.03 * most


def test_two_threads_of_a_core_may_be_no_faster_than_one() -> None:
    case = Case(Work(preprocess=30), "more_readers", workers(1), Machine(cores=4))
    _, found = run(case)
    assert found.model is not None
    shared = LoaderModel(found.model.times, found.model.setup, 4, full_cores=2)
    alone, both = (
        Evidence(found.summary, found.config, found.environment, model).forecast(
            LoaderSetup("workers", 4, 8), sure=True, assumption=""
        )
        for model in (found.model, shared)
    )
    assert alone.high is not None
    assert both.high is not None
    assert alone.high < 0.1
    assert both.low == alone.low
    assert both.high == pytest.approx(1 - 10 / 15, abs=0.03)  # two cores make a batch in 15 ms


# --- the transfer, fitted to when batches were finished, asked for and had ---


def handed(ended: list[float], producers: int, sending: float, serial: float, step: float) -> tuple[Any, ...]:
    """When batches were asked for, finished and had, by producers in turn; and which of them made each."""
    asked, had, ready = [0.0], [], [0.0] * producers
    for k, end in enumerate(ended):
        ready[k % producers] = max(end, ready[k % producers]) + sending
        had.append(max(asked[k], ready[k % producers]) + serial)
        asked.append(had[k] + step)
    producer = np.arange(len(ended)) % producers
    return np.array(asked[:-1]), np.array(ended), np.array(had), producer, np.ones(len(ended), int)


def test_a_trainer_that_always_waits_shows_the_sum_of_both_parts() -> None:
    least, most = fitted(*handed([0.03 * k for k in range(1, 40)], 1, sending=0.003, serial=0.001, step=0.001)) or ()
    assert (least.serial, least.sending) == pytest.approx((0, 0.004), abs=1e-9)
    assert (most.serial, most.sending) == pytest.approx((0.004, 0), abs=1e-9)


def test_batches_that_lie_ready_show_the_trainer_s_part() -> None:
    least, most = fitted(*handed([0.001 * k for k in range(40)], 2, sending=0.0005, serial=0.004, step=0.02)) or ()
    assert least.serial == most.serial == pytest.approx(0.004, abs=1e-9)
    assert least.sending == 0


def test_makers_that_hand_over_all_the_time_show_both() -> None:
    least, most = fitted(*handed([0.001 * k for k in range(40)], 2, sending=0.04, serial=0.003, step=0.001)) or ()
    for one in (least, most):
        assert (one.serial, one.sending) == pytest.approx((0.003, 0.04), abs=1e-4)


def test_no_batches_show_nothing() -> None:
    assert fitted(*handed([], 1, 0.1, 0.1, 0.1)) is None


@given(
    st.lists(st.floats(0, 0.02), min_size=12, max_size=40),
    st.integers(1, 4),
    st.floats(0, 0.03),
    st.floats(0, 0.01),
    st.floats(0, 0.03),
)
@settings(max_examples=60, deadline=None)
def test_a_fit_is_no_worse_than_no_hand_over(
    gaps: list[float], producers: int, sending: float, serial: float, step: float
) -> None:
    asked, ended, had, *who = handed(list(np.cumsum(gaps)), producers, sending, serial, step)

    def missed(one: TransferTime) -> float:
        ready = ended + one.sending
        for k in range(producers, len(ended)):
            ready[k] = max(ended[k], ready[k - producers]) + one.sending
        return float(np.abs(had - np.maximum(asked, ready) - one.serial)[producers:].mean())

    found = fitted(asked, ended, had, *who)
    assert found is not None
    least, most = found
    assert 0 <= least.serial <= most.serial
    for one in found:
        assert one.sending >= 0
        assert missed(one) <= 1.2 * missed(TransferTime(0, 0)) + 1e-4


def test_an_evaluation_between_the_steps_of_a_batch_is_not_their_time() -> None:
    ms = 1_000_000
    steps = np.zeros(6, STEP_DTYPE)
    steps["epoch"], steps["phase"] = 1, [TRAIN, EVAL, TRAIN, TRAIN, TRAIN, TRAIN]
    # Two batches of two steps, and one; the evaluation of 500 ms lies inside the first one.
    steps["start_ns"] = np.array([0, 20, 520, 540, 560, 580]) * ms
    steps["fetch_ns"] = np.array([5, 0, 0, 5, 0, 5]) * ms
    steps["compute_ns"] = 10 * ms
    spans = []
    for step, (start, number) in enumerate([(0, 1), (520, 1), (540, 2), (560, 2), (580, 3)], 1):
        length = 5 if step in (1, 3, 5) else 0
        spans.append(Span("fetch", start * ms, (start + length) * ms, offset=number, step=step))
    spans += [Span("batch", (at + 1) * ms, (at + 4) * ms, offset=n, tid=9) for n, at in ((1, 0), (2, 540), (3, 580))]
    [found] = rank_times(recorded(spans), {0: steps}) or []
    assert found.steps.tolist() == [2, 2, 1]
    assert (found.fetch + found.before + found.reduce + found.after).tolist() == pytest.approx([0.025, 0.04, 0.015])
