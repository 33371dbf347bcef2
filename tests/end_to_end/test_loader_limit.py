"""The limit of the loader as runs measure, store and report it; the further run leaves nothing and fails nothing."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from figure_checks import check_figures
from ranks import clean_environ, run_ranks

from dlio_torch import cli
from dlio_torch.analysis import stored_loader_limits
from dlio_torch.execution import limit_run
from dlio_torch.supervision.run_process import Ended

RECIPE = """
description: a recipe of a test
defaults: [{dataset: npz}, {access: shuffled}, {compute: sleep}, {checkpoint: torch_save}]
dataset:
  {num_files: 24, samples_per_file: 1, num_files_eval: 2, samples_per_file_eval: 1, fields: [{name: x, shape: [5000]}]}
train: {batch_size: 1, warmup_steps: 2, eval_every_epochs: 1}
checkpoint: {every_steps: 8, state_bytes: 4KiB}
compute: {step_s: 1ms}
storage: {limits: "off"}
"""
COMMAND = ("recipe=./mine.yaml", "scale=paper", "output.progress=false")
Run = Callable[..., dict[str, Any]]


@pytest.fixture
def started(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Commands of the further runs that were started."""
    commands: list[list[str]] = []
    start = limit_run.run_process

    def counted(command: list[str], log: Path, **options: Any) -> Ended:
        commands.append(command)
        return start(command, log, **options)

    monkeypatch.setattr(limit_run, "run_process", counted)
    return commands


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Folder in which this process stores limits, instead of the user's cache folder."""
    folder = tmp_path / "cache" / "dlio_torch"
    monkeypatch.setattr(stored_loader_limits, "native", SimpleNamespace(cache_dir=lambda: folder))
    return folder


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The system's temporary folder, empty."""
    folder = tmp_path / "temporary"
    folder.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    return folder


@pytest.fixture
def run(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    """``run(*options)``: the summary of a run in this process."""
    (tmp_path / "mine.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)

    def summary(*options: str) -> dict[str, Any]:
        assert cli.main([*COMMAND, "output.dir=run", *options]) == 0
        return read("run")

    return summary


def read(folder: str) -> dict[str, Any]:
    content: dict[str, Any] = json.loads(Path(folder, "summary.json").read_text())
    check_figures(content)
    return content


def test_the_limit_is_measured_once_and_stored(
    run: Run, started: list[list[str]], cache: Path, temporary: Path, tmp_path: Path
) -> None:
    before = run()["au_limit_of_loader"]
    assert (before["mean"], before["how"]) == (None, None)
    assert (before["why"], before["hint"]) == ("no such run in the last 24 hours", "set loader.limit=measure")
    assert started == []

    measured = run("loader.limit=measure")["au_limit_of_loader"]
    assert len(started) == len(list(cache.iterdir())) == 1
    assert measured["how"] == "22 steps with loader.replay=reads"  # as many as this run has
    assert (measured["why"], measured["hint"]) == (None, None)
    assert 0 < measured["ci95"][0] <= measured["mean"] == measured["min"] <= 1
    assert measured["read_s_per_batch"] > 0
    assert list(temporary.iterdir()) == []  # neither run directory nor log
    assert not (tmp_path / "runs").exists()

    # What costs nothing in the further run does not matter, and neither does how often it is asked for.
    for options in (["loader.limit=measure", "checkpoint=none", "train.eval_every_epochs=0"], ["cache=as_is"]):
        assert run(*options)["au_limit_of_loader"] == measured
    assert len(started) == 1
    assert run("loader.prefetch_batches=2")["au_limit_of_loader"]["mean"] is None  # another loader
    assert run("loader.limit=off")["au_limit_of_loader"]["why"] == "loader.limit=off"


def test_a_further_run_that_fails_is_a_reason_and_no_failure(
    run: Run, cache: Path, temporary: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def failing(command: list[str], log: Path, **options: Any) -> Ended:
        asked.append(Path(command[-1].removeprefix("recipe=")).read_text())
        return Ended(3, "there is no room; free space", 0.0, 0.0, None)

    monkeypatch.setattr(limit_run, "run_process", failing)
    for mode in ("measure", "remeasure"):
        limit = run(f"loader.limit={mode}", "train.epochs=3", "loader.limit_steps=30")["au_limit_of_loader"]
        assert limit["why"] == "the limit of the loader cannot be measured: there is no room; free space"
        assert limit["mean"] is None
    assert len(asked) == 2
    assert "replay: reads" in asked[0]
    assert "epochs: 1\n" in asked[0]  # two of 24 steps would be more than 30 and the 2 of the warm-up
    assert not cache.exists()
    assert list(temporary.iterdir()) == []


def test_a_run_with_replayed_reads_is_the_limit_of_later_runs(run: Run, started: list[list[str]], cache: Path) -> None:
    run()  # generates the data
    command = [sys.executable, "-m", "dlio_torch", "train", *COMMAND, "checkpoint=none", "train.eval_every_epochs=0"]
    environ = {**clean_environ(), "XDG_CACHE_HOME": str(cache.parent)}
    subprocess.run([*command, "output.dir=replayed", "loader.replay=reads"], env=environ, check=True)
    replayed = read("replayed")
    assert replayed["au_limit_of_loader"]["why"] == "loader.replay=reads leaves out costs of loading in this run"
    summary = run("loader.limit=measure")
    assert summary["au_limit_of_loader"]["mean"] == replayed["au"]["mean"]
    assert summary["au_limit_of_loader"]["ci95"] == replayed["au"]["ci95"]
    assert started == []


@pytest.mark.ranks
@pytest.mark.horovod
def test_two_ranks_of_horovod_are_measured_by_two_ranks_of_horovod(tmp_path: Path) -> None:
    (tmp_path / "mine.yaml").write_text(RECIPE)
    words = ["loader.limit=measure", "checkpoint=none", "train.eval_every_epochs=0", "dist.backend=horovod"]
    command = ["-m", "dlio_torch", *COMMAND, "output.dir=run", *words]
    ended = run_ranks("horovod", 2, command, cwd=tmp_path, timeout_s=90)
    assert [rank.exit_code for rank in ended] == [0, 0], ended
    limit = read(str(tmp_path / "run"))["au_limit_of_loader"]
    assert (limit["how"], limit["why"]) == ("10 steps with loader.replay=reads", None)  # as many as each rank has
    assert 0 < limit["min"] <= limit["mean"] <= 1
