"""Advice: rules on made-up figures at their thresholds and without their evidence, and real runs that follow it."""

from __future__ import annotations

import io
import itertools
import json
import os
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from advice_data import SAMPLE, evidence, rank_times, without
from hypothesis import given, settings
from hypothesis import strategies as st
from overrides import overridden
from rich.console import Console

from dlio_torch import cli
from dlio_torch.analysis.advice.advise import advise
from dlio_torch.analysis.advice.evidence import Evidence
from dlio_torch.analysis.advice.loader_model import LoaderModel
from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.compute.emulate import Preprocess
from dlio_torch.config.convert import convert
from dlio_torch.config.fields import lookup
from dlio_torch.config.yamlfile import parse_value
from dlio_torch.formats.hdf5 import reader as hdf5_reader
from dlio_torch.report.advice_text import draw_advice
from dlio_torch.report.html import report_run


def given_by(found: Evidence) -> dict[str, dict[str, Any]]:
    """The advice by rule, which is plain values."""
    advice = advise(found)
    assert json.loads(json.dumps(advice, allow_nan=False)) == advice
    for item in advice["items"]:
        assert "\n" not in item["text"]
        assert item["evidence"]
        if item["key"] is not None:
            assert item["value"] in item["text"]
            for key, value in [(item["key"], item["value"]), *item["also"]]:
                convert(parse_value(value, key), lookup(key.split(".")))
    return {item["rule"]: item for item in advice["items"]}


# --- the model ---------------------------------------------------------------------------------


def model(times: Any, setup: LoaderSetup, cores: float | None = None, **options: Any) -> LoaderModel:
    return LoaderModel(times if isinstance(times, list) else [times], setup, cores, **options)


@pytest.mark.parametrize(
    ("production", "rest", "setup", "step"),
    [
        (0.03, 0.01, LoaderSetup("trainer"), 0.04),  # one after the other
        (0.03, 0.01, LoaderSetup("threads", 1, 1), 0.03),  # the slower of both
        (0.01, 0.03, LoaderSetup("threads", 1, 1), 0.03),
        (0.03, 0.01, LoaderSetup("workers", 2, 4), 0.015),
        (0.03, 0.01, LoaderSetup("workers", 8, 16), 0.01),
        (0.03, 0.01, LoaderSetup("threads", 4, 1), 0.03),  # four threads, and only one batch is asked for
    ],
)
def test_long_runs_reach_the_bound_of_the_slower_side(
    production: float, rest: float, setup: LoaderSetup, step: float
) -> None:
    times = rank_times(production, rest, steps=2000, latency=0.0)
    found = model(times, LoaderSetup("workers", 1, 2)).outcome(setup)
    assert found.step_s == pytest.approx(step, rel=0.02)
    assert found.fetch_s == pytest.approx(step - rest, rel=0.02, abs=1e-4)


def test_makers_share_cores() -> None:
    times = rank_times(0.03, 0.001, steps=2000, latency=0.0)
    busy = model(times, LoaderSetup("workers", 1, 2), cores=2)
    assert busy.outcome(LoaderSetup("workers", 6, 12)).step_s == pytest.approx(0.015, rel=0.02)
    assert busy.most_producers() == 2
    waiting = model(
        rank_times(0.03, 0.001, steps=2000, latency=0.0, asleep=0.75), LoaderSetup("workers", 1, 2), cores=2
    )
    assert waiting.outcome(LoaderSetup("workers", 6, 12)).step_s == pytest.approx(0.005, rel=0.02)
    assert waiting.most_producers() == 8


def test_threads_under_one_lock_read_one_after_another() -> None:
    times = rank_times(0.03, 0.001, steps=2000, latency=0.0, read=2 / 3)
    for found in (
        model(times, LoaderSetup("threads", 1, 1), one_lock=True),
        model(replace(times, turns=True), LoaderSetup("threads", 1, 1)),
    ):
        assert found.outcome(LoaderSetup("threads", 4, 8)).step_s == pytest.approx(0.02, rel=0.02)
        assert found.outcome(LoaderSetup("workers", 4, 8)).step_s == pytest.approx(0.0075, rel=0.02)


def test_ranks_that_reduce_wait_for_the_last() -> None:
    ranks = [rank_times(0.001, 0.01, latency=0.0, reduce=0.02), rank_times(0.001, 0.03, latency=0.0, reduce=0.0001)]
    assert model(ranks, LoaderSetup("workers", 1, 2)).modelled.step_s == pytest.approx(0.0301, rel=0.02)


def test_depth_helps_where_times_are_uneven() -> None:
    times = rank_times([0.005] * 9 + [0.06], 0.012, steps=400, latency=0.0)
    steps = [
        model(times, LoaderSetup("workers", 1, 1)).outcome(LoaderSetup("workers", 1, depth)).step_s
        for depth in (1, 2, 4, 16)
    ]
    assert steps == sorted(steps, reverse=True)
    assert steps[0] > 1.3 * steps[-1]
    assert steps[-1] == pytest.approx(0.012, rel=0.05)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(1e-4, 0.1), min_size=2, max_size=30),
    st.lists(st.floats(1e-4, 0.1), min_size=2, max_size=30),
    st.integers(1, 4),
    st.integers(1, 8),
)
def test_no_reader_beats_the_bounds(production: list[float], rest: list[float], producers: int, depth: int) -> None:
    times = rank_times(production, rest, steps=30, latency=0.0)
    found = model(times, LoaderSetup("workers", 1, 2))
    total = 30 * found.outcome(LoaderSetup("workers", producers, depth)).step_s
    assert total >= max(times.before.sum(), times.production.sum() / producers) - 1e-9
    assert total <= 30 * found.outcome(LoaderSetup("trainer")).step_s + 1e-9
    assert total >= 30 * found.outcome(LoaderSetup("workers", producers, depth + 1)).step_s - 1e-9


