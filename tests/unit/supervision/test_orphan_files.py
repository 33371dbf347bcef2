"""What killed processes leave is found and named, removed by the next one, and what somebody holds is left alone."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from dlio_torch.clean.recipe_files import clean
from dlio_torch.config.schema import Config, StageConfig
from dlio_torch.files import locked_folder
from dlio_torch.files.atomic_file import replaced, unfinished
from dlio_torch.ownership.marker import KEY, made_by
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.model import Study
from dlio_torch.study.store import Store
from dlio_torch.supervision import orphan_files

CONFIG = Config(recipe="mine", stage=StageConfig(dir="local"))


@pytest.fixture(autouse=True)
def _alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Temporary and cache folders of its own."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tmp").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def named(tmp_path: Path) -> dict[str, list[str]]:
    found = orphan_files.find(CONFIG, shared=tmp_path / "shm")
    assert all(left.remedy and str(left).startswith(f"{len(left.paths)} ") for left in found)
    return {left.kind: [str(path.relative_to(tmp_path)) for path in map(Path.absolute, left.paths)] for left in found}


def old(path: Path) -> Path:
    os.utime(path, (0, 0))
    return path


def killed(code: str, *arguments: str) -> None:
    """Do something in a process that ends by SIGKILL in the midst of it."""
    done = subprocess.run(
        [sys.executable, "-c", code + "\nimport os; os.kill(os.getpid(), 9)", *arguments],
        env={**os.environ, "TMPDIR": tempfile.gettempdir()},
        check=False,
    )
    assert done.returncode == -9


def test_nothing_is_left_of_nothing(tmp_path: Path) -> None:
    assert named(tmp_path) == {}


def test_a_temporary_folder_of_a_killed_process_goes_with_the_next_one() -> None:
    killed(
        "from dlio_torch.files.locked_folder import temporary_folder\n"
        "keep = temporary_folder(); folder = keep.__enter__(); (folder / 'file').touch()"
    )
    root = Path(tempfile.gettempdir())
    (left,) = locked_folder.orphans(root)
    assert (left / "file").exists()
    with locked_folder.temporary_folder() as folder:
        assert not left.exists()
        assert locked_folder.orphans(root) == []  # this one is held
        assert folder.is_dir()
    assert list(root.iterdir()) == []


def test_a_lock_that_was_killed_before_its_folder_goes_and_a_folder_without_a_mark_stays() -> None:
    root = Path(tempfile.gettempdir())
    for name in ("one", "two"):
        (root / f"dlio_torch-{name}-01234567.0123456789abcdef.lock").touch()
    (root / "dlio_torch-two-01234567.0123456789abcdef").mkdir()
    locked_folder.remove_orphans(root)
    assert sorted(path.name.split("-")[1] for path in root.iterdir()) == ["two", "two"]


def test_a_file_of_results_that_was_being_written_goes_with_the_next_write(tmp_path: Path) -> None:
    target = tmp_path / "runs" / "report.html"
    killed("import sys; from pathlib import Path; from dlio_torch.files.atomic_file import replaced\n"
           "keep = replaced(Path(sys.argv[1])); keep.__enter__().write(b'half')", str(target))  # fmt: skip
    assert len(unfinished(target.parent)) == 1
    with replaced(tmp_path / "runs" / "other") as file, replaced(target):
        assert unfinished(target.parent) == []  # those who write hold theirs
        file.write(b"whole")
    assert sorted(path.name for path in target.parent.iterdir()) == ["other", "report.html"]


def test_each_kind_is_named(tmp_path: Path) -> None:
    part = tmp_path / "data" / "mine-1" / "train" / ".train_0.h5.1.part"
    part.parent.mkdir(parents=True)
    part.touch()
    run = tmp_path / "runs" / "mine" / "20260101-000000"
    run.mkdir(parents=True)
    (run / "config.yaml").touch()
    (run / "environment.json").touch()
    run_state.begin(run / "state.json", 1)
    text = (run / "state.json").read_text().replace(f'"pid": {os.getpid()}', '"pid": 4194305')
    (run / "state.json").write_text(text)
    done = tmp_path / "runs" / "mine" / "20260101-000001"
    done.mkdir()
    for name in ("config.yaml", "environment.json", "summary.json", ".report.html.abcdefgh.tmp"):
        (done / name).touch()
    study = tmp_path / "runs" / "sweeps" / "mine" / "20260101-000000"
    study.mkdir(parents=True)
    (study / "study.yaml").touch()
    (tmp_path / "local").mkdir()
    os.close(locked_folder.lock(tmp_path / "local" / "dlio_torch-mine-1-01234567.0123456789abcdef"))
    (tmp_path / "local" / "dlio_torch-mine-1-01234567.kept").write_text(json.dumps({"recipe": "mine", "source": "x"}))
    cache = tmp_path / "cache" / "dlio_torch"
    (cache / "native").mkdir(parents=True)
    old_file = cache / "native" / ".spin-abc.tmp"
    old_file.touch()
    old(old_file)
    (cache / ".calibration-new.tmp").touch()  # somebody is writing it
    sockets = Path(tempfile.gettempdir()) / "pymp-gone"
    sockets.mkdir()
    used = Path(tempfile.gettempdir()) / "pymp-used"
    used.mkdir()
    shared = tmp_path / "shm"
    shared.mkdir()
    for name in ("torch_1_2_3", "mpich_shm_12ab_0", "somebody_elses"):
        (shared / name).touch()
        old(shared / name)
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(used / "s"))
        old(sockets)
        old(used)
        found = named(tmp_path)
    assert list(found.values()) == [
        ["data/mine-1/train/.train_0.h5.1.part"],
        ["runs/mine/20260101-000000"],
        ["runs/mine/20260101-000001/.report.html.abcdefgh.tmp"],
        ["runs/sweeps/mine/20260101-000000"],
        ["local/dlio_torch-mine-1-01234567.0123456789abcdef"],
        ["local/dlio_torch-mine-1-01234567"],
        ["cache/dlio_torch/native/.spin-abc.tmp"],
        ["tmp/pymp-gone"],
        ["shm/mpich_shm_12ab_0", "shm/torch_1_2_3"],
    ]


def test_what_somebody_writes_is_not_named(tmp_path: Path) -> None:
    import fcntl

    folder = tmp_path / "data" / "mine-1"
    folder.mkdir(parents=True)
    (folder / ".train_0.h5.1.part").touch()
    with (folder / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert named(tmp_path) == {}
    assert len(named(tmp_path)) == 1


def test_clean_removes_studies_copies_and_runs_that_had_just_begun(tmp_path: Path) -> None:
    runs, far = tmp_path / "runs", tmp_path / "far"
    begun = RunDir.create(runs, "mine", now=datetime(2026, 1, 1)).path
    (begun / ".config.yaml.abcdefgh.tmp").touch()
    named_by_hand = runs / "mine" / "20260101-000002"
    named_by_hand.mkdir()
    (named_by_hand / "notes.txt").touch()
    run = RunDir.create(runs, "mine", now=datetime(2026, 1, 1, 0, 0, 1))
    run.environment.touch()
    run.config.write_text(yaml.safe_dump({"stage": {"dir": str(far)}}))
    for number, recipe in enumerate(("mine", "yours")):
        study = runs / "sweeps" / "mine" / f"20260101-00000{number}"
        Store.create(study, Study("mine", "mine", (f"recipe={recipe}", "scale=tiny"), ())).close()
        copies = far / f"dlio_torch-{recipe}-1-01234567"
        copies.mkdir(parents=True)
        (copies / "file").touch()
        about = {"recipe": recipe, "source": "x", KEY: made_by("copies", copies, recipe, ["file"])}
        copies.with_name(copies.name + ".kept").write_text(json.dumps(about))
    (far / "dlio_torch-old-1-01234567").mkdir()
    (far / "dlio_torch-old-1-01234567.kept").write_text(json.dumps({"recipe": "mine", "source": "x"}))
    lines: list[str] = []
    (far / "dlio_torch-foreign-1-01234567").mkdir()
    with locked_folder.temporary_folder() as mine:
        clean(Config(recipe="mine"), yes=True, say=lines.append, confirm=None)
        assert mine.is_dir()
    assert sorted(str(path.relative_to(runs)) for path in runs.glob("*/*")) == ["mine/20260101-000002", "sweeps/mine"]
    assert [path.name for path in (runs / "sweeps" / "mine").iterdir()] == ["20260101-000001"]
    assert sorted(path.name for path in far.iterdir()) == [
        "dlio_torch-foreign-1-01234567",
        "dlio_torch-old-1-01234567",
        "dlio_torch-old-1-01234567.kept",
        "dlio_torch-yours-1-01234567",
        "dlio_torch-yours-1-01234567.kept",
    ]
    old = far / "dlio_torch-old-1-01234567"
    assert any(line.startswith(f"{'kept':<14} {old}: ") and f"rm -r {old} {old}.kept" in line for line in lines)


def test_a_run_that_is_just_being_made_is_not_called_killed(tmp_path: Path) -> None:
    run = tmp_path / "runs" / "mine" / "20260101-000000"
    run.mkdir(parents=True)
    assert named(tmp_path) == {}
    os.utime(run, (time.time() - 120,) * 2)
    assert named(tmp_path) == {"runs that were killed": ["runs/mine/20260101-000000"]}
