"""Time of preprocessing: the program's time of a sample beside its I/O, less that of the emulation."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hand_made_trainings import MS, PID, TrainingTimes, loader

from dlio_torch.fit.preprocessing import preprocessing, sample_times
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.iotrace.events.torch_calls import BatchArray, BatchArrays


def trained(fetch_ms: list[float], delays_ms: Sequence[float] = ()) -> RecordedTraining:
    """A training without workers.

    Args:
        fetch_ms: times of its fetches, of which 1 ms is a read.
        delays_ms: run delays of the fetches; empty: none are recorded.
    """
    times = TrainingTimes()
    for batch, length in enumerate(fetch_ms):
        start = times.now
        if delays_ms:
            times.add("run_delay", round(delays_ms[batch] * MS))
            times.now = start
        times.add("fetch", round(length * MS), file="loader 0", step=batch, offset=0)
        times.now = start
        times.add("read", MS, file="/data/a", bytes=10, layer="posix")
        times.now = start + round(length * MS)
        times.add("compute", MS, file="loader 0", step=batch)
    times.end_epoch(len(fetch_ms), exhausted=True)
    return times.training()


def test_the_difference_of_a_sample_is_added() -> None:
    result = preprocessing(trained([9.0] * 8), trained([5.0] * 8).recording)
    assert [(value.key, value.value) for value in result.values] == [("compute.preprocess_s", 0.001)]  # batches of 4
    assert "takes 2 ms beside its I/O" in result.values[0].evidence
    assert "the emulation alone takes 1 ms" in result.values[0].evidence


def test_a_slower_emulation_is_a_gap_and_noise_is_nothing() -> None:
    slower = preprocessing(trained([5.0] * 8), trained([9.0] * 8).recording)
    assert (slower.values, len(slower.gaps)) == ((), 1)
    noise = list(np.random.default_rng(0).uniform(5, 9, 16))
    assert preprocessing(trained(noise), trained(noise[::-1]).recording).values == ()


def test_waiting_for_a_core_is_no_preprocessing() -> None:
    busy = trained([5.0] * 8 + [40.0] * 8)
    times = sample_times(busy.recording, busy.training.fetches, 4) if busy.training else None
    assert times is not None
    assert times.quantile(times.level) == pytest.approx(0.001)
    assert preprocessing(busy, trained([5.0] * 8).recording).values == ()


def test_recorded_waits_for_a_core_are_no_preprocessing() -> None:
    delays = [0.0, 8.0, 3.0, 17.0] * 4
    busy = trained([5.0 + delay for delay in delays], delays)
    assert preprocessing(busy, trained([5.0] * 8).recording).values == ()
    result = preprocessing(busy, trained([1.0 + delay for delay in delays], delays).recording)
    assert [(value.key, value.value) for value in result.values] == [("compute.preprocess_s", 0.001)]


def test_a_data_set_that_gives_batches_is_timed_by_their_samples() -> None:
    program = trained([9.0] * 8)
    assert program.training is not None
    arrays = (BatchArrays(0, PID, 0, 0, (BatchArray("0", (8, 3), "float32"),)),)
    whole = replace(program.training, loader=loader(batch_size=None))
    program = replace(program, training=whole, torch=replace(program.torch, arrays=arrays))
    result = preprocessing(program, trained([5.0] * 8).recording)
    assert [(value.key, value.value) for value in result.values] == [("compute.preprocess_s", 0.0005)]


def test_few_batches_say_nothing() -> None:
    assert preprocessing(trained([9.0] * 3), trained([5.0] * 3).recording).values == ()