# --- rules: each fires, does not just below its threshold, nor without its evidence -------------

WORKER = {"loader.num_workers": 1}
CHUNKED = {"access.order": "shuffled", "dataset.hdf5.chunk_bytes": 4 * SAMPLE}
READS = {"stalls__shares": {"device": 0.6, "decode": 0.1}, "shares__fetch": 0.4}
COMPRESSED = {"dataset.hdf5.compression": "gzip", "dataset.hdf5.chunk_bytes": SAMPLE}
DECODES = {"stalls__shares": {"decode": 0.6}, "stalls__parts": {"decode": 0.5}, "shares__fetch": 0.4}
SAVES = {"checkpoint.layout": "torch_save", "checkpoint.state_bytes": 1000, "checkpoint.every_steps": 5}
COPIES = {"settings": {"train.device": "cuda"}, "shares__copy": 0.2, "copies": {"bytes_per_s": 5e9}}
SAVED = {"shares__checkpoint": 0.3, "checkpoints__measured": 4, "checkpoints__duration_s": {"mean": 0.05}}
SMALL = {"dataset.format": "tfrecord", "dataset.tfrecord.transfer_size": 4096}
EVALUATES = {"train.eval_every_epochs": 1, "dataset.num_files_eval": 1, "dataset.samples_per_file_eval": 8}
TWO_RANKS = [{"rank": 0, "steps": 20, "allreduce_s": 0.02}, {"rank": 1, "steps": 20, "allreduce_s": 0.02}]
UNEVEN = [{"rank": 0, "steps": 20, "allreduce_s": 0.02}, {"rank": 1, "steps": 20, "allreduce_s": 0.001}]
LATE = {"compute_error": {"relative_total": 0.2, "requested_s": {"mean": 0.01}}, "au__mean": 0.8}
EPOCHS = {"train.epochs": 3}

