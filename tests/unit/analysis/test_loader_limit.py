"""Limit of a loader: for which runs there is one, which runs share one, which runs measure it, how long it is kept."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from span_events import Span, recorded

from dlio_torch.analysis.loader_limit import LoaderLimit, bounded, is_measured_by, why_no_limit
from dlio_torch.analysis.stored_loader_limits import key, store, stored
from dlio_torch.config.compose import compose
from dlio_torch.config.schema import Config, TrainConfig

NOW = datetime.now(UTC).isoformat(timespec="seconds")
LIMIT = LoaderLimit(0.9, 0.8, [0.85, 0.95], 100, 0.001, "here", NOW)


def config_of(*options: str) -> Config:
    return compose(["recipe=minimal", "scale=paper", *options]).config


def summary_of(**changes: Any) -> dict[str, Any]:
    return {
        "au": {"mean": 0.5, "min": 0.4, "ci95": None, "why": None},
        "cache": {"machines": 1},
        "resumed": None,
        "eval": {"steps": 0},
        "train": {"steps": 30},
        "world_size": 2,
        "ranks_by": {"backend": "torch"},
        "dataset": {"path": "/data/x"},
        **changes,
    }


@pytest.mark.parametrize(
    ("options", "changes", "why"),
    [
        ([], {}, None),
        (["loader.limit=off"], {}, "loader.limit=off"),
        (["loader.replay=reads"], {}, "loader.replay=reads leaves out costs of loading in this run"),
        ([], {"au": {"mean": None, "why": "no compute was emulated"}}, "no compute was emulated"),
        ([], {"cache": None}, "no files are read"),
        (["loader.in_memory=true"], {}, "the data are read into memory before training (loader.in_memory=true)"),
        (["access.io=independent"], {}, "reads through MPI-IO cannot be answered from memory"),
        (
            ["dataset=safetensors"],
            {},
            "the format maps its files into memory, so there are no read calls to answer from memory",
        ),
        ([], {"cache": {"machines": 3}}, "the ranks run on 3 machines, but the limit is measured on one machine"),
    ],
)
def test_a_run_without_a_limit_has_a_reason(options: list[str], changes: dict[str, Any], why: str | None) -> None:
    assert why_no_limit(config_of(*options), summary_of(**changes)) == why


SAME = (
    ["loader.limit=remeasure", "loader.limit_steps=7", "loader.timeout_s=9"],
    ["loader.replay=reads"],
    ["checkpoint=torch_save", "checkpoint.every_steps=2", "verify=true", "train.min_au=0.5"],
    ["cache=warm", "storage.limits=off", "stage.dir=/tmp/x", "output.dir=y", "trace.posix=true"],
)
OTHER = (
    ["loader.num_workers=2"],
    ["loader.prefetch_factor=5", "loader.num_workers=1"],
    ["compute.step_s=3ms"],
    ["train.batch_size=2"],
    ["train.epochs=5"],
    ["access=sequential"],
    ["dataset.samples_per_file=5"],
    ["trace.spans=false"],
)


@pytest.mark.parametrize("options", SAME, ids=" ".join)
def test_runs_with_the_same_loader_share_a_limit(options: list[str]) -> None:
    assert key(config_of(*options), summary_of()) == key(config_of(), summary_of())


@pytest.mark.parametrize("options", OTHER, ids=" ".join)
def test_runs_with_another_loader_have_another_limit(options: list[str]) -> None:
    assert key(config_of(*options), summary_of()) != key(config_of(), summary_of())


@pytest.mark.parametrize(
    "changes", [{"world_size": 1}, {"ranks_by": {"backend": "mpi"}}, {"dataset": {"path": "/data/y"}}], ids=str
)
def test_data_and_ranks_are_part_of_a_limit(changes: dict[str, Any]) -> None:
    assert key(config_of(), summary_of(**changes)) != key(config_of(), summary_of())


@pytest.mark.parametrize(
    ("options", "changes", "measures"),
    [
        (["loader.replay=reads"], {}, True),
        ([], {}, False),
        (["loader.replay=samples"], {}, False),
        (["loader.replay=reads", "verify=true"], {}, False),
        (["loader.replay=reads", "checkpoint=torch_save", "checkpoint.every_steps=2"], {}, False),
        (["loader.replay=reads", "trace.profiler=true"], {}, False),
        (["loader.replay=reads"], {"eval": {"steps": 3}}, False),
        (["loader.replay=reads"], {"au": {"mean": None}}, False),
        (["loader.replay=reads"], {"resumed": {}}, False),
        (["loader.replay=reads"], {"cache": {"machines": 2}}, False),
        (["loader.replay=reads"], {"cache": None}, False),
    ],
)
def test_a_run_that_only_trains_measures_the_limit(options: list[str], changes: dict[str, Any], measures: bool) -> None:
    assert is_measured_by(config_of("checkpoint=none", *options), summary_of(**changes)) is measures


@pytest.mark.parametrize(
    ("epochs", "steps", "most", "expected"),
    [
        (3, 30, 100, (3, 0)),  # fewer steps than allowed
        (3, 30, 19, (2, 0)),  # and one step of warm-up
        (3, 30, 18, (1, 0)),
        (3, 30, 9, (1, 0)),
        (3, 30, 8, (1, 9)),
        (1, 1000, 500, (1, 501)),
    ],
)
def test_the_steps_of_the_further_run_are_bounded(
    epochs: int, steps: int, most: int, expected: tuple[int, int]
) -> None:
    train = bounded(TrainConfig(epochs=epochs, warmup_steps=1), steps, most)
    assert (train.epochs, train.steps) == expected


def test_a_limit_has_the_utilisation_of_the_run_and_the_time_of_its_reads() -> None:
    spans = [Span("read", 0, 2_000_000), Span("batch", 0, 9_000_000), Span("read", 9_000_000, 13_000_000)]
    limit = LoaderLimit.of_run(summary_of(), recorded([*spans, Span("batch", 9_000_000, 20_000_000)]).events.frame)
    assert limit.read_s_per_batch == pytest.approx(3e-3)
    assert limit.figures() == {
        **{"mean": 0.5, "min": 0.4, "ci95": None, "read_s_per_batch": limit.read_s_per_batch},
        **{"how": "30 steps with loader.replay=reads", "measured_at": limit.measured_at, "why": None, "hint": None},
    }
    for others in (spans[:1], spans[1:2], []):
        assert LoaderLimit.of_run(summary_of(), recorded(others).events.frame).read_s_per_batch is None


def test_a_limit_is_kept_for_a_day(tmp_path: Path) -> None:
    assert stored("a", tmp_path) is None
    store("a", LIMIT, tmp_path)
    assert stored("a", tmp_path) == LIMIT
    assert stored("b", tmp_path) is None
    old = replace(LIMIT, measured_at=(datetime.now(UTC) - timedelta(days=1, minutes=1)).isoformat())
    store("b", old, tmp_path)
    assert stored("b", tmp_path) is None


def test_outdated_limits_are_removed(tmp_path: Path) -> None:
    for name, age_s in (("a", 90_000), ("b", 80_000)):
        store(name, LIMIT, tmp_path)
        os.utime(tmp_path / f"loader-{name}.json", (time.time() - age_s,) * 2)
    (tmp_path / "storage-a.json").touch()
    os.utime(tmp_path / "storage-a.json", (0, 0))
    store("c", LIMIT, tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["loader-b.json", "loader-c.json", "storage-a.json"]


@pytest.mark.parametrize(
    "content", ["", "[]", "{}", json.dumps({"schema": 0, "limit": {}}), json.dumps({"schema": 1, "limit": {"mean": 1}})]
)
def test_a_damaged_record_is_no_limit(content: str, tmp_path: Path) -> None:
    (tmp_path / "loader-a.json").write_text(content)
    assert stored("a", tmp_path) is None


def test_a_cache_folder_that_cannot_be_written_is_no_error(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    store("a", LIMIT, tmp_path / "file")
    assert stored("a", tmp_path / "file") is None
