"""Demand of accelerators, and the sentence that compares it with the limits."""

from __future__ import annotations

from dataclasses import replace

import pytest
from node_records import MIB, demand, limits

from dlio_torch.config.compose import compose
from dlio_torch.node.demand import NodeDemand, demand_of
from dlio_torch.node.node_plan import accelerators_of, with_recipe
from dlio_torch.node.node_verdict import first_limit, verdict_of

PLENTY = {"storage_large": 9000.0, "storage_recipe": 4000.0, "decode": 2400.0}
NEED = "8 accelerators of r need 800 samples/s (400 MiB/s)"


@pytest.mark.parametrize(
    ("alone", "combined", "sentence", "feeds", "first", "ratio"),
    [
        (
            {**PLENTY, "decode": 200.0},
            {"decode": 100.0},
            f"{NEED}; the first limit is decoding, at 200 samples/s (100 MiB/s): improve decoding first.",
            False, "decode", 0.25,
        ),
        (
            {**PLENTY, "storage_recipe": 100.0, "decode": 200.0},
            {},
            f"{NEED}; the first limit is storage, at 100 samples/s (50 MiB/s): improve storage first.",
            False, "storage_recipe", 0.125,
        ),
        (
            PLENTY,
            {"storage_recipe": 1000.0, "decode": 400.0},
            f"{NEED}; each limit alone is above that, but with all at the same time the first limit is "
            "decoding, at 400 samples/s (200 MiB/s): improve decoding first.",
            False, "decode", 0.5,
        ),
        (
            PLENTY,
            {"storage_recipe": 1600.0, "decode": 2000.0},
            f"{NEED}; this node feeds them: the first limit would be storage, at 2 times the demand.",
            True, "storage_recipe", 2.0,
        ),
        (
            PLENTY, {}, f"{NEED}; this node feeds them: the first limit would be decoding, at 3 times the demand.",
            True, "decode", 3.0,
        ),
        ({"decode": None}, {}, f"{NEED}; no limit of this node could be measured.", None, None, None),
    ],
)  # fmt: skip
def test_the_sentence_names_the_first_limit(
    alone: dict[str, float | None],
    combined: dict[str, float | None],
    sentence: str,
    feeds: bool | None,
    first: str | None,
    ratio: float | None,
) -> None:
    verdict = verdict_of(demand(), limits(**alone), limits(alone=False, **combined), "r")
    assert (verdict.sentence, verdict.feeds, verdict.first_limit) == (sentence, feeds, first)
    assert verdict.ratio == ratio


def test_one_accelerator_and_gpus_are_named_as_such() -> None:
    single = replace(demand(1), source="default")
    assert verdict_of(single, limits(decode=50.0), [], "r").sentence.startswith("1 accelerator of r needs 100 samples")
    feeds = verdict_of(single, limits(decode=500.0), [], "r").sentence
    assert "this node feeds it: the first limit would be decoding, at 5 times" in feeds
    gpus = replace(demand(2), source="visible GPUs")
    assert verdict_of(gpus, limits(decode=50.0), [], "r").sentence.startswith("2 GPUs of r need 200 samples/s")


def test_without_compute_there_is_no_demand_and_the_reason_is_said() -> None:
    idle = demand(step_s=0.0)
    assert idle.samples_per_s is None
    assert idle.to_record()["stored_bytes_per_s"] is None
    verdict = verdict_of(idle, limits(decode=50.0), [], "r")
    assert verdict.sentence == (
        "There is no demand to compare with: the recipe emulates no compute (compute.step_s=0 or compute.mode=none); "
        "the first limit is decoding, at 50 samples/s (25 MiB/s)."
    )
    assert (verdict.feeds, verdict.ratio) == (None, None)
    assert "no limit of this node" in verdict_of(idle, [], [], "r").sentence


def test_a_limit_that_the_recipe_does_not_meet_is_not_the_first() -> None:
    assert first_limit(limits(storage_large=1.0, page_cache=2.0, compute=3.0)) is None
    slow = first_limit(limits(storage_large=1.0, copy_pageable=5.0, copy_pinned=50.0, decode=20.0))
    assert slow is not None
    assert slow.name == "decode"  # pinned memory replaces the slow copies
    both = first_limit(limits(copy_pageable=5.0, copy_pinned=10.0, decode=20.0))
    assert both is not None
    assert both.name == "copy_pinned"


def test_the_demand_is_batch_over_step_time_for_each_accelerator() -> None:
    config = compose(["recipe=minimal", "train.batch_size=6", "compute.step_s=20ms", "scale.compute=1"]).config
    need = demand_of(config, 4, "--accelerators", stored_sample_bytes=10.0, sample_bytes=100.0)
    assert need == NodeDemand(4, "--accelerators", 6, 0.02, 10.0, 100.0, hold_steps=1)
    assert need.accelerator_samples_per_s == pytest.approx(300)
    assert need.samples_per_s == pytest.approx(1200)
    record = need.to_record()
    assert record["stored_bytes_per_s"] == pytest.approx(12_000)
    assert record["bytes_per_s"] == pytest.approx(120_000)


def test_a_batch_of_several_steps_and_of_all_ranks_counts_once() -> None:
    held = compose(["recipe=minimal", "access.hold_steps=5", "compute.step_s=20ms", "scale.compute=1"]).config
    assert demand_of(held, 1, "default", stored_sample_bytes=1.0, sample_bytes=1.0).step_s == pytest.approx(0.1)
    shared = compose(["recipe=minimal", "train.batch_size=64", "train.batch_scope=global"]).config
    assert demand_of(shared, 8, "--accelerators", stored_sample_bytes=1.0, sample_bytes=1.0).batch_size == 8


@pytest.mark.parametrize(
    ("given", "gpus", "expected"),
    [(8, 2, (8, "--accelerators")), (None, 2, (2, "visible GPUs")), (None, 0, (1, "default"))],
)
def test_the_number_of_accelerators_is_given_or_that_of_the_gpus(
    given: int | None, gpus: int, expected: tuple[int, str]
) -> None:
    assert accelerators_of(given, gpus) == expected


def test_a_recipe_is_chosen_only_if_neither_recipe_nor_data_are_named() -> None:
    assert with_recipe(["scale=tiny"]) == ("recipe=resnet50", "scale=tiny")
    assert with_recipe(["recipe=minimal"]) == ("recipe=minimal",)
    assert with_recipe(["dataset.path=mine"]) == ("dataset.path=mine",)


def test_bytes_are_those_of_files_where_there_are_files() -> None:
    in_memory = replace(demand(), stored_sample_bytes=0.0)
    assert "need 800 samples/s (800 MiB/s)" in verdict_of(in_memory, [], [], "r").sentence
    assert in_memory.sample_bytes == MIB