FIRES: dict[str, tuple[dict[str, Any], tuple[str, str | None, str | None]]] = {
    # name: what is found, and rule, key and value of the advice
    "own": (
        {"times": rank_times(0.03, 0.01, by_trainer=True, fetch=0.03)},
        ("more_readers", "loader.num_workers", "4"),
    ),
    "one worker": (
        {"settings": WORKER, "times": rank_times(0.03, 0.01)},
        ("more_readers", "loader.num_workers", "4"),
    ),
    "one worker with a reserve": (
        {"settings": WORKER, "times": rank_times(0.025, 0.01)},
        ("more_readers", "loader.num_workers", "3"),
    ),
    "one thread": (
        {"settings": {"loader.read_threads": 1}, "times": rank_times(0.03, 0.01, preprocess=0.9)},
        ("more_readers", "loader.read_threads", "4"),
    ),
    "one thread that holds the interpreter": (
        {"settings": {"loader.read_threads": 1}, "times": rank_times(0.03, 0.01, preprocess=0.1)},
        ("more_readers", "loader.num_workers", "4"),
    ),
    "one lock": (
        {"settings": {"loader.read_threads": 1}, "times": rank_times(0.03, 0.01, read=0.99), "one_lock": True},
        ("more_readers", "loader.num_workers", "4"),
    ),
    "crowded": (
        {"settings": {"loader.num_workers": 6}, "times": rank_times(0.02, 0.001, fetch=0.02, delay=0.5), "cores": 1},
        ("fewer_workers", "loader.num_workers", "1"),
    ),
    "shallow": (
        {
            "settings": {**WORKER, "loader.prefetch_factor": 1},
            "times": rank_times([0.005] * 9 + [0.06], 0.012, steps=100, fetch=[0.0001] * 9 + [0.053], idle=0.4),
            "stalls__wait_s": 1.0,
            "stalls__ahead_s": 0.3,
        },
        ("deeper_prefetch", "loader.prefetch_factor", "8"),
    ),
    "transfer": (
        {
            "settings": WORKER,
            "times": rank_times(0.001, 0.01, latency=0.02, serial=0.02, fetch=0.02, idle=0.9),
            "stalls__shares": {"hand_over": 0.9},
        },
        ("hand_over", "loader.num_workers", "0"),
    ),
    "transfer in a crowd": (  # what of it waited for a core counts as that
        {
            "settings": WORKER,
            "times": rank_times(0.001, 0.01, latency=0.09, fetch=0.08, idle=0.9, delay=2.0),
            "stalls__shares": {"hand_over": 0.2, "starved": 0.7},
        },
        ("hand_over", "loader.num_workers", "0"),
    ),
    "chunks": (
        {"settings": CHUNKED, "reads__bytes_per_sample": 4.0 * SAMPLE, **READS},
        ("read_amplification", "dataset.hdf5.chunk_bytes", "16KiB"),
    ),
    "chunks in order": (
        {
            "settings": {"dataset.hdf5.chunk_bytes": 1 << 21},
            "reads__bytes_per_sample": 100.0 * SAMPLE,
            **READS,
        },
        ("read_amplification", "dataset.hdf5.chunk_cache_bytes", "2MiB"),
    ),
    "chunks of arrays that are opened again": (
        {
            "settings": {"dataset.hdf5.chunk_bytes": 1 << 19, "dataset.hdf5.reopen": "array"},
            "reads__bytes_per_sample": 100.0 * SAMPLE,
            **READS,
        },
        ("read_amplification", "dataset.hdf5.reopen", "none"),
    ),
    "chunks of files that are opened again": (
        {
            "settings": {"dataset.hdf5.chunk_bytes": 1 << 19, "dataset.hdf5.reopen": "file"},
            "reads__bytes_per_sample": 100.0 * SAMPLE,
            **READS,
        },
        ("read_amplification", "dataset.hdf5.reopen", "none"),
    ),
    "row groups": (
        {
            "settings": {"dataset.format": "parquet", "access.order": "shuffled", "train.batch_size": 4},
            "reads__bytes_per_sample": 100.0 * SAMPLE,
            **READS,
        },
        ("read_amplification", "dataset.parquet.row_group_samples", "4"),
    ),
    "transfers": (
        {"settings": SMALL, "reads__mean_bytes": 4096.0, "reads__calls_per_sample": 64.0, **READS},
        ("small_transfers", "dataset.tfrecord.transfer_size", "256KiB"),
    ),
    "compressed": (
        {"settings": COMPRESSED, **DECODES},
        ("compression", "dataset.hdf5.compression", "none"),
    ),
    "again": (
        {"settings": {**WORKER, **EPOCHS}, "times": rank_times(0.03, 0.01, read=0.9), "cores": 1},
        ("in_memory", "loader.in_memory", "true"),
    ),
    "restarts": (
        {"settings": {**WORKER, **EPOCHS}, "shares__between_epochs": 0.2},
        ("persistent_workers", "loader.persistent_workers", "true"),
    ),
    "copies": (COPIES, ("pinned_memory", "loader.pin_memory", "true")),
    "checkpoints": ({"settings": SAVES, **SAVED}, ("checkpoints", "checkpoint.every_steps", "45")),
    "gradients": (
        {"settings": {"train.allreduce_bytes": 1 << 24}, "ranks": TWO_RANKS, "shares__allreduce": 0.3},
        ("allreduce", "train.allreduce_bytes", "8388608"),
    ),
    "uneven ranks": (
        {"settings": {"train.allreduce_bytes": 1 << 24}, "ranks": UNEVEN, "shares__allreduce": 0.3},
        ("uneven_ranks", None, None),
    ),
    "evaluation": (
        {"settings": EVALUATES, "eval__elapsed_s": 0.5, "eval__steps": 8},
        ("evaluation", "train.eval_every_epochs", "2"),
    ),
    "late": (LATE, ("late_compute", None, None)),
    "late with workers": (
        {
            "settings": {"loader.num_workers": 8, "compute.mode": "spin", "compute.threads": 2},
            "times": rank_times(0.02, 0.05, fetch=0.0001, idle=0.95),
            **LATE,
        },
        ("late_compute", "loader.num_workers", "2"),
    ),
    "late with threads": (
        {"settings": {"compute.mode": "spin", "compute.threads": 8}, **LATE},
        ("late_compute", "compute.threads", "4"),
    ),
    "warm": (
        {"settings": {"cache.state": "as_is"}, "io__device_read_share": 0.01, "io__cached_share_before": 1.0},
        ("cold_cache", "cache.state", "cold"),
    ),
}


@pytest.mark.parametrize("name", FIRES)
def test_each_rule_fires_alone(name: str) -> None:
    found, (rule, key, value) = FIRES[name]
    items = given_by(evidence(**found))
    assert list(items) == [rule]
    assert (items[rule]["key"], items[rule]["value"]) == (key, value)


