"""The further run that measures the limit of a loader: its ranks, its environment, its time, and when there is none."""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from dlio_torch.analysis import stored_loader_limits
from dlio_torch.config.compose import compose
from dlio_torch.config.yamlfile import parse_document
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.execution import limit_run
from dlio_torch.execution.context import RunContext
from dlio_torch.execution.elastic_position import ElasticPosition
from dlio_torch.execution.limit_run import limit_of_loader
from dlio_torch.execution.outcome import RunOutcome
from dlio_torch.supervision.run_process import Ended

COMPOSED = compose(["recipe=minimal", "scale=paper", "loader.limit=remeasure", "dist.timeout_s=100"], environ={})
SUMMARY: dict[str, Any] = {
    "au": {"mean": 0.5, "min": 0.4, "ci95": None, "why": None},
    "cache": {"machines": 1, "fits_in_memory": True},
    "warmup": {"steps": 1},
    "train": {"steps": 30, "elapsed_s": 60.0},
    "world_size": 2,
    "ranks_by": {"backend": "torch"},
    "dataset": {"path": "/data/x"},
}
MEASURED = {"au": {"mean": 0.9, "min": 0.8, "ci95": None}, "train": {"steps": 30}}


class Starts:
    """Takes the place of the start of a run, which writes a summary and no events."""

    def __init__(self) -> None:
        self.commands: list[Sequence[str]] = []
        self.environ: Mapping[str, str] = {}
        self.timeout_s = 0.0
        self.measured = MEASURED

    def __call__(self, command: Sequence[str], log: Path, *, timeout_s: float, environ: Mapping[str, str]) -> Ended:
        self.commands.append(command)
        self.timeout_s, self.environ = timeout_s, environ
        recipe = Path(command[-1].removeprefix("recipe="))
        output: Any = parse_document(recipe.read_text(), str(recipe)).tree["output"]
        directory = Path(output["dir"])
        directory.mkdir()
        (directory / "summary.json").write_text(json.dumps(self.measured))
        return Ended(0, "", 1.0, 1.0, None)


@pytest.fixture
def starts(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Starts:
    result = Starts()
    monkeypatch.setattr(limit_run, "run_process", result)
    monkeypatch.setattr(stored_loader_limits, "native", SimpleNamespace(cache_dir=lambda: tmp_path / "cache"))
    return result


def context_of(ranks: int, name: str) -> RunContext:
    comm = SingleCommunicator()
    context = RunContext.create(COMPOSED, comm, RunOutcome(comm))
    comm.world_size, comm.name = ranks, name
    return context


def test_the_further_run_has_as_many_ranks_and_a_launcher_of_its_own(
    starts: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("TORCHELASTIC_RUN_ID", "x")
    limit = limit_of_loader(context_of(2, "torch"), COMPOSED.config, SUMMARY)
    assert (limit["mean"], limit["min"], limit["why"]) == (0.9, 0.8, None)
    (command,) = starts.commands
    assert command[command.index("--nproc-per-node") + 1] == "2"
    assert command[command.index("dlio_torch") + 1] == "train"
    assert not {"WORLD_SIZE", "TORCHELASTIC_RUN_ID"} & set(starts.environ)
    assert starts.timeout_s < COMPOSED.config.dist.timeout_s  # for which the other ranks wait


def test_ranks_of_horovod_are_started_by_horovodrun(starts: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {"HOROVOD_RANK": "0", "HOROVOD_SIZE": "2", "HOROVOD_CYCLE_TIME": "2"}.items():
        monkeypatch.setenv(name, value)
    assert limit_of_loader(context_of(2, "horovod"), COMPOSED.config, SUMMARY)["mean"] == 0.9
    (command,) = starts.commands
    assert command[command.index("horovod.runner.launch") :].index("-np") < command.index("dlio_torch")
    assert command[command.index("-np") + 1] == "2"
    assert command[command.index("dlio_torch") + 1] == "train"
    assert "HOROVOD_RANK" not in starts.environ
    assert starts.environ["HOROVOD_CYCLE_TIME"] == "2"  # as in this run


def test_an_elastic_run_is_not_repeated(starts: Starts) -> None:
    context = replace(context_of(2, "horovod"), elastic=ElasticPosition(1, 0, lambda *_: None))
    why = limit_of_loader(context, COMPOSED.config, SUMMARY)["why"]
    assert why == "the limit of the loader cannot be measured: the ranks of an elastic run come and go"
    assert starts.commands == []


def test_a_single_rank_may_wait_for_longer(starts: Starts) -> None:
    limit_of_loader(context_of(1, "single"), COMPOSED.config, {**SUMMARY, "world_size": 1})
    assert starts.timeout_s > COMPOSED.config.dist.timeout_s
    assert "--nproc-per-node" not in starts.commands[0]


@pytest.mark.parametrize(
    ("name", "cache", "why"),
    [
        ("mpi", {}, "mpiexec is neither on PATH nor beside this Python; put it on PATH"),
        ("torch", {"fits_in_memory": False}, "the data do not fit into memory, from which reads would be answered"),
    ],
)
def test_a_run_that_cannot_be_repeated_says_why(
    name: str, cache: dict[str, Any], why: str, starts: Starts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    summary = {**SUMMARY, "cache": {**SUMMARY["cache"], **cache}}
    limit = limit_of_loader(context_of(2, name), COMPOSED.config, summary)
    assert limit["why"] == f"the limit of the loader cannot be measured: {why}"
    assert limit["mean"] is None
    assert starts.commands == []


def test_a_further_run_that_measures_nothing_gives_no_limit(starts: Starts) -> None:
    starts.measured = {**MEASURED, "au": {"mean": None, "why": "the run ended before its first step"}}
    limit = limit_of_loader(context_of(2, "torch"), COMPOSED.config, SUMMARY)
    assert limit["why"] == "the limit of the loader cannot be measured: the run ended before its first step"
    assert len(starts.commands) == 1
