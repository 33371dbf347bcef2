"""README is short, its two commands are those of CI, and its links lead to all pages."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from doc_pages import DOCS, README, blocks, links
from page_commands import run_blocks

from dlio_torch import cli
from dlio_torch.formats.core.registry import available

TEXT = README.read_text(encoding="utf-8")


def test_it_is_short_and_its_picture_is_small() -> None:
    assert len(TEXT.split()) <= 900
    (picture,) = re.findall(r"!\[[^]]+\]\(([\w/]+\.png)\)", TEXT)
    assert (README.parent / picture).stat().st_size < 200_000


def test_ci_runs_the_two_commands() -> None:
    script = (README.parent / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    commands = blocks(TEXT)
    assert len(commands) == 2
    for block in commands:
        (command,) = block.strip().splitlines()
        assert command in script


def test_ci_hides_optional_parts_from_the_tests_that_need_them() -> None:
    script = (README.parent / ".ci" / "run").read_text(encoding="utf-8")
    assert '\n.venv/bin/python -m pytest --without all -m "needs or horovod"\n' in script


def test_its_links_lead_to_all_pages() -> None:
    reached, waiting = set(), [README]
    while waiting:
        page = waiting.pop()
        if page not in reached:
            reached.add(page)
            waiting += [target for target, _ in links(page) if target.suffix == ".md"]
    assert set(DOCS) <= reached


@pytest.mark.ranks
def test_the_output_of_the_first_command_is_shown(tmp_path: Path) -> None:
    (output,) = re.findall(r"```sh\n[^`]*recipe=cosmic_tagger\n```\n\n```text\n(.*?)```", TEXT, re.DOTALL)
    assert output.startswith("cosmic_tagger, scale laptop, 1 rank\n")
    assert re.search(r"\nResults: .*runs/cosmic_tagger/\d{8}-\d{6}\n$", output)
    small = run_blocks(["python -m dlio_torch recipe=cosmic_tagger scale=tiny"], tmp_path, 500).stdout
    assert figures(output) == figures(small)


@pytest.mark.parametrize("verb", ["tune", "node", "checkpoint"])
def test_commands_of_its_questions_have_a_plan(
    verb: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    [command] = re.findall(rf"^\| [^|]*\? \| `({verb} [^`]*)` \|", TEXT, re.MULTILINE)
    assert cli.main([*command.split(), "--dry-run"]) == 0
    plan = "".join(capsys.readouterr())
    assert plan.count("\n") > 2
    assert list(tmp_path.iterdir()) == []


def test_its_format_is_that_of_the_page() -> None:
    (excerpt,) = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)
    page = (README.parent / "docs/adding.md").read_text(encoding="utf-8").splitlines()
    assert [line for line in excerpt.splitlines() if line not in page] == []
    assert f"the {len(available())} formats" in TEXT


def figures(output: str) -> list[str]:
    """Names of the figures of a run, less those that depend on the load of the machine."""
    names = re.findall(r"^([a-z][a-z ]+[a-z])  +\S", output, re.MULTILINE)
    return [name for name in names if name not in {"causes of waits", "compute time error", "storage limit"}]