BELOW = {
    # the same, but for something that is just too little
    "own": [
        {"times": rank_times(0.0005, 0.01, by_trainer=True, fetch=0.0005)},  # waits 4.8 %
        {"cores": 0.5},
        {"cores": None},
        {"times": rank_times(0.03, 0.01, by_trainer=True, fetch=0.03, delay=0.2)},  # starved
        {"times": rank_times(0.03, 0.01, by_trainer=True, fetch=0.06)},  # the model misses it
        {"times": None, "shares__fetch": 0.7},
        {"train__steps": 7},
        {"train__why": "all was warm-up"},
        {"settings": {"loader.replay": "samples"}},
        {"times": rank_times(0.03, 0.01, by_trainer=True, fetch=0.03, steps=7)},  # batches that serve several steps
        {"environment": {"cpu": {}, "memory": {"available_bytes": 100}}},  # nothing holds more batches
    ],
    "one worker": [
        {"cores": 1},
        {"times": rank_times(0.03, 0.01, idle=0.3)},
        {"times": rank_times(0.03, 0.01, delay=0.2)},
        {"times": rank_times(0.0102, 0.01)},
        {"storage__share_of_most": 0.98},
    ],
    "one thread": [{"cores": 1}],
    "crowded": [
        {"times": rank_times(0.02, 0.001, fetch=0.02, delay=0.3)},  # 0.3 / 1.3
        {"cores": 6},
        {"times": rank_times(0.02, 0.001, fetch=0.02, delay=float("nan"))},
    ],
    "shallow": [
        {"stalls__ahead_s": 0.09},
        {"times": rank_times([0.005] * 9 + [0.06], 0.012, steps=100, fetch=[0.0001] * 9 + [0.053], delay=0.2)},
        {
            "settings": {**WORKER, "loader.prefetch_factor": 16},
            "times": rank_times([0.005] * 9 + [0.06], 0.012, fetch=[0.0001] * 9 + [0.02], idle=0.4),
        },
        {"environment": {"memory": {"available_bytes": 1000}}},
        {"times": None, "shares__fetch": 0.3},
    ],
    "transfer": [
        {"times": rank_times(0.001, 0.01, latency=0.02, serial=0.02, fetch=0.05)},  # the model misses it
        {
            "stalls__shares": {"hand_over": 0.29},
            "times": rank_times(0.001, 0.05, latency=0.01, serial=0.01, fetch=0.01, idle=0.9),
        },
        {"times": rank_times(0.05, 0.01, latency=0.001, fetch=0.041)},  # made as slowly there
        {"times": None, "shares__fetch": 0.6},
    ],
    "transfer in a crowd": [
        {"times": rank_times(0.001, 0.1, latency=0.09, fetch=0.01, idle=0.9, delay=2.0)},  # it is seldom at work
    ],
    "chunks": [
        {"reads__bytes_per_sample": 1.4 * SAMPLE},
        {"stalls__shares": {"device": 0.29}},
        {"shares__fetch": 0.04},
        {"settings": {"access.order": "shuffled", "dataset.hdf5.chunk_bytes": SAMPLE}},
        {"settings": {"dataset.hdf5.chunk_bytes": 4 * SAMPLE}},  # in order, and the cache keeps it
    ],
    "row groups": [{"settings": {"dataset.format": "parquet", "train.batch_size": 4}}],
    "transfers": [
        {"reads__mean_bytes": 20000.0},
        {"reads__calls_per_sample": 7.0},
        {"stalls__shares": {"device": 0.29}},
        {"shares__fetch": 0.04},
        {"settings": {"dataset.format": "tfrecord"}},  # it is large already
        {"settings": {"dataset.format": "larcv3"}},
    ],
    "compressed": [
        {"stalls__shares": {"decode": 0.49}},
        {"stalls__parts": {"decode": 0.1}},
        {"shares__fetch": 0.04},
        {"settings": {}},
        {"settings": {**COMPRESSED, "dataset.path": "/data"}},
    ],
    "again": [
        {"times": rank_times(0.03, 0.01, read=0.9, delay=0.2)},
        {"settings": WORKER},  # one epoch
        {"times": rank_times(0.03, 0.01, read=0.2)},
        {"environment": {"memory": {"available_bytes": 80 * SAMPLE}}},
        {"environment": {}},
        {"settings": {**WORKER, **EPOCHS, "scale.max_samples": 10}},
        {"times": None, "shares__fetch": 0.7},
        {"io__rchar_bytes": None},
    ],
    "restarts": [
        {"shares__between_epochs": 0.04},
        {"settings": {**WORKER, **EPOCHS, "loader.persistent_workers": True}},
        {"settings": WORKER},
        {"settings": EPOCHS},
        {"settings": {**WORKER, **EPOCHS, "loader.engine": "nodes"}},
    ],
    "copies": [{"shares__copy": 0.04}, {"settings": {"train.device": "cuda", "loader.pin_memory": True}}],
    "checkpoints": [
        {"shares__checkpoint": 0.09},
        {"checkpoints__measured": 1},
        {"settings": {**SAVES, "scale.checkpoint": 0.1}},
    ],
    "gradients": [
        {"shares__allreduce": 0.09},
        {"settings": {"train.allreduce_bytes": 1000}},
        {"settings": {"train.allreduce_bytes": 1 << 24, "scale.allreduce": 0.1}},
        {"ranks": TWO_RANKS[:1]},
    ],
    "uneven ranks": [{"shares__allreduce": 0.09}, {"ranks": [dict.fromkeys(row) for row in UNEVEN]}],
    "evaluation": [{"eval__elapsed_s": 0.2}, {"settings": {**EVALUATES, "scale.max_samples": 10}}],
    "late": [
        {"au__mean": 0.91},
        {"compute_error": {"relative_total": 0.2, "requested_s": {"mean": 0.0005}}},
        {"compute_error": None},
    ],
    "warm": [
        {"io__device_read_share": 0.06},
        {"settings": {"cache.state": "warm"}},
        {"cache__warnings": ["the data fit in memory"]},
    ],
}  # fmt: skip


@pytest.mark.parametrize(("name", "number"), [(name, number) for name in BELOW for number in range(len(BELOW[name]))])
def test_no_rule_fires_on_less(name: str, number: int) -> None:
    found, (rule, _, _) = FIRES[name]
    assert rule not in given_by(evidence(**{**found, **BELOW[name][number]}))


