"""report without a path: the newest run, recording or study."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlio_torch import cli
from dlio_torch.commands.newest_run import newest
from dlio_torch.run_directory.run_dir import RunDir

DAY_S = 86_400


def begun(folder: Path, day: int, *names: str) -> Path:
    """A folder with the first files of a run, begun on a day."""
    folder.mkdir(parents=True)
    for name in names:
        (folder / name).write_text("{}")
        os.utime(folder / name, (day * DAY_S, day * DAY_S))
    return folder


def test_the_newest_result_is_the_one_begun_last(tmp_path: Path) -> None:
    assert newest(tmp_path / "runs") is None
    runs = tmp_path / "runs"
    later = begun(runs / "minimal" / "20250102-000000", 2, "config.yaml", "environment.json")
    begun(runs / "minimal" / "20250101-000000", 1, "config.yaml", "environment.json")
    assert newest(runs) == ("run", later)
    (runs / "minimal" / "20250101-000000" / "report.html").write_text("added now")
    assert newest(runs) == ("run", later)
    recorded = begun(runs / "trace" / "20250103-000000", 3, "command.json")
    assert newest(runs) == ("recording", recorded)
    turn = begun(runs / "minimal" / "20250104-000000" / "turn-2", 4, "sources.yaml", "environment.json")
    assert newest(runs) == ("run", turn)
    mine = begun(runs / "mine", 5, "config.yaml")
    assert newest(runs) == ("run", mine)
    begun(runs / ".hidden", 9, "config.yaml")
    assert newest(runs) == ("run", mine)


def test_a_study_is_taken_as_a_whole(tmp_path: Path) -> None:
    run = begun(tmp_path / "minimal" / "20250101-000000", 1, "config.yaml")
    study = begun(tmp_path / "sweeps" / "first" / "20250102-000000", 2, "study.yaml", "dlio_torch.json")
    begun(study / "trials" / "1", 3, "config.yaml")
    assert newest(tmp_path) == ("study", study)
    assert newest(tmp_path, studies=False) == ("run", run)


def test_report_without_a_path_names_what_it_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["report"]) == 3
    error = "no run below output.root={}; give a path: report PATH, or output.root=DIR\n"
    assert capsys.readouterr().err == "dlio_torch: error: report: " + error.format("runs")
    assert cli.main(["report", "--json", "output.root=elsewhere"]) == 3
    assert capsys.readouterr().err == "dlio_torch: error: report: " + error.format("elsewhere")
    (tmp_path / "file").touch()
    assert cli.main(["report", "output.root=file"]) == 3
    capsys.readouterr()
    first = RunDir.create("runs", "trace", kind="recording")
    first.events.mkdir()
    first.write_json(first.command, {"command": ["true"]})
    assert cli.main(["report", "--json"]) == 0
    said = capsys.readouterr()
    assert said.err.startswith(f"newest recording: runs/trace/{first.path.name}\n")
    assert said.out.startswith("{")


@pytest.mark.parametrize("arguments", [["a", "b"], ["a", "output.root=b"], ["output.root=s3://bucket"]])
def test_report_takes_one_path_or_a_root(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    assert cli.main(["report", *arguments]) == 2
    assert capsys.readouterr().err.count("\n") == 1
