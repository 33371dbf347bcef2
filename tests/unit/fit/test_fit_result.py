"""The steps of a fit: what stays after an interrupt or a recipe that cannot be run, and without a score."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fitted_trainings import fitted, passes, recorded, training_of

from dlio_torch.errors import PreconditionError
from dlio_torch.fit import fit_result
from dlio_torch.fit.finding import Finding, findings
from dlio_torch.fit.fit_recording import FittedTraining
from dlio_torch.fit.fit_result import FitRequest, make_result
from dlio_torch.fit.result_folder import ResultFolder
from dlio_torch.fit.score import Score
from dlio_torch.iotrace.fidelity.compare_recordings import compare

FILES = ["/d/a", "/d/b"]


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> dict[str, Any]:
    """A fit whose recording and run are made up; ``run`` is called as the recipe's run."""
    source = recorded(passes(FILES))
    comparison = compare(source, recorded(passes(FILES, 1)))
    given: dict[str, Any] = {"ranks": 1, "run": lambda folder: None}

    def run_recipe(folder: ResultFolder, ranks: int, *overrides: str) -> Path:
        folder.emulation.mkdir()
        folder.emulation_log.write_text("x", encoding="utf-8")
        given["run"](folder)
        return folder.emulation

    monkeypatch.setattr(fit_result, "read_training", lambda path: training_of(source))
    monkeypatch.setattr(
        fit_result, "fit_training", lambda _: fitted([Finding("train.epochs", 2, "seen")], FILES, ranks=given["ranks"])
    )
    monkeypatch.setattr(fit_result, "with_preprocessing", lambda training, values, folder, announce: values)
    monkeypatch.setattr(fit_result, "run_recipe", run_recipe)
    monkeypatch.setattr(fit_result, "score", lambda *_: Score(comparison, comparison.components[0]))
    return given


def names(path: Path) -> set[str]:
    return {entry.name for entry in path.iterdir()} - {"dlio_torch.json"}


def made(tmp_path: Path, **options: Any) -> fit_result.FitResult:
    return make_result(FitRequest(Path("x"), tmp_path / "mine", **options), lambda line: None)


def test_a_whole_result(stages: dict[str, Any], tmp_path: Path) -> None:
    result = made(tmp_path)
    assert names(tmp_path / "mine") == {"recipe.yaml", "evidence.json", "score.json", "emulation", "emulation.log"}
    assert result.figures is not None
    assert {"worst", "component", "components", "rerun_noise", "unexplained"} <= result.figures.keys()
    assert result.notes == ()


@pytest.mark.parametrize(
    ("options", "kept"),
    [({"scored": False}, set()), ({"anonymised": True}, {"score.json"})],
    ids=["no score", "no names"],
)
def test_the_run_is_not_always_kept(
    options: dict[str, bool], kept: set[str], stages: dict[str, Any], tmp_path: Path
) -> None:
    made(tmp_path, **options)
    assert names(tmp_path / "mine") == {"recipe.yaml", "evidence.json"} | kept


def test_an_interrupt_leaves_recipe_and_evidence(stages: dict[str, Any], tmp_path: Path) -> None:
    def interrupted(folder: ResultFolder) -> None:
        folder.data.mkdir()
        raise KeyboardInterrupt

    stages["run"] = interrupted
    with pytest.raises(KeyboardInterrupt, match=r"the recipe is written, without a score: .*recipe.yaml"):
        made(tmp_path)
    assert names(tmp_path / "mine") == {"recipe.yaml", "evidence.json"}


@pytest.mark.parametrize("error", ["the recipe cannot be run", "no call can be compared"])
def test_a_recipe_that_cannot_be_compared_stays_with_its_log(
    error: str, stages: dict[str, Any], tmp_path: Path
) -> None:
    def failing(folder: ResultFolder) -> None:
        folder.data.mkdir()
        raise PreconditionError(error, hint=f"see {folder.emulation_log}" if "run" in error else None)

    stages["run"] = failing
    with pytest.raises(PreconditionError, match=error):
        made(tmp_path)
    assert names(tmp_path / "mine") == {"recipe.yaml", "evidence.json", "emulation", "emulation.log"}
    with pytest.raises(PreconditionError, match=error) as caught:
        made(tmp_path, anonymised=True, force=True)
    assert "emulation.log" not in str(caught.value)
    assert names(tmp_path / "mine") == {"recipe.yaml", "evidence.json"}


def test_the_run_that_measures_preprocessing_leaves_its_data_to_the_compared_one(
    stages: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def with_preprocessing(training: object, values: FittedTraining, folder: ResultFolder, announce: object) -> object:
        folder.data.mkdir()
        return replace(values, findings=values.findings + findings([Finding("compute.preprocess_s", 0.5, "measured")]))

    seen: list[bool] = []
    stages["run"] = lambda folder: seen.append(folder.data.exists())
    monkeypatch.setattr(fit_result, "with_preprocessing", with_preprocessing)
    made(tmp_path)
    assert seen == [True]
    assert "preprocess_s: 0.5" in (tmp_path / "mine/recipe.yaml").read_text(encoding="utf-8")
    assert names(tmp_path / "mine") == {"recipe.yaml", "evidence.json", "score.json", "emulation", "emulation.log"}


def test_ranks_that_share_cores_are_named(
    stages: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(fit_result, "usable_cores", lambda: 2.0)
    stages["ranks"] = 4
    assert made(tmp_path).notes == ("4 ranks shared the 2 cores of this machine, which delays all of them",)