NEEDS = {
    "own": ["shares.fetch"],
    "one worker": ["shares.fetch"],
    "shallow": ["stalls.wait_s", "stalls.ahead_s", "shares.fetch", "stalls"],
    "transfer": ["stalls.shares.hand_over", "shares.fetch", "stalls"],
    "chunks": ["reads.bytes_per_sample", "train.bytes", "shares.fetch", "stalls", "reads"],
    "transfers": ["reads.mean_bytes", "reads.calls_per_sample", "shares.fetch", "stalls", "reads"],
    "compressed": ["stalls.shares.decode", "stalls.parts.decode", "shares.fetch", "stalls"],
    "again": ["io.rchar_bytes", "train.bytes", "shares.fetch"],
    "restarts": ["shares.between_epochs"],
    "copies": ["shares.copy", "copies.bytes_per_s", "copies"],
    "checkpoints": ["shares.checkpoint", "checkpoints.measured"],
    "gradients": ["shares.allreduce", "ranks"],
    "uneven ranks": ["shares.allreduce", "ranks"],
    "evaluation": ["eval.elapsed_s", "train.elapsed_s", "eval"],
    "late": ["shares.compute", "au.mean", "compute_error", "compute_error.relative_total"],
    "warm": ["io.device_read_share", "io.rchar_bytes", "io"],
}


@pytest.mark.parametrize(("name", "path"), [(name, path) for name in NEEDS for path in NEEDS[name]])
def test_no_rule_fires_without_its_evidence(name: str, path: str) -> None:
    found, (rule, _, _) = FIRES[name]
    assert rule not in given_by(without(evidence(**found), path))


def test_rules_are_complete() -> None:
    from dlio_torch.analysis.advice.advise import RULES

    fired = {rule for _, (rule, _, _) in FIRES.values()}
    assert {rule.__name__ for rule in RULES} == (fired - {"uneven_ranks"})


# --- what the advice says ------------------------------------------------------------------------


def test_advice_names_key_value_and_figures() -> None:
    found = evidence(settings=WORKER, times=rank_times(0.04, 0.01, idle=0.03, steps=400, fetch=0.0301))
    item = given_by(found)["more_readers"]
    assert item["text"] == (
        "steps wait for data 75.1 % of the time; the worker is idle 3.0 % of the time; 4 CPU cores; raising "
        "loader.num_workers from 1 to 4 is predicted to reduce the wait to 1.0 % to 2.1 % of the time"
    )
    figures = dict(item["evidence"])
    assert figures["making.seconds_per_batch"] == pytest.approx(0.04)
    assert figures["environment.cpu.cores_usable"] == 4
    predicted = item["predicted"]
    assert predicted["figure"] == "shares.fetch"
    assert predicted["now"] == pytest.approx(0.75, abs=0.01)
    assert 0.7 < predicted["gain_low"] <= predicted["gain_high"] < 0.76
    assert item["confidence"] == "high"


def test_what_the_model_missed_widens_the_interval() -> None:
    exact = given_by(evidence(settings=WORKER, times=rank_times(0.03, 0.01, fetch=0.0201)))["more_readers"]["predicted"]
    off = given_by(evidence(settings=WORKER, times=rank_times(0.03, 0.01, fetch=0.026)))["more_readers"]["predicted"]
    assert exact["high"] - exact["low"] < 0.05 < off["high"] - off["low"]


def test_what_was_not_measured_leaves_a_prediction_open() -> None:
    own = given_by(evidence(times=rank_times(0.03, 0.01, by_trainer=True, fetch=0.03)))["more_readers"]
    assert own["predicted"]["high"] is None
    assert "at best" in own["text"]
    assert "transfer" in own["predicted"]["assumption"]
    device = rank_times(0.03, 0.01, asleep=0.9, read=0.9)
    reads = given_by(evidence(settings=WORKER, times=device))["more_readers"]
    assert reads["predicted"]["high"] is None
    assert "if the storage delivers a higher rate for more concurrent requests" in reads["text"]
    assert "the storage delivers a higher rate" in reads["predicted"]["assumption"]
    assert reads["confidence"] == "low"
    waits = given_by(evidence(settings=WORKER, times=rank_times(0.03, 0.01, asleep=0.9)))["more_readers"]
    assert waits["predicted"]["high"] is None
    assert "if the resource that batch production waits for serves more concurrent requests" in waits["text"]
    limited = evidence(settings=WORKER, times=device, storage__share_of_most=0.5, storage__pattern="sequential")
    found = given_by(limited)["more_readers"]["predicted"]
    assert found["high"] is not None
    assert found["gain_high"] <= 0.5 + 1e-9  # no faster than the storage


def test_the_largest_gain_comes_first_and_one_value_for_a_key() -> None:
    found = evidence(
        settings={"loader.num_workers": 8, "compute.mode": "spin", "compute.threads": 2, **SAVES},
        times=rank_times(0.02, 0.001, fetch=0.009, delay=0.5),
        cores=2,
        **LATE,
        **SAVED,
    )
    items = advise(found)["items"]
    assert [item["rule"] for item in items] == ["checkpoints", "late_compute"]
    assert len({item["key"] for item in items}) == len(items)


