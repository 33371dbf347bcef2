"""Runs from Python and their results."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pandas as pd
import pytest

import dlio_torch
from dlio_torch.errors import ConfigError, DataError, PreconditionError, ThresholdMissed

TINY = ("scale=tiny", "storage.limits=off", "cache=as_is")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(folder: Path) -> dlio_torch.Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, value in {"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "nowhere", "MASTER_PORT": "1"}.items():
            patch.setenv(name, value)  # a rank of torchrun may start a run of its own
        return dlio_torch.run(recipe="minimal", overrides=TINY)


def test_a_run_gives_its_figures_steps_and_events(run: dlio_torch.Run, folder: Path) -> None:
    assert run.path.is_relative_to(folder / "runs" / "minimal")
    assert run.summary == json.loads((run.path / "summary.json").read_text())
    assert run.summary["world_size"] == 1
    steps = run.steps
    assert list(steps.columns[:2]) == ["rank", "epoch"]
    assert {"step", "phase", "fetch_s", "compute_s", "requested_s", "samples", "bytes"} <= set(steps.columns)
    assert len(steps) == 8
    assert set(steps["phase"]) == {"warmup", "train"}
    trained = steps[steps["phase"] == "train"]
    assert trained["samples"].sum() == run.summary["train"]["samples"]
    assert trained["bytes"].sum() == run.summary["train"]["bytes"]
    assert (steps["requested_s"] == 0.0005).all()
    events = run.events
    assert isinstance(events, pd.DataFrame)
    names = ["rank", "pid", "tid", "layer", "op", "file", "offset", "bytes", "start_ns", "end_ns"]
    assert set(names) <= set(events.columns)
    assert (events["op"] == "fetch").sum() == 8
    sources = (run.path / "sources.yaml").read_text()
    assert "scale.name: command line" in sources


def test_results_are_opened_again(run: dlio_torch.Run) -> None:
    again = dlio_torch.load_run(run.path)
    assert again == run
    assert again.summary == run.summary
    assert dlio_torch.load_run(str(run.path)).steps.equals(run.steps)


def test_a_configuration_runs_as_it_is(folder: Path, monkeypatch: pytest.MonkeyPatch, capfd: object) -> None:
    monkeypatch.chdir(folder)
    config = dlio_torch.compose("minimal", [*TINY, "output.dir=mine", "train.steps=3"])
    for _ in range(2):
        result = dlio_torch.run(config)
        assert result.path == folder / "mine"
        assert len(result.steps) == 3
    assert dlio_torch.load_run("mine.1").summary["recipe"] == "minimal"
    printed = capfd.readouterr()  # type: ignore[attr-defined]
    assert (printed.out, printed.err) == ("", "")
    dlio_torch.run(config, quiet=False)
    assert f"Results: {folder / 'mine'}" in capfd.readouterr().out  # type: ignore[attr-defined]


@pytest.mark.ranks
def test_several_ranks_train_together(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(folder)
    result = dlio_torch.run(recipe="minimal", overrides=[*TINY, "train.allreduce_bytes=1KiB"], ranks=2)
    assert result.summary["world_size"] == 2
    assert set(result.steps["rank"]) == {0, 1}


def test_failures_are_errors_of_their_kind(folder: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ThresholdMissed, match="accelerator utilisation is"):
        dlio_torch.run(recipe="minimal", overrides=[*TINY, "train.min_au=1", f"dataset.root={folder / 'data'}"])
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "text").write_text("of the user")
    with pytest.raises(PreconditionError, match=r"output\.dir=full"):
        dlio_torch.run(recipe="minimal", overrides=[*TINY, "output.dir=full"])
    with pytest.raises(ConfigError, match=r"train\.batch_size=1000"):
        dlio_torch.run(recipe="minimal", overrides=[*TINY, "train.batch_size=1000"])


def test_parts_that_are_missing_are_named(tmp_path: Path, run: dlio_torch.Run) -> None:
    begun = tmp_path / "begun"
    begun.mkdir()
    (begun / "config.yaml").write_bytes((run.path / "config.yaml").read_bytes())
    result = dlio_torch.load_run(begun)
    with pytest.raises(DataError, match=r"summary\.json cannot be read"):
        _ = result.summary
    with pytest.raises(DataError, match=r"steps\.csv cannot be read"):
        _ = result.steps
    with pytest.raises(DataError, match="is not the folder of a run"):
        dlio_torch.load_run(tmp_path)
    assert os.listdir(begun) == ["config.yaml"]
