"""The choice ``auto`` of a group: the one that suits the format of the data."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from dlio_torch.config.compose import compose
from dlio_torch.errors import ConfigError
from dlio_torch.formats.numpy.facts import NpzFacts


@pytest.fixture
def data(tmp_path: Path) -> Path:
    for number in range(2):
        np.savez(tmp_path / f"{number}.npz", data=np.zeros((3, 4), np.float32))
    return tmp_path


@pytest.fixture
def streamed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(NpzFacts, "choices", {"access": "stream"})


# Without inspection, so that the numpy family need not describe files here.
GIVEN = ("dataset=npz", "dataset.fields=[{name: data, shape: [4]}]")


def test_a_format_without_a_choice_is_read_in_shuffled_order(data: Path) -> None:
    composed = compose([f"dataset.path={data}", *GIVEN])
    assert (composed.config.access.pattern, composed.config.access.order) == ("samples", "shuffled")
    assert composed.config.access.partition == "batches"
    assert "auto.yaml" in composed.sources["access.order"]


@pytest.mark.usefixtures("streamed")
def test_the_choice_of_the_format_takes_the_place_of_auto(data: Path) -> None:
    composed = compose([f"dataset.path={data}", *GIVEN])
    assert composed.config.access.pattern == "stream"
    assert "stream.yaml" in composed.sources["access.pattern"]


@pytest.mark.usefixtures("streamed")
def test_inspected_data_are_the_source_of_the_choice(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tree = {"format": "npz", "fields": [{"name": "data", "shape": [4]}]}
    looks = []

    def inspected(path: str, format_name: str) -> tuple[object, list[tuple[str, str]]]:
        looks.append(path)
        return tree, []

    monkeypatch.setattr("dlio_torch.config.existing_data.inspected", inspected)
    composed = compose([f"dataset.path={data}"])
    assert composed.config.access.pattern == "stream"
    assert composed.sources["access.pattern"] == composed.sources["dataset.format"] == f"inspection of {data}"
    assert looks == [str(data)]  # once for all groups


@pytest.mark.usefixtures("streamed")
def test_a_choice_of_the_user_goes_before(data: Path) -> None:
    assert compose([f"dataset.path={data}", *GIVEN, "access=shuffled"]).config.access.pattern == "samples"
    assert compose([f"dataset.path={data}", *GIVEN, "access.pattern=samples"]).config.access.pattern == "samples"


@pytest.mark.usefixtures("streamed")
def test_a_recipe_may_leave_the_choice_to_the_format(tmp_path: Path) -> None:
    recipe = tmp_path / "mine.yaml"
    recipe.write_text("description: x\ndefaults: [{dataset: npz}, {access: auto}, {compute: none}]\n")
    assert compose([f"recipe={recipe}"]).config.access.pattern == "stream"
    assert compose([f"recipe={recipe}", "dataset=npy", "train.batch_size=1"]).config.access.pattern == "samples"
    recipe.write_text("description: x\ndefaults: [{access: auto}, {compute: none}]\ndataset: {format: npz}\n")
    assert compose([f"recipe={recipe}"]).config.access.pattern == "stream"


def test_auto_without_data_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"dataset=auto \(command line\).*dataset\.path is not set"):
        compose(["recipe=minimal", "dataset=auto"])