@pytest.mark.parametrize(
    ("found", "sentence"),
    [
        ({}, "The loader is not the bottleneck: steps wait for data 2.0 % of the time"),
        ({"train__steps": 7}, "No advice: each rank needs at least 8 measured steps, but this run has 7; set "),
        ({"train__why": "all 8 steps were warm-up"}, "No advice: all 8 steps were warm-up."),
        ({"shares__fetch": None}, "No advice: the time that steps waited for data was not measured."),
        ({"settings": {"loader.replay": "batches"}}, "No advice: loader.replay=batches leaves out costs"),
        (
            {"shares__fetch": 0.5, "storage__share_of_most": 0.9},
            "The storage is the bottleneck: it delivers 90.0 % of its largest measured rate, and",
        ),
        (
            {"shares__fetch": 0.5, "storage__share": 0.9, "storage__cached": "warm"},
            "The page cache is the bottleneck: it delivers 90.0 % of the rate measured for requests of this size",
        ),
        (
            {"shares__fetch": 0.5, "stalls__shares": {"collate": 0.7}},
            "Steps wait for data 50.0 % of the time, 70.0 % of this time because of collation. No recorded figure",
        ),
        ({"shares__fetch": 0.5, "stalls": None}, "Steps wait for data 50.0 % of the time. No recorded figure"),
    ],
)  # fmt: skip
def test_the_conclusion(found: dict[str, Any], sentence: str) -> None:
    advice = advise(evidence(**found))
    assert advice["conclusion"].startswith(sentence)
    assert advice["items"] == []


def test_what_was_withheld_and_why() -> None:
    times = rank_times(0.03, 0.01, delay=1.0)
    starved = advise(evidence(settings=WORKER, times=times))
    assert any("no CPU core was free" in reason for reason in starved["withheld"])
    assert starved["conclusion"].endswith(
        "Batches that were in production waited for a CPU core 50.0 % of the time, so no prediction is possible: "
        "repeat the run on an idle machine or on more cores."
    )
    late = advise(evidence(settings=WORKER, times=times, **LATE))
    assert any("other programs used the cores" in caveat for caveat in late["caveats"])
    missed = advise(evidence(settings=WORKER, times=rank_times(0.03, 0.01, fetch=0.06)))
    assert any("the loader model gives 56.4 % less" in reason for reason in missed["withheld"])
    scaled = advise(evidence(settings={"scale.compute": 0.1}, shares__fetch=0.5))
    assert any("Compute is scaled by 0.1" in caveat for caveat in scaled["caveats"])
    assert advise(evidence(settings={"scale.compute": 0.1}))["caveats"] == []  # nothing waits


@pytest.mark.parametrize(
    ("found", "epochs"),
    [
        ({"train__steps": 7}, 2),  # steps of one epoch, none of them a warm-up
        ({"train__steps": 1, "settings": {"train.warmup_steps": 0}}, 8),
        ({"train__steps": 2, "warmup": {"steps": 6}, "settings": {"train.warmup_steps": 6}}, 2),
        ({"train__steps": 2, "warmup": {"steps": 6}, "settings": {"train.warmup_steps": 6, "train.epochs": 2}}, 4),
    ],
)
def test_too_few_steps_say_what_gives_enough(found: dict[str, Any], epochs: int) -> None:
    settings = {"train.warmup_steps": 0, **found.get("settings", {})}
    advice = advise(evidence(**{**found, "settings": settings}))
    assert advice["conclusion"].endswith(f"; set train.epochs={epochs} for enough steps.")
    assert advice["caveats"] == advice["items"] == []


def test_late_compute_names_workers_only_where_fewer_would_do() -> None:
    found = FIRES["late with workers"][0]
    needed = {"times": rank_times(0.09, 0.01, fetch=0.0014, idle=0.0)}  # eight workers are just enough
    assert "late_compute" not in given_by(evidence(**{**found, **needed, "cores": 8}))
    others = {"times": rank_times(0.02, 0.05, fetch=0.0001, idle=0.1)}  # they did not get the cores
    assert given_by(evidence(**{**found, **others}))["late_compute"]["key"] is None
    assert given_by(evidence(**{**found, "times": None}))["late_compute"]["key"] is None


def test_fewer_workers_only_where_nothing_else_has_the_cores() -> None:
    found = FIRES["crowded"][0]
    others = {"times": rank_times(0.02, 0.001, fetch=0.04, delay=1.0)}  # half of the core
    advice = advise(evidence(**{**found, **others}))
    assert advice["items"] == []
    assert any(reason.startswith("fewer workers: other programs") for reason in advice["withheld"])


def test_a_quota_is_a_fraction_of_a_core() -> None:
    machine = {"cpu": {"cores_usable": 1.5, "cores_physical": 4}, "memory": {"available_bytes": 1 << 30}}
    found = evidence(environment=machine, **LATE)
    assert (found.cores, found.full_cores) == (1.5, 1.5)
    assert "the machine has fewer cores (1.5) than its programs need" in given_by(found)["late_compute"]["text"]
    assert evidence(environment={"cpu": {"cores_usable": 4}}).full_cores is None


def test_cores_that_others_use_are_left_to_them() -> None:
    times = rank_times(0.04, 0.01, steps=40)
    busy = {"environment": {"cpu": {"cores_usable": 2}, "memory": {"available_bytes": 1 << 30}}, "cores": 2}
    quiet = evidence(settings=WORKER, times=times, **busy)
    item = given_by(quiet)["more_readers"]
    assert (item["value"], item["predicted"]["gain_low"] > 0.4) == ("2", True)
    assert quiet.model is not None
    taken = replace(quiet, model=replace(quiet.model, others=1.0))
    advice = advise(taken)
    assert advice["items"] == []
    assert (
        "more workers: the predicted gain is too small while other programs use the cores (2 CPU cores)"
        in advice["withheld"]
    )
    assert advice["conclusion"].endswith(
        "Other programs kept 1.0 CPU cores busy: repeat the run on an idle machine to learn whether more workers help."
    )
    # Who sleeps most of the time gets what it wants all the same.
    asleep = evidence(settings=WORKER, times=rank_times(0.04, 0.01, steps=40, asleep=0.98), **busy)
    assert asleep.model is not None
    assert "more_readers" in given_by(replace(asleep, model=replace(asleep.model, others=2.0)))


