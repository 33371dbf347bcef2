"""The folder of a fit: made, replaced only on demand, and never over files of others."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlio_torch.errors import ConfigError, PreconditionError
from dlio_torch.fit.result_folder import ResultFolder


def filled(path: Path) -> ResultFolder:
    folder = ResultFolder.create(path, force=False)
    folder.recipe.write_text("train:\n  batch_size: 2\n", encoding="utf-8")
    for file in (folder.evidence, folder.score):
        folder.write_json(file, {"a": 1})
    folder.emulation.mkdir()
    folder.emulation_log.write_text("x", encoding="utf-8")
    return folder


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()}


def test_an_earlier_result_is_replaced_only_with_force(tmp_path: Path) -> None:
    filled(tmp_path / "mine")
    with pytest.raises(ConfigError, match="holds an earlier result; add --force"):
        ResultFolder.create(tmp_path / "mine", force=False)
    ResultFolder.create(tmp_path / "mine", force=True)
    assert names(tmp_path / "mine") == {"dlio_torch.json"}  # no score of an earlier recipe


@pytest.mark.parametrize("force", [False, True])
def test_files_of_others_are_left_alone(tmp_path: Path, force: bool) -> None:
    (tmp_path / "recipe.yaml").write_text("mine", encoding="utf-8")
    with pytest.raises(PreconditionError, match="is not empty"):
        ResultFolder.create(tmp_path, force=force)
    assert names(tmp_path) == {"recipe.yaml"}


def test_only_the_run_is_removed(tmp_path: Path) -> None:
    folder = filled(tmp_path / "mine")
    folder.data.mkdir()
    folder.remove_run()
    assert names(folder.path) == {"dlio_torch.json", "recipe.yaml", "evidence.json", "score.json", ".data"}
    folder.remove_data()
    assert names(folder.path) == {"dlio_torch.json", "recipe.yaml", "evidence.json", "score.json"}
