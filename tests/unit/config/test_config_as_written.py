"""Recipes by path and data of one's own run as written; keys of the command line are never changed, at any scale."""

from __future__ import annotations

from collections.abc import Iterator
from operator import attrgetter
from pathlib import Path
from typing import Any

import pytest
import stand_in_descriptions
import yaml
from hypothesis import given
from hypothesis import strategies as st
from ranks import REPO

from dlio_torch import cli
from dlio_torch.config.compose import Composed, compose
from dlio_torch.config.emit import as_dict
from dlio_torch.errors import ConfigError
from dlio_torch.study.axes import expand
from dlio_torch.study.study_arguments import parse

RECIPES = sorted(path.stem for path in (REPO / "recipes").glob("*.yaml") if path.stem != "custom")
LARGE = """
dataset: {num_files: 500, samples_per_file: 4000, fields: [{name: x, shape: [8]}]}
train: {epochs: 9, batch_size: 4, allreduce_bytes: 5MiB}
compute: {mode: sleep, step_s: 2s, stdev_s: 0.1s, distribution: normal}
checkpoint: {layout: torch_save, state_bytes: 1GiB, every_steps: 1000}
"""
AMOUNTS = {
    "dataset.num_files": 500,
    "dataset.samples_per_file": 4000,
    "train.epochs": 9,
    "train.steps": 0,
    "train.allreduce_bytes": 5 << 20,
    "compute.step_s": 2.0,
    "compute.stdev_s": 0.1,
    "checkpoint.state_bytes": 1 << 30,
    "checkpoint.every_steps": 1000,
}


def value(composed: Composed, key: str) -> Any:
    return attrgetter(key)(composed.config)


def text(composed: Composed, key: str) -> str:
    """The value of a key, as it is written on the command line."""
    tree: Any = as_dict(composed.config)
    for part in key.split("."):
        tree = tree[part]
    return (
        str(tree)
        if isinstance(tree, str)
        else yaml.safe_dump(tree, default_flow_style=True, width=10**6).split("\n...")[0].strip()
    )


@pytest.mark.parametrize("recipe", RECIPES)
@pytest.mark.parametrize("scale", ["tiny", "laptop"])
def test_no_key_of_the_command_line_is_changed(recipe: str, scale: str) -> None:
    published = compose([f"recipe={recipe}", "scale=paper"])
    scaled = compose([f"recipe={recipe}", f"scale={scale}"])
    assert scaled.scaled or recipe == "self_test"
    for key in sorted(scaled.scaled):
        try:
            result = compose([f"recipe={recipe}", f"scale={scale}", f"{key}={text(published, key)}"])
        except ConfigError:  # the published value alone may not fit what is left of the data
            continue
        assert value(result, key) == value(published, key)
        assert key not in result.scaled
        assert result.sources.get(key, "command line") == "command line"


@given(
    scale=st.sampled_from(["tiny", "laptop", "paper", "as_written"]),
    amounts=st.dictionaries(st.sampled_from(sorted(AMOUNTS)), st.integers(1, 10**4), min_size=1),
)
def test_any_amount_of_the_command_line_stays(scale: str, amounts: dict[str, int]) -> None:
    settings = [f"{key}={number}" for key, number in amounts.items()]
    try:
        result = compose(["recipe=cosmic_tagger", f"scale={scale}", *settings])
    except ConfigError:
        return
    for key, number in amounts.items():
        assert value(result, key) == number
        assert result.sources[key] == "command line"


@pytest.mark.parametrize(
    "setting",
    ["dataset.volume.shape=[900,900,900]", "dataset.volume.shape.1=900", "dataset.volume={shape: [900,900,900]}"],
)
def test_an_element_of_a_list_counts_as_the_list(setting: str) -> None:
    result = compose(["recipe=ffn", "scale=tiny", setting])
    assert result.config.dataset.volume.shape[1] == 900  # type: ignore[attr-defined]
    assert "dataset.volume.shape" not in result.scaled


def written(tmp_path: Path) -> Path:
    path = tmp_path / "mine.yaml"
    path.write_text(LARGE)
    return path


