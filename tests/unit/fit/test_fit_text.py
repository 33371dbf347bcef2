"""What fit prints: every option, gap and component that is off, and no line too wide."""

from __future__ import annotations

import io
from pathlib import Path

import pytest
from fitted_trainings import fitted, passes, recorded, training_of

from dlio_torch.fit.finding import Finding
from dlio_torch.fit.fit_evidence import evidence
from dlio_torch.fit.fit_result import FitResult
from dlio_torch.fit.fit_text import print_fit
from dlio_torch.fit.result_folder import ResultFolder
from dlio_torch.fit.score import Score
from dlio_torch.iotrace.fidelity.compare_recordings import compare

FIELDS = [{"name": f"field_{number}", "dtype": "float32", "shape": [4]} for number in range(40)]
VALUES = (
    Finding("dataset.fields", FIELDS, "the files state it (case_0000.npz), all forty of them, each of four numbers"),
    Finding("train.batch_size", 2, "the loader has batch_size=2"),
    Finding("dataset.num_files", 3, "3 files hold 3 samples", "likely"),
)


def result(count: int) -> FitResult:
    """A recipe whose run makes ``count`` passes instead of four."""
    training = training_of(recorded([*passes(["/d/a", "/d/b"], 4), *passes(["/e/log"], 1)]))
    recipe = fitted(VALUES, ["/d"], ["augmentation on the GPU"])
    comparison = compare(recorded(passes(["/d/a", "/d/b"], 4)), recorded(passes(["/d/a", "/d/b"], count)))
    score = Score(comparison, comparison.components[0])
    folder = ResultFolder(Path("/mine"))
    return FitResult(folder, recipe, evidence(training, recipe), score, ("3 ranks shared the 2 cores of this machine",))


def printed(shown: FitResult, columns: int, monkeypatch: pytest.MonkeyPatch, *, short: bool = False) -> str:
    monkeypatch.setenv("COLUMNS", str(columns))
    stream = io.StringIO()
    print_fit(shown, stream, short=short)
    return stream.getvalue()


@pytest.mark.parametrize("columns", [80, 100])
def test_everything_is_said_and_no_table_is_too_wide(columns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    text = printed(result(2), columns, monkeypatch)
    lines = text.splitlines()
    assert max(len(line) for line in lines if not line.startswith(("Not alike", "recipe:"))) <= columns
    words = " ".join(text.split())
    for part in (
        "not reproduced: augmentation on the GPU",
        "of the read bytes are on files that the recipe does not have",
        "note: 3 ranks shared the 2 cores of this machine",
        "options that bring the recipe closer to the recording: ",
        "raise train.epochs or train.steps",
        "Not alike. Worst component: ",
    ):
        assert part in words
    assert words.endswith("recipe: /mine/recipe.yaml")


def test_groups_are_together_and_long_values_are_short(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(result(4), 100, monkeypatch).splitlines()
    starts = [
        line.split()[0] for line in lines[: lines.index("not reproduced: augmentation on the GPU")] if line[:3].strip()
    ]
    assert [name for name in starts if name in ("dataset", "train")] == ["dataset", "train"]
    (fields,) = [line for line in lines if line.startswith("  fields")]
    assert "40: field_0, field_1, f…" in fields


def test_alike_components_share_a_line(monkeypatch: pytest.MonkeyPatch) -> None:
    text = " ".join(printed(result(4), 100, monkeypatch).split())
    assert "alike (no difference): " in text
    assert "options that bring" not in text
    assert "Alike in all components, without any difference." in text
    assert "Worst component" not in text


def test_quiet_is_the_verdict_and_the_path(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = printed(result(2), 100, monkeypatch, short=True).splitlines()
    assert len(lines) == 2
    assert lines[0].startswith("Not alike. ")
    assert lines[1] == "recipe: /mine/recipe.yaml"
