"""A key that is given twice, or two keys that contradict each other, end with exit code 2 and one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlio_torch import cli

TWICE = [
    (["recipe=minimal", "recipe=minimal"], "recipe=minimal (command line): the key is given twice"),
    (["run", "recipe=minimal", "train.epochs=1", "train.epochs=2"], "train.epochs=2 (command line): the key is given"),
    (["recipe=minimal", "scale=tiny", "scale=laptop"], "first as scale=tiny"),
    (["show", "recipe=minimal", " train.epochs=1", "train.epochs=1"], "the key is given twice"),
    (["sweep", "recipe=minimal", "loader.num_workers=0,1", "loader.num_workers=2"], "write several values in one"),
    (["sweep", "recipe=minimal", "repeats=3", "repeats=3"], "repeats=3 (command line): the key is given twice"),
    (["tune", "recipe=minimal", "loader.num_workers=0", "loader.num_workers=1"], "the key is given twice"),
    (["headspace", "recipe=minimal", "seed=1", "seed=2"], "the key is given twice"),
    (["launch", "recipe=minimal", "time=1h", "time=2h"], "the key is given twice"),
    (["predict", "runs/x", "system=theta", "system=summit"], "the key is given twice"),
    (["inspect", "x.h5", "dataset.format=hdf5", "dataset.format=npz"], "the key is given twice"),
    (["doctor", "recipe=minimal", "recipe=unet3d"], "the key is given twice"),
    (["clean", "recipe=minimal", "recipe=unet3d"], "the key is given twice"),
    (["explain", "seed", "recipe=minimal", "recipe=unet3d"], "the key is given twice"),
    (["inspect", "x.h5", "--output", "a.yaml", "--output", "b.yaml"], "--output (command line): given twice"),
]


@pytest.mark.parametrize(("words", "text"), TWICE, ids=lambda value: " ".join(value) if isinstance(value, list) else "")
def test_a_key_is_given_once(words: list[str], text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(words) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert text in error


@pytest.mark.parametrize("verb", ["run", "show", "sweep"])
def test_a_fragment_and_another_format_contradict(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["dataset=npz", "dataset.format=hdf5"], ["dataset.format=hdf5", "dataset=npz"]):
        assert cli.main([verb, "recipe=minimal", *words]) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        assert "dataset.format=hdf5 (command line): contradicts dataset=npz, whose format is npz" in error
    assert cli.main(["show", "recipe=minimal", "dataset=npz", "dataset.format=npz"]) == 0


def test_of_an_axis_each_point_is_checked(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["sweep", "recipe=minimal", "dataset=hdf5,npz", "dataset.format=hdf5"]) == 2
    assert "contradicts dataset=npz" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "named"),
    [("seed: 1\nseed: 1\n", "key 'seed' appears twice"), ("train:\n  epochs: 1\n  epochs: 2\n", "'epochs' appears")],
)
def test_a_recipe_names_a_key_once(text: str, named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine.yaml").write_text(text)
    assert cli.main(["show", f"recipe={tmp_path / 'mine.yaml'}"]) == 2
    error = capsys.readouterr().err
    assert error.count("\n") == 1
    assert named in error
