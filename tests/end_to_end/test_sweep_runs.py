"""Studies that are really run: killed, resumed, failing, with other data."""

from __future__ import annotations

import math
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import suppress
from pathlib import Path

import pandas as pd
import psutil
import pytest
from ranks import clean_environ

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.sweep import main
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, PreconditionError, RunFailed
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.store import Store
from dlio_torch.study.trial import log_of
from dlio_torch.supervision.run_process import TIMED_OUT, run_process

ALONE = Launch("single", 0, 1, 0)
STUDY = """
title: three cases
recipe: minimal
settings: [scale=tiny, storage.limits=off]
repeats: 1
axes:
  - key: case
    values:
      as hdf5: [dataset=hdf5]
      as npz: [dataset=npz]
      too slow: [train.min_au=0.999999]
figures: [train.samples_per_s, reads.samples]
"""
PROGRAM = """
import sys
from dlio_torch.commands.command_line import Command
from dlio_torch.commands.sweep import main
from dlio_torch.dist.launcher import detect
main(Command("sweep", settings=tuple(sys.argv[1:])), detect())
"""


def sweep(*settings: str, resume: Path | None = None, flags: frozenset[str] = frozenset()) -> int:
    values = () if resume is None else (("--resume", str(resume)),)
    return main(Command("sweep", flags, settings=settings, values=values), ALONE)


@pytest.mark.ranks
def test_a_study_that_was_killed_goes_on_where_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.yaml").write_text(STUDY)
    place = tmp_path / "there"
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, "study=./mine.yaml", f"output={place}"],
        cwd=tmp_path,
        env=clean_environ(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _until(lambda: len(_lines(place)) == 1 and len(list((place / "trials").glob("*.log"))) == 2, process)
        runs = psutil.Process(process.pid).children(recursive=True)
    finally:
        process.send_signal(signal.SIGKILL)
        process.wait()
    assert runs
    assert psutil.wait_procs(runs, timeout=20)[1] == []  # a run does not outlive its study
    with Store.open(place, write=False) as store:
        (before,) = store.trials()
    monkeypatch.chdir("/")  # a study goes on from anywhere

    assert sweep(resume=place) == 0

    with Store.open(place) as store:
        trials = store.trials()
    assert trials[0] == before
    assert sorted((one.point, one.repeat) for one in trials) == [(1, 1), (2, 1), (3, 1)]
    by_case = {dict(one.values)["case"]: one for one in trials}
    assert {case: one.exit_code for case, one in by_case.items()} == {"as hdf5": 0, "as npz": 0, "too slow": 4}
    assert "below the threshold train.min_au=0.999999" in (by_case["too slow"].error or "")
    for one in trials:
        assert one.figures["reads.samples"] == 32
        assert (one.figures["trial.cpu_s"] or 0) > 0.5
        assert (one.figures["trial.peak_rss_bytes"] or math.inf) > 50e6
    # Two formats are two data sets, each written once, where the study was begun.
    assert len((place / "data.txt").read_text().splitlines()) == 2
    assert {len(list(folder.glob("train/*"))) for folder in (tmp_path / "data").iterdir()} == {4}
    assert sorted(path.name for path in (place / "trials").iterdir() if path.is_dir()) == ["001-1", "002-1", "003-1"]
    table = pd.read_csv(place / "table.csv")
    assert list(table["n"]) == [1, 1, 0]
    assert (place / "report.html").stat().st_size > 1000
    said = capsys.readouterr()
    assert "3 in all, 1 of them done" in said.err
    assert "failed (exit code 4)" in said.err
    assert "point 3 (case=too slow) failed: accelerator utilisation is 0." in said.out

    # Nothing is left: the tables are written again, no run is started; the data go where that is asked for.
    started = time.time()
    assert sweep(resume=place, flags=frozenset({"--remove-data"})) == 0
    with Store.open(place) as store:
        assert store.trials() == trials
    assert (place / "table.csv").stat().st_mtime >= started
    assert list((tmp_path / "data").iterdir()) == []
    # Another question needs another folder.
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PreconditionError, match="contains a study with other"):
        sweep("study=./mine.yaml", "seed=7", f"output={place}")
    with pytest.raises(ConfigError, match="cannot be changed"):
        sweep("seed=7", resume=place)


def test_a_study_without_a_single_figure_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(RunFailed, match=r"no run of the study .* the run took longer than its time limit, 1 ms"):
        sweep("recipe=minimal", "scale=tiny", "dataset=synthetic", "timeout=1ms", "output=there", "seed=1,2")
    with Store.open(tmp_path / "there") as store:
        assert [(one.exit_code, one.repeat) for one in store.trials()] == [(TIMED_OUT, 1)] * 2


