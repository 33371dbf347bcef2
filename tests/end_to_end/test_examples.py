"""The example pages of the documentation have the sections that today's code writes; a script makes them."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from ranks import REPO
from real_data import real_input

pytest.importorskip("matplotlib", reason="the extra report is not installed")
EXAMPLES = REPO / "docs/examples"
MAKE = runpy.run_path(str(REPO / "docs/make_examples.py"))


def sections(page: Path) -> list[str]:
    """Titles of the sections of a page."""
    found = re.findall(r"<h2[^>]*>(.*?)</h2>", page.read_text(encoding="utf-8"))
    assert len(found) >= 8
    return found


SMALL = {
    "run": ["recipe=cosmic_tagger", "scale=tiny", "trace.posix=true"],
    "study": ["recipe=minimal", "scale=tiny", "loader.num_workers=0,1", "train.batch_size=2,4", "repeats=1"],
}
"""Settings of a page that is soon made and has all sections of the page in the documentation."""


@pytest.mark.parametrize("name", SMALL)
def test_a_page_has_the_sections_of_today(name: str, tmp_path: Path) -> None:
    write: Callable[[Path, Path, Sequence[str]], None] = MAKE[f"{name}_page"]
    write(tmp_path, tmp_path / "page.html", SMALL[name])
    assert sections(EXAMPLES / f"{name}.html") == sections(tmp_path / "page.html")


def test_the_page_of_a_log_has_the_sections_of_today(tmp_path: Path) -> None:
    pytest.importorskip("darshan", reason="the extra logs is not installed")
    MAKE["log_page"](tmp_path, tmp_path / "page.html", real_input("cosmic_tagger_8ranks.darshan"))
    assert sections(EXAMPLES / "log.html") == sections(tmp_path / "page.html")


def test_pages_are_small_and_the_documentation_leads_to_all_of_them() -> None:
    pages = sorted(EXAMPLES.iterdir())
    assert [page.name for page in pages] == sorted(f"{name}.html" for name in MAKE["NAMES"])
    linked = re.findall(r"\(examples/(\w+\.html)\)", (REPO / "docs/examples.md").read_text(encoding="utf-8"))
    assert sorted(linked) == [page.name for page in pages]
    assert all(page.stat().st_size <= MAKE["LARGEST"] for page in pages)


def test_a_page_names_no_folder_of_its_author(tmp_path: Path) -> None:
    page, output = tmp_path / "page.html", tmp_path / "output.html"
    page.write_text(f"<p>{tmp_path}/run {REPO}/dlio_torch</p>")
    MAKE["publish"](page, output, tmp_path)
    assert output.read_text() == "<p>/scratch/run /opt/dlio_torch/dlio_torch</p>"
    page.write_bytes(bytes(MAKE["LARGEST"] + 1))
    with pytest.raises(ValueError, match="make the example smaller"):
        MAKE["publish"](page, output, tmp_path)
