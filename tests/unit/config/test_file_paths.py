"""Options that name files: in a recipe or a fragment of one's own a relative path starts at the folder of that file."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlio_torch.config.compose import compose
from dlio_torch.config.emit import to_yaml
from dlio_torch.formats.extents.options import ExtentsConfig

RECIPE = "dataset: {format: extents, extents: {requests: PATH}}\ntrain: {batch_size: 2}\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "mine").mkdir()
    return tmp_path


def requests(folder: Path, *arguments: str) -> str:
    """The file of requests of a recipe in ``mine``, for a program that runs in the folder above."""
    composed = compose(["recipe=mine/recipe.yaml", *arguments], cwd=folder, environ={})
    return composed.config.dataset.of(ExtentsConfig).requests


@pytest.mark.parametrize("written", ["requests.npz", "./requests.npz", "../mine/requests.npz"])
def test_a_relative_path_in_a_recipe_starts_at_its_folder(written: str, folder: Path) -> None:
    (folder / "mine" / "recipe.yaml").write_text(RECIPE.replace("PATH", written))
    assert Path(requests(folder)).resolve() == (folder / "mine" / "requests.npz").resolve()
    assert Path(requests(folder)).is_absolute()


def test_other_paths_stay_as_they_are(folder: Path) -> None:
    (folder / "mine" / "recipe.yaml").write_text(RECIPE.replace("PATH", "/data/requests.npz"))
    assert requests(folder) == "/data/requests.npz"
    (folder / "mine" / "recipe.yaml").write_text(RECIPE.replace("PATH", "'${recipe}.npz'"))
    assert requests(folder) == "recipe.npz"


def test_a_path_on_the_command_line_starts_where_the_command_runs(folder: Path) -> None:
    (folder / "mine" / "recipe.yaml").write_text(RECIPE.replace("PATH", "requests.npz"))
    assert requests(folder, "dataset.extents.requests=other.npz") == str(folder / "other.npz")
    assert requests(folder, "dataset.extents.requests=") == ""


def test_fragments_and_variants_are_files_too(folder: Path) -> None:
    (folder / "mine" / "data.yaml").write_text("format: extents\nextents: {requests: a.npz}\n")
    variant = "accelerators: {fast: {dataset: {extents: {requests: b.npz}}}}\n"
    (folder / "mine" / "recipe.yaml").write_text("defaults: [{dataset: ./mine/data.yaml}]\n" + variant)
    assert requests(folder) == str((folder / "mine" / "a.npz").resolve())
    assert requests(folder, "accelerator=fast") == str((folder / "mine" / "b.npz").resolve())


def test_a_resolved_configuration_runs_anywhere(folder: Path) -> None:
    (folder / "mine" / "recipe.yaml").write_text(RECIPE.replace("PATH", "requests.npz"))
    composed = compose(["recipe=mine/recipe.yaml"], cwd=folder, environ={})
    (folder / "config.yaml").write_text(to_yaml(composed.config))
    again = compose(["recipe=../config.yaml"], cwd=folder / "mine", environ={})
    assert again.config.dataset == composed.config.dataset
