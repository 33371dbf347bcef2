"""headspace as it runs: killed, resumed, failing, with more rounds where the first cannot tell."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import psutil
import pytest
from ranks import REPO, clean_environ
from study_runs import run_here, summary

from dlio_torch import cli
from dlio_torch.errors import RunFailed
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study import runner, trial
from dlio_torch.study.model import Point, Study, Trial
from dlio_torch.study.needs import StudyNeeds, needs
from dlio_torch.study.runner import Runner
from dlio_torch.study.store import Store
from dlio_torch.study.strategies.ladder.ladder import Ladder, LadderResult, name_of, plan_ladder
from dlio_torch.study.study_arguments import parse

Ask = Callable[[str, int], float | None]
"""Seconds of a step of a rung in a round; None: the run fails."""
# No compute, and the data are read into memory: two rungs.
REAL = ("recipe=./mine.yaml", "scale=tiny", "compute.mode=none", "loader.in_memory=true", "storage.limits=off")


@dataclass
class Runs:
    """Takes the place of real runs.

    Attributes:
        ask: what each run measures.
        made: what was run, rung and round.
        interrupt_at: the number of the run, from 1, in which Ctrl-C is pressed; 0: in none.
    """

    ask: Ask
    made: list[tuple[str, int]] = field(default_factory=list)
    interrupt_at: int = 0

    def __call__(self, point: Point, directory: Path, *, repeat: int, **about: object) -> Trial:
        name = name_of(point.values)
        directory.mkdir(parents=True)
        (directory / "half").touch()
        if self.interrupt_at == 1:
            raise KeyboardInterrupt
        self.interrupt_at -= 1
        self.made.append((name, repeat))
        step = self.ask(name, repeat)
        known: dict[str, Any] = {"point": point.number, "repeat": repeat, "values": point.values}
        if step is None:
            return Trial(
                point.settings, **known, status="failed", exit_code=1, error="no room", directory=str(directory)
            )
        run = RunDir(directory)
        run.write_json(run.summary, summary(step, rchar=0))
        figures = {"train.samples_per_s": 4 / step, "trial.wall_s": 1.0}
        return Trial(point.settings, **known, directory=str(directory), figures=figures)


def noisy(name: str, number: int) -> float:
    """Nobody can tell whether the loader costs anything, and there is drift."""
    step = {"configured": 0.020, "decode": 0.018, "hand_over": 0.016, "loader": 0.02}[name]
    return step * (1 + 0.3 * (-1) ** (number + len(name)) + 0.1 * number)


def quiet(name: str, number: int) -> float:
    """The loader takes half of the time, and there is drift."""
    return {"configured": 0.020, "decode": 0.0105, "hand_over": 0.0101, "loader": 0.02}[name] * (1 + 0.1 * number)


@cache
def planned(failures: int) -> StudyNeeds:
    return needs(ladder(failures).resolved)


@cache
def asked(failures: int) -> Study:
    return parse(["recipe=self_test", "repeats=2", f"failures={failures}"])[0]


def ladder(failures: int) -> Ladder:
    return plan_ladder(asked(failures))


def headspace(
    place: Path, runs: Runs, monkeypatch: pytest.MonkeyPatch, said: list[str] | None = None, failures: int = 1
) -> LadderResult:
    """The ladder in ``place``, begun or resumed."""
    monkeypatch.setattr(runner, "run_trial", runs)
    strategy = ladder(failures)
    begun = (place / "study.yaml").exists()
    with Store.open(place) if begun else Store.create(place, strategy.study) as store:
        say = (said if said is not None else []).append
        return strategy.result(Runner(store, strategy, planned(failures), say).run())


def results(found: LadderResult) -> dict[str, Any]:
    return {key: value for key, value in found.data().items() if key != "directory"}


def test_wherever_it_is_interrupted_it_ends_as_if_it_had_not_been(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole = Runs(noisy)
    found = headspace(tmp_path / "whole", whole, monkeypatch)
    assert found.rounds == 4
    ladder_only = ["configured", "decode", "hand_over"]
    for number in (1, 2, 3, 4):
        names = sorted(name for name, one in whole.made if one == number)
        assert names == (sorted([*ladder_only, "loader"]) if number <= 2 else ladder_only)
    often = Runs(noisy)
    for _ in range(len(whole.made)):
        often.interrupt_at = 2  # one run, and another that is not finished
        with suppress(KeyboardInterrupt):
            headspace(tmp_path / "often", often, monkeypatch)
    again = headspace(tmp_path / "often", often, monkeypatch)
    assert often.made == whole.made  # nothing twice, nothing left out, in the same order
    assert results(again) == results(found)
    kept = sorted(path.name for path in (tmp_path / "often/trials").iterdir())
    assert kept == sorted(f"{trial.point:03}-{trial.repeat}" for trial in again.trials)
    # Nothing is left: nothing is run.
    assert results(headspace(tmp_path / "often", Runs(noisy, interrupt_at=1), monkeypatch)) == results(found)


def test_no_more_rounds_than_needed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    said: list[str] = []
    runs = Runs(quiet)
    found = headspace(tmp_path / "there", runs, monkeypatch, said)
    assert (found.rounds, len(runs.made)) == (2, 8)
    assert found.sentences[0].startswith("The loader is the bottleneck: without any of its cost the throughput is 1.98")
    assert said[0] == "[1/8] round 1, as configured: 181.8 samples/s, 1 s; 7 left"
    assert said[2].endswith("; 5 left, about 4.99 s")  # from two trials on, without the first
    wild = headspace(tmp_path / "wild", Runs(noisy), monkeypatch, said)
    assert wild.data()["bottleneck"] is None
    assert "2 rounds cannot tell whether the loader is the bottleneck: 2 more rounds of 3 rungs" in said


def test_a_configuration_that_does_not_run_ends_it_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(lambda name, number: None if name == "configured" else 0.01)
    for _ in range(2):  # also when it is resumed
        with pytest.raises(RunFailed, match="the configuration without changes fails: no room"):
            headspace(tmp_path / "there", runs, monkeypatch)
        assert runs.made == [("configured", 1)]


def test_a_rung_that_fails_is_left_out_and_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for failing in ((1, 2), (2,)):  # what is not in all rounds cannot be compared with what is
        runs = Runs(lambda name, number, at=failing: None if name == "decode" and number in at else quiet(name, number))
        found = headspace(tmp_path / f"{len(failing)}", runs, monkeypatch)
        assert len(runs.made) == 9 - len(failing)
        assert {one.rung.name: one.why for one in found.effects}["decode"] == "failed: no room"
        assert found.sentences[0].startswith("The loader is the bottleneck")
        assert found.sentences[1].endswith(
            "collation and transfer gives most: 11.4 ms of each step (costs included in the next rung: preprocessing)."
        )
    # More rounds would tell nothing where one of the ends has none.
    lost = Runs(lambda name, number: None if (name, number) == ("hand_over", 2) else noisy(name, number))
    found = headspace(tmp_path / "lost", lost, monkeypatch)
    assert (found.rounds, len(lost.made)) == (2, 8)
    rows = {one.rung.name: one for one in found.effects}
    assert rows["hand_over"].note == "a run failed: no room"
    assert found.data()["bottleneck"] is None


def test_a_run_that_failed_is_tried_again_where_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    failed: list[str] = []

    def once(name: str, number: int) -> float | None:
        if name in ("configured", "decode") and number == 1 and name not in failed:
            failed.append(name)
            return None
        return quiet(name, number)

    runs = Runs(once)
    found = headspace(tmp_path / "there", runs, monkeypatch, failures=2)
    assert [one for one in runs.made if one[0] == "decode"] == [("decode", 1), ("decode", 1), ("decode", 2)]
    rows = {one.rung.name: one for one in found.effects}
    assert [rows[name].note.split(";")[0] for name in failed] == ["a run failed: no room"] * 2
    assert rows["decode"].step is not None
    assert rows["decode"].step.count == 2


# --- real runs --------------------------------------------------------------------------------------


@pytest.mark.ranks
def test_a_headspace_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    place = tmp_path / "there"
    (tmp_path / "mine.yaml").write_text((REPO / "recipes/minimal.yaml").read_text())
    command = [sys.executable, "-m", "dlio_torch", "headspace", *REAL, "repeats=1", f"output={place}"]
    process = subprocess.Popen(
        command, cwd=tmp_path, env=clean_environ(), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        study = psutil.Process(process.pid)
        _until(lambda: len(_lines(place)) == 1 and len(list((place / "trials").glob("*.log"))) == 2, process)
        _until(lambda: bool(study.children()), process)  # its log is made before the run is started
        runs = study.children(recursive=True)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert runs
    assert psutil.wait_procs(runs, timeout=20)[1] == []  # a run does not outlive its study
    (line,) = _lines(place)
    first = (place / json.loads(line)["directory"] / "summary.json").stat()
    (data,) = (tmp_path / "data").iterdir()
    files = {path: path.stat().st_mtime_ns for path in data.glob("train/*")}
    assert len(files) == 4
    monkeypatch.chdir("/")  # it goes on from anywhere
    capsys.readouterr()

    assert cli.main(["headspace", "--resume", str(place), "--dry-run"]) == 0
    planned = capsys.readouterr()
    assert "2 in all, 1 of them done" in planned.err
    assert planned.out.splitlines()[0] == "as configured: nothing is changed"
    assert planned.out.splitlines()[-2].startswith("compute alone: left out: ")
    assert _lines(place) == [line]
    monkeypatch.setattr(trial, "run_process", run_here)
    assert cli.main(["headspace", "start=fresh", "--resume", str(place), "--json"]) == 0

    lines = _lines(place)
    assert lines[0] == line
    assert [(json.loads(one)["values"]["rung"], json.loads(one)["status"]) for one in lines] == [
        ("configured", "done"),
        ("hand_over", "done"),
    ]
    assert (place / json.loads(line)["directory"] / "summary.json").stat() == first
    # One data set, written once, where the study was begun.
    assert {path: path.stat().st_mtime_ns for path in data.glob("train/*")} == files
    assert len((place / "data.txt").read_text().splitlines()) == 1
    assert sorted(path.name for path in (place / "trials").iterdir() if path.is_dir()) == ["001-1", "002-1"]
    found = json.loads(capsys.readouterr().out)
    assert found == json.loads((place / "headspace.json").read_text())
    assert {one["rung"]: one["step_s"]["count"] for one in found["rungs"] if one["step_s"]} == {
        "configured": 1,
        "hand_over": 1,
    }
    assert (place / "report.html").stat().st_size > 1000

    # Nothing is left to run, and the same command finds what it has done.
    monkeypatch.chdir(tmp_path)
    assert cli.main(["headspace", *REAL, "repeats=1", f"output={place}", "--dry-run"]) == 0
    assert "2 in all, 2 of them done" in capsys.readouterr().err
    assert _lines(place) == lines

    # What asks something else has another folder, and the recipe must be the same.
    refused(
        ["--resume", str(place), "seed=7"],
        2,
        "seed=7 (command line): this setting of a study cannot be changed",
        capsys,
    )
    refused([*REAL, "seed=7", f"output={place}"], 3, "there contains a headspace with other", capsys)
    (tmp_path / "mine.yaml").write_text((tmp_path / "mine.yaml").read_text().replace("batch_size: 4", "batch_size: 2"))
    refused(["--resume", str(place)], 3, "the configuration has changed since the headspace in", capsys)
    assert _lines(place) == lines


def test_bad_input_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments, text in (
        ([], "recipe"),
        (["recipe=nothing"], "recipe=nothing (command line)"),
        (["recipe=minimal", "repeats=0"], "repeats=0 (command line): expected a number from 1"),
        (["recipe=minimal", "minutes=5"], "minutes"),
        (["recipe=minimal", "output="], "output= (command line): the value names no folder"),
        (["recipe=minimal", "train.min_au=2"], "train.min_au=2"),
        (["recipe=minimal", "seed=1,2"], "seed=1,2 (command line): headspace measures a single configuration"),
        (["study=cosmic_tagger_chunk"], "the verb headspace has no such key; use the key with sweep"),
        (["--resume"], "--resume (command line): no value"),
    ):
        refused(arguments, 2, text, capsys)
    refused(["--resume", "nowhere"], 3, "nowhere is not the folder of a study", capsys)
    refused(["recipe=minimal", "dataset.path=nowhere"], 3, "nowhere", capsys)
    (tmp_path / "full").mkdir()
    (tmp_path / "full/file").touch()
    refused(["recipe=minimal", "output=full"], 3, "output=full (command line): the folder is not empty", capsys)
    sweep, _ = parse(["recipe=minimal", "seed=1,2"])
    Store.create(tmp_path / "sweep", sweep).close()
    refused(["--resume", "sweep"], 3, "sweep contains another kind of study, not a headspace study", capsys)
    refused(
        ["recipe=minimal", "output=sweep"], 3, "sweep contains another kind of study, not a headspace study", capsys
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["full", "sweep"]


def refused(arguments: Sequence[str], code: int, text: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The last line, and no other that begins like it, says what is wrong."""
    capsys.readouterr()
    assert cli.main(["headspace", *arguments]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if line.startswith("dlio_torch:")]
    assert len(lines) == 1
    assert lines[0].startswith("dlio_torch: error: ")
    assert text in lines[0]


def _lines(place: Path) -> list[str]:
    with suppress(OSError):
        return (place / "trials.jsonl").read_text().splitlines()
    return []


def _until(condition: Callable[[], bool], process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not condition():
        assert process.poll() is None, "the study ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.02)