def test_a_dry_run_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    arguments = ("recipe=minimal", "scale=tiny", "loader.num_workers=0,1,2", "loader.prefetch_factor=2,8")
    assert sweep(*arguments, flags=frozenset({"--dry-run"})) == 0
    assert list(tmp_path.iterdir()) == []
    said = capsys.readouterr().err
    assert "trials: 5 points, 3 repeats of each: 15 in all" in said
    assert "to write: 4 files, about 512 KiB" in said
    with pytest.raises(ConfigError, match="a launcher started this command as 2 ranks"):
        main(Command("sweep", settings=arguments), Launch("torchrun", 0, 2, 0))


SLEEPER = "import subprocess, sys, time; subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(60)']); "


def test_what_takes_too_long_is_ended_with_its_children(tmp_path: Path) -> None:
    before = set(psutil.Process().children(recursive=True))
    command = [sys.executable, "-c", SLEEPER + "time.sleep(60)"]
    ended = run_process(command, tmp_path / "log", timeout_s=1.0)
    assert (ended.exit_code, ended.error) == (TIMED_OUT, "the run took longer than its time limit, 1 s")
    assert set(psutil.Process().children(recursive=True)) <= before


def test_an_interrupt_ends_the_run_and_is_passed_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    before = psutil.Process().children()  # other tests may have left helpers of multiprocessing
    timer = threading.Timer(1.0, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        run_process([sys.executable, "-c", "import time; print('here', flush=True); time.sleep(60)"], log, timeout_s=60)
    timer.join()
    assert not set(psutil.Process().children()) - set(before)
    assert "KeyboardInterrupt" in log.read_text()  # as Ctrl-C would have ended it


@pytest.mark.parametrize(
    ("program", "code", "error"),
    [
        ("print('fine')", 0, ""),
        (
            "import sys; print('dlio_torch: rank 1: error: no room; free some'); print('x'); sys.exit(3)",
            3,
            "no room; free some",
        ),
        ("import sys; sys.exit('something else')", 1, "something else"),
        ("import os; os.kill(os.getpid(), 9)", 137, "killed by SIGKILL: the run printed no message"),
    ],
)
def test_how_a_run_ended(tmp_path: Path, program: str, code: int, error: str) -> None:
    ended = run_process([sys.executable, "-c", program], log_of(tmp_path / "run"), timeout_s=60)
    assert (ended.exit_code, ended.error) == (code, error)
    assert ended.wall_s > 0
    assert (ended.peak_rss_bytes or math.inf) > 1e6


def test_peak_memory_is_that_of_the_run_or_not_known(tmp_path: Path) -> None:
    """Linux counts what a process had when it was forked, so a run that is smaller than its parent cannot be told."""
    program = f"""
import sys
from pathlib import Path
from dlio_torch.supervision.run_process import run_process
command = [sys.executable, "-c", "b'x' * (200 << 20)"]
small = run_process(command, Path({str(tmp_path / "small.log")!r}), timeout_s=60)
memory = b"x" * (400 << 20)
large = run_process(command, Path({str(tmp_path / "large.log")!r}), timeout_s=60)
print(small.peak_rss_bytes >> 20, large.peak_rss_bytes)
"""
    said = subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout.split()
    assert 200 <= int(said[0]) < 300
    assert said[1] == "None"


def _lines(place: Path) -> list[str]:
    with suppress(OSError):
        return (place / "trials.jsonl").read_text().splitlines()
    return []


def test_trials_that_only_save_are_compared(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    saved = ("checkpoint=torch_save", "checkpoint.root=saved", "saves=3", "loads=2", "repeats=1", "output=there")
    sizes = "checkpoint.state_bytes=1MiB,2MiB"
    assert sweep("verb=checkpoint", "recipe=minimal", "scale=tiny", sizes, *saved) == 0
    with Store.open(tmp_path / "there", write=False) as store:
        trials = sorted(store.trials(), key=lambda trial: trial.point)
        summaries = [RunDir(store.path / trial.directory) for trial in trials]
    assert [(trial.status, trial.start) for trial in trials] == [("done", "warm")] * 2
    figures = [run.read_json(run.summary)["checkpoints"] for run in summaries]
    assert [(part["save"]["count"], part["restore"]["count"]) for part in figures] == [(3, 2)] * 2
    for trial, part in zip(trials, figures, strict=True):
        assert trial.figures["checkpoints.save.bytes_per_s.mean"] == part["save"]["bytes_per_s"]["mean"]
    assert list((tmp_path / "saved" / "minimal").iterdir()) == []  # checkpoints end with their trial
    assert not (tmp_path / "data").exists()
    assert "rate of saves" in capsys.readouterr().out.replace("\n", " ")
    assert "checkpoints.restore.bytes_per_s.mean" in (tmp_path / "there" / "table.md").read_text()


def _until(condition: object, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + 120
    while not condition():  # type: ignore[operator]
        assert process.poll() is None, "the study ended by itself"
        assert time.monotonic() < deadline
        time.sleep(0.02)
