"""The score of a recipe: its bound, its worst component, the run that it needs, and how that run fails."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest
from fitted_trainings import passes, recorded

from dlio_torch.errors import PreconditionError
from dlio_torch.fit import score as scores
from dlio_torch.fit.result_folder import ResultFolder
from dlio_torch.fit.score import Score, reproduced_part, run_recipe, score
from dlio_torch.iotrace.events.recording import Recording

FILES = ["/d/a", "/d/b"]


def scored(monkeypatch: pytest.MonkeyPatch, a: Recording, b: Recording, *reruns: Recording) -> Score:
    monkeypatch.setattr(scores, "open_recording", lambda path: b)
    return score(a, Path("emulation"), reruns)


def test_equal_runs_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    result = scored(monkeypatch, recorded(passes(FILES)), recorded(passes(FILES)))
    figures = json.loads(json.dumps(result.to_json(), allow_nan=False))
    assert figures["agrees"]
    assert (figures["worst"], figures["rerun_noise"]) == (0.0, None)
    assert all(component["agrees"] and component["remedy"] is None for component in figures["components"])


def test_the_worst_component_has_the_largest_ratio_to_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    result = scored(monkeypatch, recorded(passes(FILES, 4)), recorded(passes(FILES, 2)))
    figures = result.to_json()
    assert not figures["agrees"]
    assert figures["worst"] == 0.5
    assert figures["component"] == figures["components"][0]["name"]
    (reads,) = [component for component in figures["components"] if component["name"] == "read bytes"]
    assert (reads["distance"], reads["bound"], reads["remedy"]["option"]) == (0.5, 0.05, "train.epochs")


def test_twice_the_noise_of_a_rerun_is_allowed(monkeypatch: pytest.MonkeyPatch) -> None:
    first, rerun, run = (recorded(passes(FILES, count)) for count in (20, 16, 13))
    alone, beside = scored(monkeypatch, first, run), scored(monkeypatch, first, run, rerun)
    assert (alone.agrees, beside.agrees) == (False, True)
    (reads,) = [component for component in beside.to_json()["components"] if component["name"] == "read bytes"]
    assert (reads["noise"], reads["bound"]) == (pytest.approx(0.2), pytest.approx(0.4))
    several = scored(monkeypatch, first, run, rerun, recorded(passes(FILES, 20)))
    assert several.worst.noise == pytest.approx(0.2)  # the median of three pairs


def test_other_files_are_not_compared() -> None:
    calls = [*passes(FILES), *passes(["/log/x"])]
    kept = reproduced_part(recorded(calls), frozenset(FILES))
    assert set(kept.events.frame["file"].cat.categories) == set(FILES)
    assert set(reproduced_part(recorded(calls), ["/d"]).events.frame["file"].cat.categories) == set(FILES)


@pytest.fixture
def folder(tmp_path: Path) -> ResultFolder:
    result = ResultFolder.create(tmp_path / "mine", force=False)
    result.recipe.write_text("train: {batch_size: 2}\n", encoding="utf-8")
    return result


def program(monkeypatch: pytest.MonkeyPatch, text: str) -> list[tuple[list[str], int]]:
    """Replaces the emulator by a Python program; returns the arguments and ranks that it is started with."""
    started: list[tuple[list[str], int]] = []

    def command(arguments: Sequence[str], ranks: int) -> list[str]:
        started.append((list(arguments), ranks))
        return [sys.executable, "-c", text, *arguments]

    monkeypatch.setattr(scores, "emulator", command)
    return started


FAILS = (
    "import sys; print('dlio_torch: error: /data has 1 MiB free, and 2 MiB are needed', file=sys.stderr); sys.exit(3)"
)


def test_a_recipe_that_cannot_be_run(folder: ResultFolder, monkeypatch: pytest.MonkeyPatch) -> None:
    program(monkeypatch, FAILS)
    with pytest.raises(PreconditionError) as error:
        run_recipe(folder, 1)
    assert error.value.exit_code == 3
    assert error.value.message == "the recipe cannot be run: /data has 1 MiB free, and 2 MiB are needed"
    assert str(folder.emulation_log) in str(error.value)
    assert {path.name for path in folder.path.iterdir()} == {"recipe.yaml", "dlio_torch.json", "emulation.log"}


def test_as_many_ranks_as_recorded_and_the_next_run_finds_the_data(
    folder: ResultFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    started = program(monkeypatch, f"import pathlib; pathlib.Path({str(folder.data)!r}).mkdir(exist_ok=True)")
    assert run_recipe(folder, 3, "seed=2") == folder.emulation
    ((arguments, ranks),) = started
    assert ranks == 3
    assert {f"recipe={folder.recipe}", f"dataset.root={folder.data}", "trace.posix=true", "seed=2"} <= {*arguments}
    (folder.data / "a").write_bytes(b"x")
    run_recipe(folder, 3, "seed=2")
    assert (folder.data / "a").exists()
