"""Checkpoints below ``checkpoint.root``: a folder of their own, which belongs to one run."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlio_torch import cli
from dlio_torch.clean.recipe_files import clean
from dlio_torch.config.schema import CheckpointConfig, Config, OutputConfig
from dlio_torch.config.validate import validate
from dlio_torch.errors import ConfigError, PreconditionError
from dlio_torch.ownership.removal import marker_of
from dlio_torch.preflight.checkpoint_space import checkpoint_root_problem, checkpoint_space_problem
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.checkpoint_folder import checkpoint_folder, make_checkpoint_folder, outside_folders
from dlio_torch.run_directory.run_dir import RunDir

SMALL = [
    "recipe=minimal", "scale=tiny", "compute.step_s=0", "checkpoint=torch_save", "checkpoint.state_bytes=64KiB",
    "checkpoint.every_epochs=0", "checkpoint.every_steps=3",
]  # fmt: skip


def run(folder: Path, root: Path | None) -> tuple[RunDir, Path]:
    """A run directory and the folder of its checkpoints, which holds one."""
    directory = RunDir.create(folder.parent, "mine", folder, checkpoints=["model-{0..}"])
    checkpoints = make_checkpoint_folder(directory, None if root is None else str(root), "mine", ["model-{0..}"])
    checkpoints.mkdir(exist_ok=True)
    (checkpoints / "model-3").write_text("x")
    return directory, checkpoints


def test_without_a_root_checkpoints_lie_in_the_run_directory(tmp_path: Path) -> None:
    directory, checkpoints = run(tmp_path / "a", None)
    assert checkpoints == checkpoint_folder(directory) == directory.checkpoints
    assert not outside_folders(directory)


def test_each_run_has_a_marked_folder_below_the_root(tmp_path: Path) -> None:
    root = tmp_path / "root"
    (first, one), (second, two) = run(tmp_path / "a" / "x", root), run(tmp_path / "b" / "x", root)
    assert [one, two] == [root / "mine" / "x", root / "mine" / "x-2"]
    assert [checkpoint_folder(first), checkpoint_folder(second)] == [one, two]
    assert marker_of(one).kind == "checkpoints"
    assert marker_of(one).recipe == "mine"
    assert json.loads((two / "run.json").read_text())["run"] == str(second.path)


def test_clean_removes_checkpoints_of_the_recipe_and_leaves_other_files(tmp_path: Path) -> None:
    root = tmp_path / "root"
    directory, checkpoints = run(tmp_path / "runs" / "mine" / "20260101-000000", root)
    _, orphaned = run(tmp_path / "elsewhere", root)
    (checkpoints / "notes").write_text("of the user")
    config = Config(recipe="mine", output=OutputConfig(root="runs"), checkpoint=CheckpointConfig(root="root"))
    lines: list[str] = []
    clean(config, yes=True, say=lines.append, confirm=None, cwd=tmp_path)
    assert not directory.path.exists()
    assert not orphaned.exists()
    assert [path.name for path in checkpoints.iterdir()] == ["notes"]
    assert sum(line.startswith("checkpoints ") for line in lines) == 2


def test_checkpoints_of_a_running_run_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory, checkpoints = run(tmp_path / "a", tmp_path / "root")
    run_state.begin(directory.state, 1)
    assert cli.main(["clean", str(checkpoints), "--yes"])
    assert (checkpoints / "model-3").exists()
    assert "still running" in capsys.readouterr().out
    run_state.end(directory.state, failed=False)
    assert not cli.main(["clean", str(directory.path), "--yes"])
    assert not checkpoints.exists()
    assert not directory.path.exists()


@pytest.mark.parametrize("link", ["", "[]", '{"folder": 3}', '{"folder": "relative"}'])
def test_a_damaged_link_names_no_folder(tmp_path: Path, link: str) -> None:
    directory, _ = run(tmp_path / "a", None)
    directory.checkpoint_link.write_text(link)
    assert checkpoint_folder(directory) == directory.checkpoints


def test_a_run_resumes_from_checkpoints_below_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    saved = [*SMALL, "checkpoint.root=saved"]
    assert cli.main([*saved, "train.epochs=1", "output.dir=first", "-q"]) == 0
    assert not (tmp_path / "first" / "checkpoints").exists()
    assert len(list((tmp_path / "saved" / "minimal" / "first").glob("checkpoint-*.pt"))) == 1
    assert cli.main([*saved, "train.epochs=2", "output.dir=second", "train.resume=first", "-q"]) == 0
    summary = json.loads((tmp_path / "second" / "summary.json").read_text())
    assert summary["resumed"]["checkpoint_step"] == 6
    assert "checkpoints" in json.loads((tmp_path / "second" / "environment.json").read_text())["mounts"]
    (tmp_path / "saved" / "minimal" / "first" / "checkpoint-6.pt").unlink()
    assert cli.main([*saved, "train.epochs=2", "output.dir=third", "train.resume=first", "-q"]) == 3


@pytest.mark.parametrize(
    ("root", "code", "words"),
    [
        ("s3://bucket/a", 2, ["checkpoint.root=s3://bucket/a"]),
        ("runs", 2, ["checkpoint.root=runs", "output.root=runs", "null"]),
        ("a" * 300, 2, ["checkpoint.root=", "255"]),
        ("file", 3, ["checkpoint.root=file (command line)", "is a file"]),
        ("file/below", 3, ["checkpoint.root=file/below (command line)", "is a file"]),
    ],
)
def test_a_bad_root_is_refused_in_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    root: str,
    code: int,
    words: list[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("x")
    assert cli.main([*SMALL, f"checkpoint.root={root}", "-q"]) == code
    [line] = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    for word in words:
        assert word in line
    assert not (tmp_path / "runs").exists()


def test_an_empty_name_is_refused() -> None:
    with pytest.raises(ConfigError, match="name a folder"):
        validate(Config(checkpoint=CheckpointConfig(root="")))


def test_space_and_permission_are_those_of_the_root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    options = CheckpointConfig(layout="torch_save", state_bytes=1 << 60, every_steps=1, root=str(tmp_path / "root"))
    config = Config(recipe="mine", checkpoint=options)
    problem = checkpoint_space_problem(config, 2, 1)
    assert isinstance(problem, PreconditionError)
    assert str(tmp_path / "root" / "mine") in problem.message
    sources = {"checkpoint.root": "command line"}
    assert checkpoint_root_problem(config, sources) is None
    (tmp_path / "root").write_text("x")
    assert checkpoint_root_problem(config, sources) is not None