def test_a_recipe_by_path_runs_as_written_unless_a_scale_is_given(tmp_path: Path) -> None:
    path = written(tmp_path)
    result = compose([f"recipe={path}"])
    assert {key: value(result, key) for key in AMOUNTS} == AMOUNTS
    assert (result.notes, result.scaled) == ([], frozenset())
    assert "scale: as written; scale=laptop shrinks it" in result.remarks
    for scale in ("laptop", "tiny"):
        small = compose([f"recipe={path}", f"scale={scale}"])
        assert {"dataset.num_files", "compute.step_s", "train.epochs"} <= small.scaled
        assert small.remarks == ()
    for scale in ("paper", "as_written"):
        result = compose([f"recipe={path}", f"scale={scale}"])
        assert {key: value(result, key) for key in AMOUNTS} == AMOUNTS
        assert result.remarks == ()


def test_a_shipped_recipe_is_scaled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert compose(["recipe=cosmic_tagger"]).config.scale.name == "laptop"
    (tmp_path / "recipes").mkdir()
    written(tmp_path).rename(tmp_path / "recipes" / "mine.yaml")
    monkeypatch.setenv("DLIO_TORCH_PATH", str(tmp_path))
    assert compose(["recipe=mine"]).config.scale.name == "laptop"


def test_data_of_ones_own_run_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import h5py
    import numpy as np

    stand_in_descriptions.install(monkeypatch)
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file["x"] = np.zeros((64, 8), np.float32)
    path = f"dataset.path={tmp_path / 'a.h5'}"
    assert compose([path]).config.scale.name == "as_written"
    published = compose(["recipe=minimal", "scale=paper"]).config
    result = compose(["recipe=minimal", "dataset=auto", path])
    assert result.config.compute == published.compute
    assert result.config.train.epochs == published.train.epochs
    assert "scale: as written; scale=laptop shrinks it" in result.remarks
    recipe = tmp_path / "own.yaml"
    recipe.write_text(
        f"defaults: [{{dataset: auto}}]\ndataset: {{path: {tmp_path / 'a.h5'}}}\ncompute: {{step_s: 3s}}\n"
    )
    assert compose([f"recipe={recipe}"]).config.compute.step_s == 3.0


def plans(tmp_path: Path) -> Iterator[tuple[list[str], str]]:
    """Commands that only plan, with a recipe by path, and what each says."""
    path = written(tmp_path)
    root = f"dataset.root={tmp_path / 'data'}"
    yield ["run", f"recipe={path}", root, "--dry-run"], "500 files, 2000000 samples"
    yield ["generate", f"recipe={path}", root, "--dry-run"], "500 files, 2000000 samples"
    yield ["show", f"recipe={path}"], "num_files: 500"
    yield ["sweep", f"recipe={path}", root, "loader.num_workers=0,1", "--dry-run"], ""
    yield ["headspace", f"recipe={path}", root, "--dry-run"], ""


def test_every_verb_takes_it_as_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for words, said in plans(tmp_path):
        assert cli.main(words) == 0, capsys.readouterr().err
        assert said in capsys.readouterr().out
    assert cli.main(["run", f"recipe={tmp_path / 'mine.yaml'}", "--dry-run"]) == 0
    assert "scale: as written; scale=laptop shrinks it" in capsys.readouterr().out
    study, _ = parse([f"recipe={tmp_path / 'mine.yaml'}", "train.epochs=1,2"])
    assert not any(setting.startswith("scale=") for setting in study.settings)
    assert expand("train.epochs", "1,2") == ("1", "2")


def test_a_converted_workload_runs_as_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("workload.yaml").write_text(
        "model: {name: mine}\nframework: pytorch\n"
        "dataset: {format: npz, num_files_train: 800, record_length_bytes: 150000}\n"
        "reader: {batch_size: 4}\ntrain: {epochs: 5, computation_time: 0.7}\n"
    )
    assert cli.main(["import-dlio", "workload.yaml", "--output", "mine.yaml"]) == 0
    config = compose(["recipe=./mine.yaml"]).config
    assert (config.dataset.num_files, config.train.epochs, config.compute.step_s) == (800, 5, 0.7)
