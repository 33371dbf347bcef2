"""Every command of the pages works; links, anchors and lines of README and of the pages are right."""

from __future__ import annotations

import re
from pathlib import Path

import optional_parts
import pytest
from doc_pages import DOCS, PAGES, anchors, blocks, links, prose
from page_commands import run_blocks
from ranks import REPO

OWN_TESTS = {
    "checkpoints.md": "end_to_end/test_checkpoints_page.py",
    "cookbook.md": "end_to_end/test_cookbook.py",
    "data_formats.md": "end_to_end/test_own_data.py",
    "getting_started.md": "end_to_end/test_cookbook.py",
    "goodput.md": "unit/analysis/test_goodput_inputs.py",
    "node.md": "end_to_end/test_node.py",
    "own_data.md": "end_to_end/test_own_data.py",
    "record_and_fit.md": "end_to_end/test_record_and_fit_page.py",
}
"""Pages whose commands need data, or whose output has a test of its own."""
COMMANDS = [
    (page, block)
    for page in DOCS
    if page.name not in OWN_TESTS
    for block in blocks(page.read_text(encoding="utf-8"))
]  # fmt: skip
SHOWN = re.compile(r"```sh\n([^`]*)```\n\n```text\n(.*?)```", re.DOTALL)
"""A block of commands, and the output that follows it."""
LAUNCHERS = {"horovodrun": "horovod", "mpiexec": "mpi"}
SMALL = "scale=tiny"
"""Scale of the examples that verify or resume; all others are large enough for a verdict."""
NOISE = {"compute time error", "storage limit"}
"""Lines that depend on the load of the machine and on whether its storage was measured."""
LINE = 120


@pytest.mark.ranks
@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("page", "block"), COMMANDS, ids=lambda value: value.name if isinstance(value, Path) else value.splitlines()[0]
)
def test_commands_work(page: Path, block: str, tmp_path: Path) -> None:
    for launcher, part in LAUNCHERS.items():
        if launcher in block:
            optional_parts.need(part)
    done = run_blocks([block], tmp_path, 500)
    if SMALL not in block:
        assert "too few steps" not in " ".join(done.stdout.split())
    shown = dict(SHOWN.findall(page.read_text(encoding="utf-8")))
    if block in shown:
        same_shape(shown[block], done.stdout)


def test_the_output_of_a_run_is_shown() -> None:
    shown = [output for page in DOCS for output in SHOWN.findall(page.read_text(encoding="utf-8"))]
    assert "python -m dlio_torch recipe=minimal\n" in dict(shown)


@pytest.mark.parametrize("name", OWN_TESTS)
def test_pages_with_own_tests_have_them(name: str) -> None:
    if not (REPO / "docs" / name).is_file():
        pytest.skip(f"there is no page {name}")
    assert name in (REPO / "tests" / OWN_TESTS[name]).read_text(encoding="utf-8")


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_and_anchors_lead_somewhere(page: Path) -> None:
    for target, anchor in links(page):
        assert target.exists(), target
        if anchor:
            assert anchor in anchors(target), f"{target}#{anchor}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_lines_of_prose_are_short(page: Path) -> None:
    lines = prose(page.read_text(encoding="utf-8")).splitlines()
    assert [line for line in lines if len(line) > LINE and not line.lstrip().startswith("|")] == []


def same_shape(shown: str, printed: str) -> None:
    """Compares the title, the verdict's interval, the names of the figures and the end of two outputs of a run."""
    first, second = shown.strip(), printed.strip()
    assert first.splitlines()[0] == second.splitlines()[0]
    interval = re.compile(r"\d % busy \(± \d+\.\d points at 95 % confidence, (\d+) steps\)")
    verdicts = [" ".join(text.split("\n\n")[0].split()) for text in (first, second)]
    assert [interval.findall(verdict) for verdict in verdicts] == [["127"], ["127"]]
    names = [re.findall(r"^([a-z][a-z ]+[a-z])  +\S", text, re.MULTILINE) for text in (first, second)]
    assert [name for name in names[0] if name not in NOISE] == [name for name in names[1] if name not in NOISE]
    assert len(names[0]) >= 6
    advice = re.compile(r"^(The loader is not the bottleneck|Steps wait for data) ?", re.MULTILINE)
    assert all(advice.search(text) for text in (first, second))
    results = [text.splitlines()[-1] for text in (first, second)]
    assert all(re.fullmatch(r"Results: .*runs/minimal/\d{8}-\d{6}", line) for line in results)
