"""The verb predict on folders of real runs: its table, its JSON, what it says it rests on, and what it refuses."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ranks import clean_environ

from dlio_torch import cli
from dlio_torch.prediction import project

TINY = ("recipe=minimal", "scale=tiny", "cache=as_is", "output.progress=false", "storage.limits=off")
Predict = Callable[..., dict[str, Any]]


def emulate(folder: Path, name: str, *arguments: str) -> Path:
    output = folder / name
    assert cli.main([*TINY, *arguments, f"dataset.root={folder / 'data'}", f"output.dir={output}"]) == 0
    return output


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("runs")


@pytest.fixture(scope="module")
def run(folder: Path) -> Path:
    return emulate(folder, "plain", "checkpoint=dlio", "checkpoint.every_steps=4")


@pytest.fixture
def predict(capsys: pytest.CaptureFixture[str]) -> Predict:
    def said(run: Path, *arguments: str) -> dict[str, Any]:
        capsys.readouterr()
        assert cli.main(["predict", str(run), *arguments, "--json"]) == 0
        found: dict[str, Any] = json.loads(capsys.readouterr().out)
        return found

    return said


def test_prints_a_row_for_each_number_of_ranks_and_what_it_rests_on(
    run: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert cli.main(["predict", str(run), "system=theta", "ranks=1..4:x2"]) == 0
    text = capsys.readouterr().out
    table = text[: text.index("one checkpoint:")]
    assert [line.split()[:2] for line in table.splitlines() if line.split()[:1] and line.split()[0].isdigit()] == [
        ["1", "1"],
        ["2", "1"],
        ["4", "1"],
    ]
    for words in ("measured:", "described:", "guessed:", "left out:", "conf/system/theta.yaml", "56 storage targets"):
        assert words in text
    assert "30000 opens/s" in text[text.index("guessed:") :]
    assert "page cache" in text[: text.index("described:")]
    assert max(map(len, text.splitlines())) <= 100


def test_json_has_the_figures(run: Path, predict: Predict) -> None:
    found = predict(run, "system=summit", "ranks=1,64")
    assert (found["schema"], found["system"]) == ("dlio_torch.prediction", "summit")
    one, many = found["rows"]
    assert (one["ranks"], many["ranks"], many["nodes"]) == (1, 64, 11)
    assert one["ideal_share"] == 1
    assert many["samples_per_s"] > one["samples_per_s"]
    assert 0 < one["au"] < 1
    assert one["checkpoint_s"] > 0
    assert set(found["assumptions"]) == {"measured", "described", "guessed", "not given", "left out"}


def test_says_who_makes_batches_and_what_was_not_recorded(folder: Path, predict: Predict) -> None:
    recorded = emulate(folder, "workers", "loader.num_workers=1", "train.epochs=1")
    told = predict(recorded, "system=theta", "ranks=1")["assumptions"]
    assert any("1 workers with a prefetch depth of 2" in line for line in told["measured"])
    assert any("opening a file takes one read" in line for line in told["guessed"])


def test_recorded_calls_take_the_place_of_counts(folder: Path, predict: Predict) -> None:
    output = folder / "recorded"
    arguments = [*TINY, "trace.posix=true", f"dataset.root={folder / 'data'}", f"output.dir={output}"]
    command = [sys.executable, "-m", "dlio_torch", *arguments]  # calls are recorded from the start of a process
    subprocess.run(command, env=clean_environ(), check=True, capture_output=True, timeout=100)
    told = predict(output, "system=theta", "ranks=1")["assumptions"]
    assert "bytes and requests per batch come from the recorded read calls" in told["measured"]
    assert "opening a file takes 8 reads at the begin of the file" in told["measured"]
    assert not any("opening a file takes one read" in line for line in told["guessed"])


def test_a_described_storage_is_the_limit(run: Path, predict: Predict) -> None:
    free = predict(run, "cached=1", "ranks=8")["rows"][0]
    slow = predict(run, "system.read_bytes_per_s=1MB", "ranks=8")["rows"][0]
    assert slow["limited_by"] == "storage targets"
    assert slow["samples_per_s"] < free["samples_per_s"] / 10
    assert free["io_share"] < slow["io_share"]


def test_another_amount_of_data(run: Path, predict: Predict) -> None:
    few, many = (predict(run, "cached=1", "ranks=8", *more)["rows"][0] for more in ((), ("samples=3200",)))
    assert many["epoch_s"] - many["begin_s"] == pytest.approx(100 * (few["epoch_s"] - few["begin_s"]), rel=0.01)
    assert predict(run, "system=theta", "ranks=64")["rows"][0]["epoch_s"] is None


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "system.read_bytes_per_s=0 (system unknown): the read rate of the storage is not described"),
        (("system=thet",), 2, "did you mean theta?"),
        (("system.peak=1",), 2, "unknown option"),
        (("system=theta", "ranks=0"), 2, "ranks=0 (command line): the value is not a whole number of 1 or more"),
        (("system=theta", "ranks=1,x"), 2, "ranks=x (command line)"),
        (("system=theta", "ranks=100000"), 2, "at most 65536 ranks"),
        (("system=theta", "cached=1.5"), 2, "cached=1.5 (command line): the value is not a share from 0 to 1"),
        (("system=theta", "files=none"), 2, "files=none (command line)"),
        (("loader.num_workers=2",), 2, "predict changes only the system and the ranks of a run"),
        (("another",), 2, "exactly one run is needed"),
        (("system=theta", "--output", "x"), 2, "not a flag of predict"),
    ],
)
def test_mistakes_are_one_line(
    run: Path, arguments: tuple[str, ...], code: int, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    capsys.readouterr()
    assert cli.main(["predict", str(run), *arguments]) == code
    error = capsys.readouterr().err
    assert said in error
    assert error.count("\n") == 1


def test_folders_that_are_no_runs_are_refused(run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["predict", str(tmp_path / "nowhere"), "system=theta"]) == 3
    assert cli.main(["predict", str(tmp_path), "system=theta"]) == 3
    assert "the file config.yaml is missing" in capsys.readouterr().err
    broken = tmp_path / "broken"
    shutil.copytree(run, broken)
    (broken / "summary.json").write_text("{}", encoding="utf-8")
    assert cli.main(["predict", str(broken), "system=theta"]) == 3
    assert "lacks a figure" in capsys.readouterr().err
    (broken / "summary.json").unlink()
    assert cli.main(["predict", str(broken), "system=theta"]) == 3
    assert "summary.json cannot be read" in capsys.readouterr().err
    shutil.copy(run / "summary.json", broken)
    shutil.rmtree(broken / "events")
    assert cli.main(["predict", str(broken), "system=theta"]) == 3
    assert capsys.readouterr().err.count("\n") == 1


@pytest.mark.parametrize("option", ["trace.spans=false", "loader.engine=decoupled"])
def test_runs_that_do_not_tell_are_refused(option: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = emulate(folder, option.replace("=", "_"), option)
    capsys.readouterr()
    assert cli.main(["predict", str(told), "system=theta"]) == 3
    assert option in capsys.readouterr().err


def test_without_the_simulator_the_error_says_what_to_install(
    run: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(project.importlib.util, "find_spec", lambda name: None)
    capsys.readouterr()
    assert cli.main(["predict", str(run), "system=theta"]) == 3
    assert "pip install 'dlio-torch[scale]'" in capsys.readouterr().err


READER = """
import os, threading
open("data.bin", "wb").write(bytes(1 << 22))
def read(part):
    file = os.open("data.bin", os.O_RDONLY)
    for number in range(50):
        os.pread(file, 4096, (number * 2 + part) * 40960 % (1 << 22))
    os.close(file)
