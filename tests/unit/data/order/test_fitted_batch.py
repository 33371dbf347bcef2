"""A small amount of existing data lowers the batch size of the shipped recipe custom, and no other."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import pytest

import dlio_torch
from dlio_torch import cli
from dlio_torch.errors import ConfigError

ALL = ["dataset.path=a.h5", "access.partition=batches"]
OWN = "defaults: [{dataset: auto}, {access: auto}]\ndataset: {path: a.h5}\ntrain: {batch_size: 100}\n"


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    with h5py.File("a.h5", "w") as file:
        file["images"] = np.zeros((40, 3), np.float32)
    return tmp_path


def batch_size(*overrides: str, recipe: str | None = None, world_size: int = 1) -> int:
    """Samples of a rank's first batch."""
    with dlio_torch.loader(recipe=recipe, overrides=[*ALL, *overrides], world_size=world_size) as batches:
        return len(next(iter(batches))["images"])


def planned(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The plan that a dry run prints."""
    assert cli.main([*words, "--dry-run"]) == 0
    return capsys.readouterr().out


@pytest.mark.parametrize(("ranks", "size"), [(1, 32), (2, 20), (3, 13), (40, 1)])
def test_the_shipped_size_is_lowered_to_the_samples_of_a_rank(ranks: int, size: int) -> None:
    assert batch_size(world_size=ranks) == size


@pytest.mark.parametrize(("ranks", "size"), [(1, 32), (3, 10), (4, 8), (40, 1)])
def test_a_shipped_batch_of_all_ranks_is_a_multiple_of_their_number(ranks: int, size: int) -> None:
    assert batch_size("train.batch_scope=global", world_size=ranks) == size


def test_few_samples_make_a_batch_of_all_ranks_a_multiple_too() -> None:
    with h5py.File("a.h5", "w") as file:
        file["images"] = np.zeros((30, 3), np.float32)
    assert batch_size("train.batch_scope=global", world_size=4) == 7


def test_a_size_that_an_override_sets_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"train\.batch_size=100"):
        batch_size("train.batch_size=100")


def test_a_configuration_of_the_caller_keeps_its_size() -> None:
    config = dlio_torch.compose(overrides=[*ALL, "train.batch_size=100"])
    with pytest.raises(ConfigError, match=r"train\.batch_size=100"):
        dlio_torch.loader(config)


@pytest.mark.parametrize("path", ["custom.yaml", "recipes/custom.yaml"])
def test_a_recipe_by_path_keeps_its_size(path: str, capsys: pytest.CaptureFixture[str]) -> None:
    Path("recipes").mkdir()
    Path(path).write_text(OWN)
    name = path if "/" in path else f"./{path}"
    assert cli.main([f"recipe={name}", "--dry-run"]) == 2
    assert "train.batch_size=100" in capsys.readouterr().err
    with pytest.raises(ConfigError, match=r"train\.batch_size=100"):
        batch_size(recipe=name)


def test_a_recipe_of_this_name_in_a_folder_of_the_user_keeps_its_size(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    Path("mine/recipes").mkdir(parents=True)
    Path("mine/recipes/custom.yaml").write_text(OWN)
    monkeypatch.setenv("DLIO_TORCH_PATH", "mine")
    assert cli.main(["recipe=custom", "--dry-run"]) == 2
    assert "train.batch_size=100" in capsys.readouterr().err


def test_the_command_line_lowers_the_shipped_size_and_keeps_a_given_one(capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File("a.h5", "w") as file:
        file["images"] = np.zeros((10, 3), np.float32)
    for words in (ALL, ["recipe=custom", *ALL]):
        assert "steps: 1 per rank and epoch, 1 epoch, 10 samples per rank and step" in planned(capsys, *words)
    assert cli.main([*ALL, "train.batch_size=32", "--dry-run"]) == 2
    assert "train.batch_size=32" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("tail", "shown", "unread"),
    [
        ("drop", "steps: 2 per rank and epoch, 1 epoch, 4 samples per rank and step", True),
        ("pad", "steps: 3 per rank and epoch, 1 epoch, 4 samples per rank and step", False),
        (
            "keep",
            "steps: 3 per rank and epoch, 1 epoch, at most 4 samples per rank and step, 10 per rank and epoch",
            False,
        ),
    ],
)
def test_a_plan_says_how_many_samples_a_step_has(
    tail: str, shown: str, unread: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    with h5py.File("a.h5", "w") as file:
        file["images"] = np.zeros((10, 3), np.float32)
    shown_plan = planned(capsys, *ALL, "train.batch_size=4", f"access.tail={tail}")
    assert shown in shown_plan
    assert ("an epoch does not read 2 of 10 samples" in shown_plan) is unread


def test_a_study_lowers_the_shipped_size_and_keeps_a_given_one(capsys: pytest.CaptureFixture[str]) -> None:
    with h5py.File("a.h5", "w") as file:
        file["images"] = np.zeros((10, 3), np.float32)
    axis = "loader.num_workers=0,1"
    assert cli.main(["sweep", *ALL, axis, "--dry-run"]) == 0
    assert "trials: 2 points" in capsys.readouterr().err
    assert cli.main(["sweep", *ALL, axis, "train.batch_size=32", "--dry-run"]) == 2
    assert "train.batch_size=32" in capsys.readouterr().err