def test_cores_are_named_with_those_that_were_idle() -> None:
    epochs = [[{"seconds": 1.0, "idle_cores": 2.0}, {"seconds": 3.0, "idle_cores": 1.0}]]
    found = evidence(settings=WORKER, times=rank_times(0.04, 0.01), epochs=epochs)
    assert found.idle_cores == 1.25
    item = given_by(found)["more_readers"]
    assert "; 4 CPU cores, 1.2 of them idle; " in item["text"]
    assert dict(item["evidence"])["cores.idle"] == 1.25
    assert evidence(epochs=[[{"seconds": 1.0, "idle_cores": None}]]).idle_cores is None


def test_noise_widens_an_interval() -> None:
    quiet, noisy = (
        given_by(evidence(settings=WORKER, times=rank_times(production, 0.01, steps=40)))["more_readers"]["predicted"]
        for production in (0.05, [0.04] * 10 + [0.06] * 10)
    )
    assert quiet["high"] - quiet["low"] < 0.02
    assert noisy["high"] - noisy["low"] > 0.1
    assert noisy["gain_low"] < quiet["gain_low"] <= quiet["gain_high"] < noisy["gain_high"]


def test_workers_that_start_anew_take_longer_the_more_they_are() -> None:
    times = rank_times(0.03, 0.01)
    anew, kept = (
        given_by(evidence(settings={**WORKER, **EPOCHS, **options}, times=times, shares__between_epochs=0.1))
        for options in ({}, {"loader.persistent_workers": True})
    )
    ends = [found["more_readers"]["predicted"]["gain_low"] for found in (anew, kept)]
    assert ends[0] < ends[1] - 0.2


def test_at_most_five_are_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    item = {"text": "do that", "also": [["loader.read_threads", "0"]]}
    advice = {"conclusion": "It waits.", "items": [item] * 7, "caveats": ["Mind that."]}
    stream = io.StringIO()
    draw_advice(Console(file=stream, width=60, color_system=None), advice)
    lines = [line.rstrip() for line in stream.getvalue().splitlines()]
    assert lines[0] == "It waits."
    assert lines[1:3] == ["What to change:", "  1. do that (with loader.read_threads=0)"]
    assert lines[6:] == [
        "  5. do that (with loader.read_threads=0)",
        "  and 2 more pieces of advice in summary.json",
        "Mind that.",
    ]


# --- real runs: the cause is known by construction, and following the advice helps ---------------

RUN = (
    "recipe=minimal", "scale=paper", "checkpoint=none", "output.progress=false", "storage.limits=off", "train.epochs=1",
    "dataset.num_files=1", "dataset.samples_per_file=160", "dataset.fields.0.shape=[16,16]",
)  # fmt: skip
MEMORY = ("dataset=synthetic",)
pytestmark = pytest.mark.filterwarnings("ignore:This DataLoader will create")


def run(folder: Path, name: str, *arguments: str) -> dict[str, Any]:
    """The summary of a run that other programs left the cores to; else there is nothing to be seen here."""
    directory = folder / name
    settings = overridden(*RUN, *arguments, f"dataset.root={folder / 'data'}", f"output.dir={directory}")
    assert cli.main(settings) == 0
    summary: dict[str, Any] = json.loads((directory / "summary.json").read_text())
    said = json.dumps(summary["advice"]).lower()
    if "other programs" in said or "no cpu core was free" in said or "waited for a cpu core" in said:
        pytest.skip("other programs take the cores")
    return summary


def advised(summary: dict[str, Any], rule: str) -> tuple[dict[str, Any], list[str]]:
    """The advice of a rule, and the arguments that follow it."""
    advice = summary["advice"]
    found = [item for item in advice["items"] if item["rule"] == rule]
    assert found, advice
    item = found[0]
    return item, [f"{key}={value}" for key, value in [(item["key"], item["value"]), *item["also"]]]


def naps(monkeypatch: pytest.MonkeyPatch, *seconds: float) -> None:
    """Preprocessing waits instead of working, so that a busy machine does not change its time."""
    times = itertools.cycle(seconds)
    monkeypatch.setattr(Preprocess, "burn", lambda *_: time.sleep(next(times)) or 0)


@pytest.mark.parametrize("loader", [(), ("loader.num_workers=1",), ("loader.read_threads=1",)], ids=" ".join)
def test_slow_preprocessing_wants_more_readers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: tuple[str, ...]
) -> None:
    naps(monkeypatch, 0.04)
    options = (*MEMORY, *loader, "compute.preprocess_s=1ms", "compute.step_s=15ms", "train.steps=20")
    before = run(tmp_path, "before", *options)
    item, change = advised(before, "more_readers")
    assert int(item["value"]) >= 2
    after = run(tmp_path, "after", *options, *change)
    assert after["shares"]["fetch"] < before["shares"]["fetch"] - 0.15
    assert after["step"]["duration_s"]["median"] < 0.8 * before["step"]["duration_s"]["median"]