threads = [threading.Thread(target=read, args=(part,)) for part in range({threads})]
[thread.start() for thread in threads] or read(0)
[thread.join() for thread in threads]
"""


@pytest.mark.parametrize("threads", [0, 2])
def test_a_recorded_program_is_a_rank(
    threads: int, tmp_path: Path, predict: Predict, capsys: pytest.CaptureFixture[str]
) -> None:
    program = READER.format(threads=threads)
    command = [sys.executable, "-m", "dlio_torch", "trace", "--output", "rec", "--", sys.executable, "-c", program]
    subprocess.run(command, env=clean_environ(), cwd=tmp_path, check=True, capture_output=True, timeout=100)
    result = predict(tmp_path / "rec", "system=theta", "ranks=1,512")
    few, many = result["rows"]
    assert few["samples_per_s"] > 0
    assert many["samples_per_s"] > few["samples_per_s"]
    assert few["au"] is None
    measured = " ".join(result["assumptions"]["measured"])
    assert "a sample stands for one read call" in measured
    assert ("2 threads or processes read" if threads else "its main thread reads") in measured
    assert f"{4096 / 1024:g} KiB in 1.0 requests, at random" in measured
    slow = predict(tmp_path / "rec", "system.read_bytes_per_s=100kB", "ranks=8")["rows"][0]
    assert slow["samples_per_s"] == pytest.approx(100_000 / 4096, rel=0.1)
    assert cli.main(["predict", str(tmp_path / "rec"), "loader.num_workers=1"]) == 2
    assert "changes only the system" in capsys.readouterr().err


def test_a_recording_without_reads_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = [sys.executable, "-m", "dlio_torch", "trace", "--output", "rec", "--", sys.executable, "-c", "pass"]
    subprocess.run(command, env=clean_environ(), cwd=tmp_path, check=True, capture_output=True, timeout=100)
    assert cli.main(["predict", str(tmp_path / "rec"), "system=theta"]) == 3
    assert "nothing to predict from" in capsys.readouterr().err


def test_a_system_is_a_file_of_ones_own_and_missing_figures_are_named(
    run: Path, predict: Predict, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("lustre.yaml").write_text("name: lustre\nread_bytes_per_s: 10GB\nrequest_latency_s: 0\n")
    result = predict(run, "system=./lustre.yaml", "ranks=1")
    assert result["system"] == "lustre"
    assert any("./lustre.yaml:2" in line for line in result["assumptions"]["described"])
    missing = result["assumptions"]["not given"]
    assert all(": not given, counted as 0 (system." in line for line in missing)
    keys = {line.rpartition("(system.")[2].rstrip(")") for line in missing}
    assert {"metadata_ops_per_s", "client_bytes_per_s", "target_requests_per_s"} <= keys
    assert "request_latency_s" not in keys  # a zero that the user wrote is a description
    Path("lustre.yaml").write_text("read_bytes_per_second: 10GB\n")
    assert cli.main(["predict", str(run), "system=./lustre.yaml"]) == 2
    error = capsys.readouterr().err
    assert "system.read_bytes_per_second" in error
    assert "lustre.yaml:1" in error
    assert "did you mean system.read_bytes_per_s?" in error
