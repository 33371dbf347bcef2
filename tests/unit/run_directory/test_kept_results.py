"""A used folder of results is kept under another name if it is provably a finished run; anything else stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlio_torch.config.schema import Config, DatasetConfig, OutputConfig, TrainConfig
from dlio_torch.errors import PreconditionError
from dlio_torch.ownership.removal import marker_of
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.kept_results import check_run_folder, keep_earlier
from dlio_torch.run_directory.run_dir import RunDir


def run(folder: Path, *, ended: bool = True) -> RunDir:
    """A run directory with its state and one file."""
    directory = RunDir.create("unused", "mine", folder)
    run_state.begin(directory.state, 1)
    directory.write_text(directory.config, "a: 1\n")
    if ended:
        run_state.end(directory.state, failed=False)
    return directory


def config(folder: Path, **changes: object) -> Config:
    return Config(recipe="mine", output=OutputConfig(dir=str(folder)), **changes)  # type: ignore[arg-type]


def refused(folder: Path, text: str, **changes: object) -> None:
    with pytest.raises(PreconditionError, match=text):
        check_run_folder(config(folder, **changes), "command line")


def test_earlier_runs_get_the_next_free_number_and_stay_removable(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    (tmp_path / "mine.2").write_text("of the user")
    assert keep_earlier(folder, "output.dir") is None
    for number in (1, 3):
        run(folder)
        line = check_run_folder(config(folder), "command line")
        assert line.endswith(f"will be kept as {folder}.{number}")
        assert keep_earlier(folder, "output.dir") == tmp_path / f"mine.{number}"
        assert marker_of(tmp_path / f"mine.{number}").kind == "run"
        assert not folder.exists()
    assert (tmp_path / "mine.2").read_text() == "of the user"
    assert RunDir(tmp_path / "mine.3").config.read_text() == "a: 1\n"


def test_folders_that_are_no_finished_runs_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    foreign = tmp_path / "notes"
    foreign.mkdir()
    (foreign / "text").write_text("mine")
    refused(foreign, "not empty")
    copied = tmp_path / "copied"
    directory = run(tmp_path / "run")
    copied.mkdir()
    for name in ("dlio_torch.json", "state.json"):
        (copied / name).write_bytes((directory.path / name).read_bytes())
    refused(copied, "not empty")
    link = tmp_path / "link"
    link.symlink_to(directory.path)
    refused(link, "not empty")
    refused(run(tmp_path / "running", ended=False).path, f"still running \\(process {os.getpid()}\\)")
    begun = RunDir.create("unused", "mine", tmp_path / "begun")
    begun.write_text(begun.config, "a: 1\n")
    refused(begun.path, "just have begun")
    monkeypatch.chdir(directory.path)
    refused(directory.path, "working directory")
    with pytest.raises(PreconditionError, match="not empty"):
        keep_earlier(foreign, "output.dir")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["begun", "copied", "link", "notes", "run", "running"]


def test_a_run_on_another_host_may_still_write(tmp_path: Path) -> None:
    directory = run(tmp_path / "run", ended=False)
    state = json.loads(directory.state.read_text()) | {"host": "elsewhere"}
    directory.state.write_text(json.dumps(state))
    refused(directory.path, "may still be running on host elsewhere")


def test_a_folder_from_which_the_run_reads_stays(tmp_path: Path) -> None:
    folder = run(tmp_path / "run").path
    refused(folder, f"train.resume={folder} lies in it", train=TrainConfig(resume=str(folder)))
    data = DatasetConfig(path=str(folder / "data" / "*.h5"))
    refused(folder, r"dataset.path=.*lies in it", dataset=data)
    refused(folder, "dataset.root", dataset=DatasetConfig(root=str(folder / "data")))


def test_a_recording_that_goes_on_stays(tmp_path: Path) -> None:
    directory = RunDir.create("unused", "trace", tmp_path / "rec", kind="recording")
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as process:
        import psutil

        started = int(psutil.Process(process.pid).create_time() * 1e9)
        directory.write_json(directory.command, {"pid": process.pid, "process_started_ns": started})
        refused(directory.path, f"still running \\(process {process.pid}\\)")
        process.communicate(b"\n")
    assert keep_earlier(directory.path, "--output") == tmp_path / "rec.1"
