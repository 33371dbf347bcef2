"""The commands of docs/cookbook.md and docs/getting_started.md work, and print what the pages show."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from output_shape import differences
from page_commands import run_page
from ranks import REPO

COOKBOOK = (REPO / "docs/cookbook.md").read_text(encoding="utf-8")
STARTED = (REPO / "docs/getting_started.md").read_text(encoding="utf-8")
PREPARATION, *QUESTIONS = re.split(r"^## ", COOKBOOK, flags=re.MULTILINE)
TITLES = [question.splitlines()[0] for question in QUESTIONS]
PREDICTION = "What will 64 ranks do?"
_LIMIT_S = 500


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with what the page says that the user has; its checkpoints are more than 1 GiB and do not stay."""
    pytest.importorskip("PIL", reason="the images of the page need Pillow")
    prepared = tmp_path_factory.mktemp("cookbook")
    run_page(PREPARATION, prepared, _LIMIT_S)
    yield prepared
    shutil.rmtree(prepared)


def outputs(text: str) -> list[str]:
    """The outputs that a text shows."""
    return re.findall(r"```text\n(.*?)```", text, re.DOTALL)


def test_ten_questions_have_two_commands_at_most_and_one_output() -> None:
    assert len(set(TITLES)) == 10
    assert PREDICTION in TITLES
    for question in QUESTIONS:
        assert 1 <= len(re.findall(r"^python -m dlio_torch ", question, re.MULTILINE)) <= 2
        assert len(outputs(question)) == 1
        assert "**How to read it.**" in question


@pytest.mark.ranks
@pytest.mark.timeout(600)
@pytest.mark.parametrize("question", QUESTIONS, ids=TITLES)
def test_a_question_is_answered_as_the_page_shows(question: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if question.startswith(PREDICTION):
        pytest.importorskip("simpy", reason="the extra scale is not installed")
    monkeypatch.setenv("COLUMNS", "100")
    (page,) = outputs(question)
    printed = run_page(question, folder, _LIMIT_S).stdout
    assert not differences(page, printed)


@pytest.mark.ranks
@pytest.mark.timeout(600)
def test_the_first_result_is_as_the_page_shows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("matplotlib", reason="the extra report is not installed")
    monkeypatch.setenv("COLUMNS", "100")
    (page,) = [output for output in outputs(STARTED) if "Results: " in output]
    first, *_ = run_page(STARTED, tmp_path, _LIMIT_S).stdout.partition("Results: ")
    assert not differences(page.partition("Results: ")[0], first[first.index("minimal, scale laptop") :])
    assert not list((tmp_path / "first/runs").glob("minimal/*"))  # cleaned up
    assert list((tmp_path / "first/runs").glob("cosmic_tagger/*/report.html"))
