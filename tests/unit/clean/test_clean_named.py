"""``clean PATH...`` removes the named folders of the tool, and nothing else."""

from __future__ import annotations

import os
from pathlib import Path

import psutil
import pytest

from dlio_torch import cli
from dlio_torch.ownership.marker import write_marker
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.kept_results import keep_earlier
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.model import Study
from dlio_torch.study.store import Store


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def run(name: str, *, ended: bool = True) -> Path:
    directory = RunDir.create("unused", "mine", name)
    run_state.begin(directory.state, 1)
    if ended:
        run_state.end(directory.state, failed=False)
    return directory.path


def test_named_runs_studies_and_kept_copies_go(capsys: pytest.CaptureFixture[str]) -> None:
    first = run("first")
    kept = keep_earlier(first, "output.dir")
    assert kept is not None
    run("first")
    run("other")
    recording = RunDir.create("unused", "trace", "rec", kind="recording")
    recording.write_json(recording.command, {"runtime_s": 1.0})
    with Store.create(Path("study"), Study("mine", "a study", ())):
        pass
    assert cli.main(["clean", "first", "first.1", "rec", "study", "first/", "--yes"]) == 0
    assert sorted(path.name for path in Path().iterdir()) == ["other"]
    text = capsys.readouterr().out
    for name in ("first: ", "first.1: ", "rec: ", "study: "):
        assert name in text


def test_everything_else_stays_and_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    mine = run("mine")
    (mine / "notes.txt").write_text("of the user")
    Path("docs").mkdir()
    Path("docs/text").write_text("of the user")
    Path("link").symlink_to("mine")
    Path("file").write_text("of the user")
    running = run("running", ended=False)
    assert cli.main(["clean", "mine", "docs", "link", "file", "running", "--yes"]) == 3
    lines = capsys.readouterr().out
    for text in (
        "mine/notes.txt: not on the list",
        "docs: the folder has no marker",
        "link: a link",
        "file: the path is not a folder",
        "running: the run is still running",
    ):
        assert text in lines
    assert [path.name for path in mine.iterdir()] == ["notes.txt"]
    assert (running / "state.json").exists()
    assert Path("docs/text").exists()
    assert Path("file").exists()


def test_a_recording_and_an_elastic_run_that_go_on_stay(capsys: pytest.CaptureFixture[str]) -> None:
    recording = RunDir.create("unused", "trace", "rec", kind="recording")
    started = int(psutil.Process().create_time() * 1e9)
    recording.write_json(recording.command, {"pid": os.getpid(), "process_started_ns": started})
    elastic = RunDir.create("unused", "mine", "elastic")
    elastic.write_json(elastic.elastic, {"turns": []})
    run(str(elastic.turn(1)), ended=False)
    assert cli.main(["clean", "rec", "elastic", "--yes"]) == 3
    lines = capsys.readouterr().out
    assert f"rec: the recording is still running (process {os.getpid()})" in lines
    assert f"elastic: the run is still running (process {os.getpid()})" in lines
    assert recording.command.exists()
    assert RunDir(elastic.turn(1)).state.exists()
    run_state.end(RunDir(elastic.turn(1)).state, failed=False)
    recording.write_json(recording.command, {"runtime_s": 1.0})
    assert cli.main(["clean", "rec", "elastic", "--yes"]) == 0
    assert list(Path().iterdir()) == []


def test_a_missing_path_removes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    run("mine")
    assert cli.main(["clean", "mine", "nowhere", "--yes"]) == 3
    assert "clean nowhere: no such file or folder" in capsys.readouterr().err
    assert Path("mine").exists()


def test_a_folder_of_runs_names_the_runs_in_it(capsys: pytest.CaptureFixture[str]) -> None:
    run("runs/mine/1")
    assert cli.main(["clean", "runs", "--yes"]) == 3
    assert "name the folders in it, for example runs/mine/1" in capsys.readouterr().out
    assert Path("runs/mine/1").exists()


def test_it_asks(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    run("mine")
    monkeypatch.setattr("sys.stdin", None)
    assert cli.main(["clean", "mine"]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert Path("mine").exists()


def test_names_and_a_recipe_are_not_mixed(capsys: pytest.CaptureFixture[str]) -> None:
    run("mine")
    assert cli.main(["clean", "mine", "recipe=minimal", "--yes"]) == 2
    assert "either the named folders or the files of a recipe" in capsys.readouterr().err
    assert Path("mine").exists()


def test_paths_may_hold_an_equals_sign() -> None:
    run("runs/a=b")
    assert cli.main(["clean", "./runs/a=b", "--yes"]) == 0
    assert not Path("runs/a=b").exists()


def test_a_folder_that_is_named_twice_is_planned_once(capsys: pytest.CaptureFixture[str]) -> None:
    first = run("mine")
    assert keep_earlier(first, "output.dir") is not None
    run("mine")
    Path("link").symlink_to(".")
    names = ["mine.1", "mine/../mine.1", "link/mine.1", str(Path("mine.1").absolute())]
    assert cli.main(["clean", *names, "--yes"]) == 0
    assert capsys.readouterr().out.count("mine.1: ") == 1
    assert [path.name for path in sorted(Path().iterdir())] == ["link", "mine"]


@pytest.mark.parametrize("path", ["/", "//", "/../", "/tmp/.."])
def test_the_root_of_the_file_system_is_refused_in_one_line(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    run("mine")
    assert cli.main(["clean", "mine", path, "--yes"]) == 3
    error = capsys.readouterr().err
    assert "this is the root of the file system" in error
    assert error.count("\n") == 1
    assert Path("mine").exists()


def test_a_staged_copy_goes_with_its_marker() -> None:
    Path("copies").mkdir()
    Path("copies/x.h5").write_text("x")
    write_marker("copies", Path("copies"), None, ["x.h5"])
    Path("copies/dlio_torch.json").rename("copies.kept.json")
    from dlio_torch.storage.stage_folder import KEPT

    Path("copies.kept.json").rename(f"copies{KEPT}")
    assert cli.main(["clean", "copies", "--yes"]) == 0
    assert list(Path().iterdir()) == []
