"""clean removes what the tool made for a recipe, and nothing else."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from dlio_torch import cli
from dlio_torch.clean import clean, plan
from dlio_torch.config.schema import Config, DatasetConfig, OutputConfig
from dlio_torch.errors import RunFailed

CONFIG = Config(recipe="mine")


def data(folder: Path, recipe: str | None = "mine") -> Path:
    (folder / "train").mkdir(parents=True)
    (folder / "train" / "train_0.h5").write_bytes(b"x" * 1000)
    (folder / "train" / ".train_1.h5.7.part").write_bytes(b"x" * 24)
    if recipe is not None:
        (folder / "dlio_torch.json").write_text(json.dumps({"recipe": recipe}))
    return folder


def run(folder: Path, *markers: str) -> Path:
    folder.mkdir(parents=True)
    for name in markers:
        (folder / name).write_text("{}")
    return folder


def go(tmp_path: Path, config: Config = CONFIG, **kwargs: object) -> list[str]:
    lines: list[str] = []
    clean(config, say=lines.append, cwd=tmp_path, **{"yes": True, "confirm": None, **kwargs})  # type: ignore[arg-type]
    return lines


def test_data_runs_and_leftovers_go_and_are_named_with_their_size(tmp_path: Path) -> None:
    made = data(tmp_path / "data" / "mine-00ff")
    left = tmp_path / "data" / "mine-00ff.h5.part"
    left.write_bytes(b"xx")
    ended = run(tmp_path / "runs" / "mine" / "1", "config.yaml", "environment.json")
    size = sum(path.stat().st_size for path in (tmp_path).rglob("*") if path.is_file())
    found = plan(CONFIG, tmp_path)
    assert found.size_bytes == size
    lines = go(tmp_path)
    assert not made.exists()
    assert not left.exists()
    assert not ended.exists()
    assert any(str(made) in line and "3 files" in line and "KiB" in line for line in lines)
    assert (tmp_path / "data").is_dir()
    assert go(tmp_path) == ["nothing to remove for recipe mine"]


def test_what_the_tool_did_not_make_stays(tmp_path: Path) -> None:
    foreign = data(tmp_path / "data" / "mine-photos", recipe=None)
    other = data(tmp_path / "data" / "mine-too-00ff", recipe="mine-too")
    plain = tmp_path / "data" / "mine-notes.txt"
    plain.write_text("x")
    broken = run(tmp_path / "runs" / "mine" / "2", "config.yaml")
    lines = go(tmp_path)
    assert foreign.exists()
    assert other.exists()
    assert plain.exists()
    assert broken.exists()
    assert any(str(foreign) in line and "dlio_torch.json" in line for line in lines)
    assert any(str(broken) in line and "environment.json" in line for line in lines)
    assert not any(str(other) in line for line in lines)


def test_links_are_never_followed(tmp_path: Path) -> None:
    target = data(tmp_path / "elsewhere" / "mine-1")
    (tmp_path / "data").mkdir()
    link = tmp_path / "data" / "mine-1"
    link.symlink_to(target)
    made = data(tmp_path / "data" / "mine-2")
    (made / "train" / "inside").symlink_to(target)
    (made / "file").symlink_to(target / "dlio_torch.json")
    lines = go(tmp_path)
    assert not made.exists()
    assert (target / "train" / "train_0.h5").exists()
    assert (target / "dlio_torch.json").exists()
    assert link.is_symlink()
    assert any(f"{link}: a link" in line for line in lines)


def test_dataset_path_is_never_removed(tmp_path: Path) -> None:
    made = data(tmp_path / "data" / "mine-1")
    for path in ("data/mine-1", "data/mine-1/train/train_0.h5", str(made)):
        lines = go(tmp_path, Config(recipe="mine", dataset=DatasetConfig(path=path)))
        assert made.exists()
        assert any("holds dataset.path" in line for line in lines)


def test_other_roots_are_searched(tmp_path: Path) -> None:
    made = data(tmp_path / "scratch" / "mine-1")
    ended = run(tmp_path / "out" / "mine" / "1", "config.yaml", "environment.json")
    go(tmp_path, Config(recipe="mine", dataset=DatasetConfig(root="scratch"), output=OutputConfig(root="out")))
    assert not made.exists()
    assert not ended.exists()


def test_it_asks_first(tmp_path: Path) -> None:
    made = data(tmp_path / "data" / "mine-1")
    questions: list[str] = []

    def no(question: str) -> bool:
        questions.append(question)
        return False

    assert go(tmp_path, yes=False, confirm=no)[-1] == "nothing was removed"
    assert "KiB" in questions[0]
    assert made.exists()
    with pytest.raises(RunFailed, match="add --yes"):
        go(tmp_path, yes=False)
    assert made.exists()
    go(tmp_path, yes=False, confirm=lambda question: True)
    assert not made.exists()


def test_what_cannot_be_removed_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = data(tmp_path / "data" / "mine-1")

    def refuse(path: Path) -> None:
        raise PermissionError(13, "Permission denied", str(path / "train"))

    # Not by file modes: they do not stop root, as which the tests may run in a container.
    monkeypatch.setattr("shutil.rmtree", refuse)
    with pytest.raises(RunFailed, match=r"cannot remove .*/train: Permission denied"):
        go(tmp_path)
    assert made.exists()


def test_from_the_command_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    made = data(tmp_path / "data" / "minimal-1", recipe="minimal")
    assert cli.main(["clean", "recipe=minimal"]) == 1
    assert "add --yes" in capsys.readouterr().err
    assert made.exists()
    assert cli.main(["clean", "recipe=minimal", "--yes"]) == 0
    assert "removed" in capsys.readouterr().out
    assert not made.exists()
