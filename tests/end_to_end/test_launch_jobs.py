"""Whole jobs of the verb launch, run here by the scheduler's programs of tests/support/cluster."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from ranks import SUPPORT, clean_environ

from dlio_torch import cli
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.store import Store

CLUSTER = SUPPORT / "cluster"


@pytest.fixture
def submitted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., str]:
    """Submits a job to :data:`CLUSTER` and gives what it prints; it has ended, with the exit code 0."""
    for name in os.environ.keys() - clean_environ().keys():
        monkeypatch.delenv(name)
    path = os.pathsep.join([str(CLUSTER), os.environ["PATH"]])
    own = {"CLUSTER": str(tmp_path), "TMPDIR": str(tmp_path), "GLOO_SOCKET_IFNAME": "lo", "PATH": path}
    for name, value in (clean_environ() | own).items():
        monkeypatch.setenv(name, value)
    monkeypatch.chdir(tmp_path)

    def submit(*arguments: str) -> str:
        code = cli.main(["launch", *arguments, "time=10min", "--submit"])
        log = tmp_path / "out.log"
        said = log.read_text() if log.exists() else capsys.readouterr().err
        assert code == 0, said
        assert "submitted: " in capsys.readouterr().out
        assert (tmp_path / "exit_code").read_text() == "0\n", said
        return said

    return submit


@pytest.mark.ranks
def test_two_ranks_train_on_a_copy_of_what_they_generated(tmp_path: Path, submitted: Callable[..., str]) -> None:
    job = ("scheduler=slurm", "ranks_per_node=2", "local=$TMPDIR", "output.dir=out")
    log = submitted("recipe=minimal", "scale=tiny", *job)
    run = RunDir.open(tmp_path / "out")
    assert run.missing() == ()
    summary = json.loads(run.summary.read_text())
    assert summary["world_size"] == 2
    assert "4 files written" in log
    stage = summary["stage"]
    assert stage["files"] == 4
    (copy,) = {Path(row["folder"]) for row in stage["ranks"]}
    assert not copy.exists()
    assert len(list((tmp_path / "data").iterdir())) == 1


@pytest.mark.ranks
def test_ranks_of_mpiexec_meet_without_horovod(tmp_path: Path, submitted: Callable[..., str]) -> None:
    job = ("scheduler=pbs", "ranks_per_node=2", "dist.backend=torch", "output.dir=out")
    submitted("train", "recipe=self_test", "train.steps=20", *job)
    summary = json.loads(RunDir.open(tmp_path / "out").summary.read_text())
    assert summary["world_size"] == 2
    assert summary["ranks_by"]["backend"] == "torch"


@pytest.mark.ranks
def test_all_ranks_of_a_described_job_save_and_load(tmp_path: Path, submitted: Callable[..., str]) -> None:
    model = ("hidden_size=16", "num_layers=2", "num_heads=4", "ffn_hidden_size=32", "vocab_size=64")
    job = ("scheduler=slurm", "nodes=1", "output.dir=out", "checkpoint.root=saved", "saves=2", "loads=1")
    saved = (*(f"model.{size}" for size in model), "parallel.data=2", "parallel.fsdp=full", "checkpoint.layout=dcp")
    submitted("checkpoint", "recipe=minimal", "scale=tiny", *saved, *job)
    summary = json.loads(RunDir.open(tmp_path / "out").summary.read_text())
    assert summary["world_size"] == 2
    figures = summary["checkpoints"]
    assert (figures["saving_ranks"], figures["save"]["count"], figures["restore"]["count"]) == (2, 2, 1)
    (folder,) = (tmp_path / "saved" / "minimal").iterdir()
    assert figures["folder"] == str(folder)
    assert not (tmp_path / "data").exists()


@pytest.mark.ranks
def test_a_sweep_that_ran_out_of_time_makes_no_run_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, submitted: Callable[..., str]
) -> None:
    monkeypatch.setenv("TIME_UP_WHEN", f"{tmp_path}/out/trials/002-1.log")
    log = submitted(
        *("sweep", "recipe=self_test", "train.steps=20", "train.batch_size=2,4", "repeats=1", "storage.limits=off"),
        *("scheduler=slurm", "output=out"),
    )
    assert log.count("the study goes on in another job") == 1
    assert "restarts so far: 1" in log
    with Store.open(tmp_path / "out", write=False) as store:
        trials = store.trials()
    assert [(trial.point, trial.repeat, trial.status) for trial in trials] == [(1, 1, "done"), (2, 1, "done")]
    assert (tmp_path / "out" / "table.csv").is_file()
    assert sorted(path.name for path in (tmp_path / "out" / "trials").iterdir() if path.is_dir()) == ["001-1", "002-1"]
