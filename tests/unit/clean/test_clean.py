"""clean removes what the tool made for a recipe, and nothing else."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import pytest
from data_files import config_of
from ranks import clean_environ

from dlio_torch import cli
from dlio_torch.clean.recipe_files import clean, plan
from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig, OutputConfig
from dlio_torch.data.dataset import manifest
from dlio_torch.data.dataset.generation import generate
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.environment.mounts import Mount
from dlio_torch.errors import ConfigError, RunFailed
from dlio_torch.formats.core import registry
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.ownership import removal
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.model import Study
from dlio_torch.study.store import Store

CONFIG = Config(recipe="mine")


def data(root: Path, recipe: str = "mine", num_files: int = 2) -> Path:
    """A data set that was generated."""
    config = config_of(root, num_files, 1, format="npy", fields=[FieldConfig(shape=[64])])
    config = replace(config, recipe=recipe)
    fmt = registry.create(config.dataset, config.seed)
    generate(config, fmt, SingleCommunicator(), NULL)
    return manifest.data_folder(config, fmt)


def run(output: Path, recipe: str = "mine", dir: Path | None = None) -> RunDir:
    """A run directory with some of its files."""
    made = RunDir.create(output, recipe, dir, checkpoints=["model-{0..}"])
    for path in (made.config, made.environment, made.summary, made.steps(3), made.report):
        made.write_text(path, "{}")
    for path in (made.events / "rank0-17.spans", made.events / ".host-17", made.checkpoints / "model-3"):
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    return made


def old_run(folder: Path) -> Path:
    """A run directory of an earlier version."""
    folder.mkdir(parents=True)
    for name in ("config.yaml", "environment.json"):
        (folder / name).write_text("{}")
    return folder


def go(tmp_path: Path, config: Config = CONFIG, **kwargs: object) -> list[str]:
    lines: list[str] = []
    clean(config, say=lines.append, cwd=tmp_path, **{"yes": True, "confirm": None, **kwargs})  # type: ignore[arg-type]
    return lines


def kept(lines: list[str]) -> dict[str, str]:
    """Path and reason of all that was kept."""
    found = (line.removeprefix("kept").strip().partition(": ") for line in lines if line.startswith("kept"))
    return {path: reason for path, _, reason in found}


def test_data_and_runs_go_and_are_named_with_their_size(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = data(tmp_path / "data")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "none"))  # other tests leave orphans in the real one
    (made / "train" / ".train_0000001.npy.7.part").write_bytes(b"x" * 24)
    ended = run(tmp_path / "runs").path
    size = sum(path.stat().st_size for path in tmp_path.rglob("*") if path.is_file())
    assert plan(CONFIG, tmp_path).size_bytes == size
    lines = go(tmp_path)
    assert not made.exists()
    assert not ended.exists()
    assert any(str(made) in line and "5 files" in line and "KiB" in line for line in lines)
    assert kept(lines) == {}
    assert (tmp_path / "data").is_dir()
    assert go(tmp_path) == ["nothing to remove for recipe mine"]


def test_files_that_users_have_put_there_stay_and_are_named(tmp_path: Path) -> None:
    made, ended = data(tmp_path / "data", num_files=3), run(tmp_path / "runs")
    (tmp_path / "data" / "mine-1.part").write_text("x")
    mine = [
        *(
            made / "notes.txt",
            made / "train" / "train_0000003.npy",
            made / "train" / ".mine.1.part",
            made / "mine" / "a",
        ),
        *(made / "train" / "train_0000000.npy.bak", made / "train" / "train_00000001.npy"),
        *(
            ended.events / "plot.py",
            ended.events / "rank0-mine.spans",
            ended.path / "turn-1" / "a",
            ended.path / "b.csv",
        ),
        *(ended.checkpoints / "model-best", ended.checkpoints / "sub" / "model-1", ended.path / "events2"),
    ]
    for path in mine:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    lines = go(tmp_path)
    left = [path for folder in (made, ended.path) for path in folder.rglob("*") if path.is_file()]
    assert sorted(left) == sorted(mine)
    named = kept(lines)
    for path in mine:
        assert str(path) in named or str(path.parent) in named
    assert named[str(tmp_path / "data" / "mine-1.part")] == "the path is not a folder"
    assert "not on the list" in named[str(ended.events / "plot.py")]
    assert "has no marker dlio_torch.json" in kept(go(tmp_path))[str(made)]


def test_many_files_of_others_are_counted(tmp_path: Path) -> None:
    made = data(tmp_path / "data")
    for number in range(50):
        (made / "train" / f"{number}.txt").touch()
    named = [line for line in go(tmp_path) if line.startswith("kept")]
    assert len(named) == 21
    assert "30 more" in named[-1]


def test_folders_that_prove_nothing_stay(tmp_path: Path) -> None:
    made = data(tmp_path / "data")
    text = json.loads((made / "dlio_torch.json").read_text())

    def folder(name: str, content: object) -> Path:
        path = tmp_path / "data" / name
        (path / "train").mkdir(parents=True)
        (path / "train" / "train_0000000.npy").touch()
        if content is not None:
            (path / "dlio_torch.json").write_text(content if isinstance(content, str) else json.dumps(content))
        return path

    def marked(name: str, **changes: object) -> Path:
        return folder(name, {**text, "made_by": {**text["made_by"], "folder": name, **changes}})

    expected = {
        folder("mine-photos", None): "the folder has no marker dlio_torch.json",
        folder("mine-text", "hello"): "is not JSON",
        folder("mine-list", [1]): "is not a marker that dlio_torch wrote",
        folder("mine-old", {"recipe": "mine"}): "rm -r",
        folder("mine-copy", text): f"of a folder named '{made.name}'",
        marked("mine-other", marker="x"): "is not a marker that dlio_torch wrote",
        marked("mine-run", kind="run"): "belongs to a run",
        marked("mine-number", files=[1]): "damaged",
        marked("mine-above", files=["train/*", "../mine-photos/train/train_0000000.npy"]): "leads out of the folder",
        marked("mine-root", files=["/etc/passwd"]): "leads out of the folder",
        marked("mine-dot", files=["train/./x"]): "leads out of the folder",
        old_run(tmp_path / "runs" / "mine" / "20260101-000000"): "rm -r",
    }
    lines = go(tmp_path)
    assert not made.exists()
    for path, reason in expected.items():
        assert any(path.rglob("*")), path
        assert reason in kept(lines)[str(path)]
    assert "rm -r" not in kept(lines)[str(tmp_path / "data" / "mine-photos")]


def test_a_marker_that_is_a_link_or_a_pipe_proves_nothing(tmp_path: Path) -> None:
    made = data(tmp_path / "data")
    marker = made / "dlio_torch.json"
    marker.rename(tmp_path / "marker")
    marker.symlink_to(tmp_path / "marker")
    assert str(made) in kept(go(tmp_path))
    marker.unlink()
    os.mkfifo(marker)
    assert "not a marker" in kept(go(tmp_path))[str(made)]
    assert (made / "train" / "train_0000000.npy").exists()


def test_data_that_were_there_before_are_nobodys(tmp_path: Path) -> None:
    made = data(tmp_path / "data")
    (made / "dlio_torch.json").unlink()
    data(tmp_path / "data")  # takes the files as they are, and describes them again
    assert "no list" in kept(go(tmp_path))[str(made)]
    assert (made / "train" / "train_0000000.npy").exists()


def test_a_data_set_that_has_grown_goes_whole(tmp_path: Path) -> None:
    for files in (2, 12, 1):
        made = data(tmp_path / "data", num_files=files)
    assert kept(go(tmp_path)) == {}
    assert not made.exists()


def test_two_recipes_share_a_root(tmp_path: Path) -> None:
    mine, other = data(tmp_path / "data"), data(tmp_path / "data", "mine-too")
    old = tmp_path / "data" / "mine-too-01"
    old.mkdir()
    (old / "dlio_torch.json").write_text(json.dumps({"recipe": "mine-too"}))
    half = tmp_path / "data" / "mine-too-00ff.part"
    half.touch()
    theirs = run(tmp_path / "runs", "mine-too").path
    lines = go(tmp_path)
    assert not mine.exists()
    assert (other / "train" / "train_0000001.npy").exists()
    assert old.exists()
    assert half.exists()
    assert theirs.exists()
    assert list(kept(lines)) == [str(half)]


@pytest.mark.parametrize("place", ["runs/sweeps", "runs/sweeps/mine", "runs/mine", "data/mine-1", "data/set/train"])
def test_links_are_never_followed(place: str, tmp_path: Path) -> None:
    made, ended = data(tmp_path / "data"), run(tmp_path / "runs").path
    study = tmp_path / "runs" / "sweeps" / "mine" / "20260101-000000"
    Store.create(study, Study("mine", "mine", ("recipe=mine",), ())).close()
    link = Path(str(tmp_path / place).replace("/set/", f"/{made.name}/"))
    behind = tmp_path / "elsewhere" / "mine-1"
    behind.parent.mkdir()
    if link.exists():
        link.rename(behind)
    else:
        data(tmp_path / "elsewhere").rename(behind)
    link.symlink_to(behind)
    before = sorted(behind.rglob("*"))
    lines = go(tmp_path)
    assert link.is_symlink()
    assert sorted(behind.rglob("*")) == before
    assert kept(lines)[str(link)] == "a link"
    assert made.exists() == ("set" in place)
    assert ended.exists() == (place == "runs/mine")


def test_a_link_in_the_place_of_a_file_stays(tmp_path: Path) -> None:
    made, target = data(tmp_path / "data"), tmp_path / "target"
    target.touch()
    file = made / "train" / "train_0000000.npy"
    file.unlink()
    file.symlink_to(target)
    assert kept(go(tmp_path)) == {str(file): "a link"}
    assert file.is_symlink()


def test_a_root_may_be_a_link(tmp_path: Path) -> None:
    (tmp_path / "scratch").mkdir()
    (tmp_path / "data").symlink_to(tmp_path / "scratch")
    made = data(tmp_path / "data")
    assert kept(go(tmp_path)) == {}
    assert not made.exists()


def test_what_becomes_a_link_after_the_question_stays(tmp_path: Path) -> None:
    made, ours = data(tmp_path / "data"), tmp_path / "ours"

    def swap(question: str) -> bool:
        (made / "train").rename(ours)
        (made / "train").symlink_to(ours)
        return True

    go(tmp_path, yes=False, confirm=swap)
    assert len(list(ours.iterdir())) == 2
    assert (made / "train").is_symlink()


def test_mount_points_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made, ended = data(tmp_path / "data"), run(tmp_path / "runs")
    whole = data(tmp_path / "data", "mine", num_files=2)
    points = (made / "train", ended.checkpoints, ended.report)
    mounts = [Mount("0:1", "/", str(path), "rw", "ext4", "/dev/x", "rw") for path in points]
    monkeypatch.setattr(removal, "mounts", lambda: mounts)
    lines = go(tmp_path)
    assert kept(lines) == {str(path): "a mount point" for path in points}
    assert len(list((whole / "train").iterdir())) == 2
    assert [path.name for path in ended.checkpoints.iterdir()] == ["model-3"]
    mounts.append(Mount("0:1", "/", str(ended.path), "rw", "ext4", "/dev/x", "rw"))
    assert kept(go(tmp_path))[str(made)].startswith("the folder has no marker")


def test_a_real_mount_stays(tmp_path: Path) -> None:
    made, far = data(tmp_path / "data", "minimal"), tmp_path / "far"
    far.mkdir()
    (far / "train_0000000.npy").write_text("x")
    bind = ["unshare", "--map-root-user", "--mount", "sh", "-ec", 'mount --bind "$1" "$2"; shift 2; exec "$@"', "sh"]
    bind += [str(far), str(made / "train")]  # of the same file system: its device tells nothing
    if shutil.which("unshare") is None or subprocess.run([*bind, "true"], capture_output=True, check=False).returncode:
        pytest.skip("this user cannot make mount namespaces")
    words = [sys.executable, "-m", "dlio_torch", "clean", "recipe=minimal", "--yes"]
    done = subprocess.run(
        [*bind, *words], cwd=tmp_path, env=clean_environ(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    assert f"{'kept':<14} {made}/train: a mount point\n" in done.stdout
    assert (far / "train_0000000.npy").exists()
    assert not (made / "dlio_torch.json").exists()
    assert len(list((made / "train").iterdir())) == 2  # what the mount hid


def test_names_of_files_that_have_others_free_nothing(tmp_path: Path) -> None:
    made = data(tmp_path / "data")
    size = plan(CONFIG, tmp_path).size_bytes
    file, copy = made / "train" / "train_0000000.npy", tmp_path / "copy.npy"
    content = file.read_bytes()
    os.link(file, copy)
    assert plan(CONFIG, tmp_path).size_bytes == size - len(content)
    lines = go(tmp_path)
    assert any("1 of the files have another hard link, which stays" in line for line in lines)
    assert not made.exists()
    assert copy.read_bytes() == content


def test_what_belongs_to_other_users_stays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = data(tmp_path / "data")
    theirs = made / "train" / "train_0000000.npy"
    if os.geteuid() == 0:
        os.chown(theirs, 12345, -1)
        assert kept(go(tmp_path)) == {str(theirs): "belongs to another user"}
        assert theirs.exists()
        theirs.unlink()
        theirs.parent.rmdir()
        made.rmdir()
        made = data(tmp_path / "data")
    monkeypatch.setattr(os, "geteuid", lambda: 54321)
    before = sorted(tmp_path.rglob("*"))
    assert kept(go(tmp_path)) == {str(made): "the marker dlio_torch.json of the folder belongs to another user"}
    assert sorted(tmp_path.rglob("*")) == before


def test_what_a_process_uses_stays(tmp_path: Path) -> None:
    made, going = data(tmp_path / "data"), run(tmp_path / "runs")
    run_state.begin(going.state, 1)
    with (made / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        named = kept(go(tmp_path))
    assert named == {
        str(made): "a process is writing to the folder",
        str(going.path): f"the run is still running (process {os.getpid()})",
    }
    run_state.end(going.state, failed=False)
    assert kept(go(tmp_path)) == {}
    assert not made.exists()
    assert not going.path.exists()


def test_studies_go_with_their_trials_and_what_users_put_there_stays(tmp_path: Path) -> None:
    place = tmp_path / "runs" / "sweeps" / "mine" / "20260101-000000"
    with Store.create(place, Study("mine", "mine", ("recipe=mine",), ())) as store:
        trial = run(tmp_path, dir=store.fresh_directory(1, 1)).path
        trial.with_name("001-1.log").touch()
        store.data_log(1).parent.mkdir()
        store.data_log(1).touch()
        for name in ("table.csv", "trials.parquet", "headspace.json", "tune.json"):
            (place / name).touch()
        assert kept(go(tmp_path)) == {str(place): "a process is writing to the folder"}
    mine = [place / "notes.md", place / "trials" / "my.log", place / "trials" / "mine", trial / "events" / "x"]
    for path in mine:
        path.touch()
    assert kept(go(tmp_path)).keys() == set(map(str, mine))
    assert sorted(path for path in place.rglob("*") if path.is_file()) == sorted(mine)


def test_recordings_of_programs_stay(tmp_path: Path) -> None:
    made = RunDir.create(tmp_path / "runs", "trace", kind="recording")
    assert kept(go(tmp_path, Config(recipe="trace")))[str(made.path)] == "the folder belongs to a recording"


def test_of_jobs_the_script_and_the_log_that_it_names_go(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["launch", "recipe=minimal", "scheduler=slurm", "ranks_per_node=1", "time=10min"]) == 0
    capsys.readouterr()
    runs = tmp_path / "runs" / "minimal"
    (script,) = runs.iterdir()
    script.with_suffix(".log").touch()
    foreign = [runs / "20260101-000000.log", runs / "20260101-000001.sh", runs / "copy.sh", runs / "notes"]
    for path in foreign:
        path.touch()
    foreign[2].write_bytes(script.read_bytes())  # the mark names another file
    assert cli.main(["clean", "recipe=minimal", "--yes"]) == 0
    assert sorted(runs.iterdir()) == sorted(foreign)
    said = capsys.readouterr().out
    assert all(f"{'kept':<14} {path}: " in said for path in foreign)


def test_dataset_path_is_never_removed(tmp_path: Path) -> None:
    made = data(tmp_path / "data")
    name = made.name
    for path in (f"data/{name}", f"data/{name}/train/train_0000000.npy", str(made)):
        lines = go(tmp_path, Config(recipe="mine", dataset=DatasetConfig(path=path)))
        assert made.exists()
        assert any("contains dataset.path" in line for line in lines)


def test_other_roots_are_searched(tmp_path: Path) -> None:
    made = data(tmp_path / "scratch")
    ended = run(tmp_path / "out").path
    go(tmp_path, Config(recipe="mine", dataset=DatasetConfig(root="scratch"), output=OutputConfig(root="out")))
    assert not made.exists()
    assert not ended.exists()


def test_it_asks_first(tmp_path: Path) -> None:
    made = data(tmp_path / "data")
    questions: list[str] = []

    def no(question: str) -> bool:
        questions.append(question)
        return False

    assert go(tmp_path, yes=False, confirm=no)[-1] == "nothing was removed"
    assert "KiB" in questions[0]
    assert made.exists()
    with pytest.raises(ConfigError, match="add --yes"):
        go(tmp_path, yes=False)
    assert made.exists()
    go(tmp_path, yes=False, confirm=lambda question: True)
    assert not made.exists()


def test_what_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = data(tmp_path / "data")

    def refuse(name: str, *, dir_fd: int) -> None:
        raise PermissionError(13, "Permission denied", name)

    # Not by file modes: they do not stop root, as which the tests may run in a container.
    monkeypatch.setattr(os, "unlink", refuse)
    with pytest.raises(RunFailed, match=rf"cannot remove .*{made.name}/.lock: Permission denied"):
        go(tmp_path)
    assert (made / "dlio_torch.json").exists()


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = data(tmp_path / "data", "minimal")
    assert cli.main(["clean", "recipe=minimal"]) == 2
    assert "add --yes" in capsys.readouterr().err
    assert made.exists()
    assert cli.main(["clean", "recipe=minimal", "--yes"]) == 0
    assert "removed" in capsys.readouterr().out
    assert not made.exists()
