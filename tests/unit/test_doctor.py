"""``doctor``: what it looks at, what it says, and that it measures for real."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import psutil
import pytest

from dlio_torch import cli, doctor
from dlio_torch.doctor import MachineCheck
from dlio_torch.storage.local import stored_limits

SELF_TESTS = [f"self-test, {step}, {ranks}" for ranks in ("1 rank", "2 ranks") for step in ("500 µs", "5 ms", "50 ms")]


@pytest.mark.ranks
def test_this_machine_is_ready_and_the_tool_is_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(doctor, "_SELF_TESTS", [(0.0005, 200, 0.99, 0.97)])  # one of three, on one rank and on two
    assert cli.main(["doctor", "--json"]) == 0
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    checks = {check["name"]: check for check in found["checks"]}
    assert {"versions", "cores", "data folder", "run folder", "timer", "processor", "horovod"} <= set(checks)
    measured = [name for name in checks if name.startswith("self-test")]
    assert measured == SELF_TESTS[::3]
    for name in measured:
        # How high it is depends on who else uses the machine; a miss is a note.
        assert checks[name]["verdict"] in ("ok", "note")
        assert checks[name]["text"].startswith("utilisation ")
        assert 0 < float(checks[name]["text"].split()[1].rstrip("%")) <= 100
        assert ("the machine busy" in checks[name]["text"]) == (checks[name]["verdict"] == "note")
    assert {check["verdict"] for check in found["checks"]} <= {"ok", "note"}
    assert found["environment"]["versions"]["torch"]
    assert found["calibration"]["spin_tail_ns"] > 0
    assert list(tmp_path.iterdir()) == []


def result(au: float) -> dict[str, Any]:
    row = {"mean": 0.0, "median": 2e-6, "p95": 0.0, "max": 0.0}
    return {"au": {"mean": au}, "step": {"fetch_s": row, "other_s": row}}


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[int, float, int]]:
    """No processes: 99.5 % on one rank, 90 % on two."""
    asked: list[tuple[int, float, int]] = []

    def measure(directory: Path, ranks: int, step_s: float, steps: int) -> dict[str, Any]:
        asked.append((ranks, step_s, steps))
        return result(0.995 if ranks == 1 else 0.9)

    monkeypatch.setattr(doctor, "_measure", measure)
    monkeypatch.setattr(stored_limits, "load_or_measure", lambda *_, **__: [])
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    return asked


def test_the_table_has_a_row_for_each_check(
    quick: list[tuple[int, float, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["doctor"]) == 0
    said = capsys.readouterr()
    out = said.out
    shown = said.err.splitlines()
    assert shown[0] == "checking versions and limits"
    assert shown[-6:] == [f"running {name} ({number} of 6)" for number, name in enumerate(SELF_TESTS, 1)]
    assert f"measuring the storage of {Path.cwd() / 'data'}" in shown
    assert all(name in out for name in SELF_TESTS)
    rows = [line for line in out.splitlines() if line.startswith("self-test")]
    assert [" ok " in row for row in rows] == [True] * 3 + [False] * 3
    assert "utilisation 99.5 % (expected 99 %); median of a step: fetch 2 µs" in rows[0]
    assert "expected 97 %" in rows[3]
    assert [(ranks, step_s) for ranks, step_s, _ in quick] == [
        (ranks, step_s) for ranks in (1, 2) for step_s in (0.0005, 0.005, 0.05)
    ]


@pytest.mark.usefixtures("quick")
def test_a_quiet_doctor_shows_its_findings_only(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["doctor", "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert "self-test" in quiet.out
    assert cli.main(["doctor", "--json"]) == 0
    said = capsys.readouterr()
    assert json.loads(said.out)["checks"]
    assert said.err != ""
    assert cli.main(["doctor", "recipe=minimal", "storage.limits=off"]) == 0
    assert "measuring the storage" not in capsys.readouterr().err


@pytest.mark.usefixtures("quick")
def test_a_folder_that_cannot_be_written_is_bad(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "file").write_text("in the way")
    assert cli.main(["doctor", "recipe=minimal", "dataset.root=file/data", "--json"]) == 3
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)["checks"]}
    assert checks["data folder"]["verdict"] == "bad"
    assert "file is not a folder" in checks["data folder"]["text"]
    assert checks["run folder"]["verdict"] == "ok"


@pytest.mark.usefixtures("quick")
def test_what_a_killed_generation_left_is_noted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data" / "minimal-0" / "train"
    folder.mkdir(parents=True)
    (folder / ".train_0000000.h5.123.part").write_bytes(b"half")
    assert cli.main(["doctor", "--json"]) == 0
    left = [check for check in json.loads(capsys.readouterr().out)["checks"] if check["name"] == "orphaned files"]
    assert {check["verdict"] for check in left} == {"note"}
    assert any(check["text"].startswith("1 unfinished files of data generation that was killed") for check in left)


def test_a_self_test_that_fails_is_bad() -> None:
    assert doctor._judge("name", "dlio_torch: error: no", 0.99) == MachineCheck("name", "bad", "dlio_torch: error: no")


def test_a_self_test_says_in_one_line_why_it_failed(tmp_path: Path) -> None:
    (tmp_path / "occupied").mkdir()
    (tmp_path / "occupied" / "file").touch()
    found = doctor._measure(tmp_path / "occupied", 1, 0.0005, 10)
    assert (
        found == f"dlio_torch: error: output.dir={tmp_path}/occupied (command line): the folder is not empty; choose "
        f"another folder"
    )


def test_a_self_test_that_hangs_is_ended_with_its_ranks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_PATIENCE_S", 4)
    assert doctor._measure(tmp_path / "run", 2, 60.0, 1000) == "the self-test gave no result within 4 s"
    left = [process for process in psutil.process_iter() if f"output.dir={tmp_path}/run" in _arguments(process)]
    assert psutil.wait_procs(left, timeout=5)[1] == []


def _arguments(process: psutil.Process) -> list[str]:
    try:
        return process.cmdline()
    except psutil.Error:
        return []