@pytest.mark.parametrize("loader", [("loader.num_workers=1",), ("loader.read_threads=1",)], ids=" ".join)
def test_uneven_preprocessing_wants_more_depth(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, loader: tuple[str, ...]
) -> None:
    naps(monkeypatch, *[0.002] * 7, 0.12)
    options = (*MEMORY, *loader, "compute.preprocess_s=1ms", "compute.step_s=25ms", "train.steps=40")
    depth = "loader.prefetch_factor=1" if "workers" in loader[0] else "loader.prefetch_batches=1"
    before = run(tmp_path, "before", *options, depth)
    item, change = advised(before, "deeper_prefetch")
    assert item["predicted"]["gain_low"] > 0.1
    after = run(tmp_path, "after", *options, *change)
    saved = 1 - after["step"]["duration_s"]["mean"] / before["step"]["duration_s"]["mean"]
    assert saved > item["predicted"]["gain_low"] / 3


def test_slow_reads_want_data_in_memory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    read = hdf5_reader.Hdf5Reader.read

    def slow(self: Any, *arguments: Any) -> None:
        time.sleep(0.004)
        read(self, *arguments)

    monkeypatch.setattr(hdf5_reader.Hdf5Reader, "read", slow)
    options = ("compute.step_s=5ms", "train.epochs=2", "train.steps=12")
    before = run(tmp_path, "before", *options)
    _, change = advised(before, "in_memory")
    after = run(tmp_path, "after", *options, *change)
    assert after["shares"]["fetch"] < before["shares"]["fetch"] / 2


@pytest.fixture
def one_core() -> Iterator[None]:
    cores = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(cores)})
    yield
    os.sched_setaffinity(0, cores)


@pytest.mark.usefixtures("one_core")
def test_too_many_workers_want_to_be_fewer(tmp_path: Path) -> None:
    options = (*MEMORY, "compute.preprocess_s=4ms", "compute.step_s=1ms", "train.steps=30")
    before = run(tmp_path, "before", *options, "loader.num_workers=5")
    # The compute is late for want of the same core.
    rules = {item["rule"] for item in before["advice"]["items"]}
    item, change = advised(before, "fewer_workers" if "fewer_workers" in rules else "late_compute")
    assert (item["key"], item["value"]) == ("loader.num_workers", "1")
    after = run(tmp_path, "after", *options, *change)
    assert all(one["rule"] != "more_readers" for one in after["advice"]["items"])


def test_nothing_wrong_no_advice(tmp_path: Path) -> None:
    found = run(tmp_path, "run", *MEMORY, "loader.in_memory=true", "compute.step_s=20ms", "train.steps=20")
    advice = found["advice"]
    assert advice["conclusion"].startswith("The loader is not the bottleneck")
    assert all(0 <= epoch["idle_cores"] <= os.cpu_count() + 0.5 for epoch in found["epochs"][0])
    # Where other programs take the cores, the compute is late, and that is said.
    assert {item["rule"] for item in advice["items"]} <= {"late_compute"}


def test_the_report_shows_advice_with_its_evidence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib")
    naps(monkeypatch, 0.03)
    run(tmp_path, "run", *MEMORY, "compute.preprocess_s=1ms", "compute.step_s=15ms", "train.steps=12")
    text = report_run(tmp_path / "run").read_text()
    assert "loader.num_workers=" in text
    assert "Evidence for loader.num_workers=" in text
    assert "making.seconds_per_batch" in text
    assert "Changes that were checked and are not recommended" in text or "withheld" not in text


def test_runs_without_spans_advise_what_their_figures_say(tmp_path: Path) -> None:
    found = run(tmp_path, "run", *MEMORY, "trace.spans=false", "compute.preprocess_s=5ms", "train.steps=10")
    assert found["advice"]["model"] is None
    assert any("not recorded" in reason for reason in found["advice"]["withheld"])


def test_the_decoupled_engine_is_not_replayed(tmp_path: Path) -> None:
    options = ("dataset=npy", "loader=decoupled", "compute.preprocess_s=5ms", "compute.step_s=1ms", "train.epochs=5")
    found = run(tmp_path, "run", "recipe=minimal", "scale=tiny", *options)
    assert found["shares"]["fetch"] > 0.5
    assert found["advice"]["model"] is None
    assert any("reads ahead by bytes, not by batches" in reason for reason in found["advice"]["withheld"])
    assert not any("num_workers" in item["key"] for item in found["advice"]["items"])


def test_held_batches_and_evaluation_are_replayed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    naps(monkeypatch, 0.02)
    found = run(
        tmp_path, "run", *MEMORY, "access.hold_steps=3", "compute.preprocess_s=1ms", "compute.step_s=5ms",
        "train.steps=30", "train.eval_every_steps=10", "dataset.num_files_eval=1", "dataset.samples_per_file_eval=8",
        "train.warmup_steps=0",
    )  # fmt: skip
    model = found["advice"]["model"]
    assert model["batches"] == 10
    assert abs(model["error"]) < 0.25
    assert model["measured_step_s"] == pytest.approx(3 * np.array(found["step"]["duration_s"]["mean"]), rel=0.3)
