"""README and the pages of the documentation: texts, blocks of commands, links and anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from ranks import REPO

README = REPO / "README.md"
DOCS = sorted((REPO / "docs").rglob("*.md"))
PAGES = [README, *DOCS]


def blocks(text: str) -> list[str]:
    """Blocks of the language ``sh`` of a page."""
    return re.findall(r"```sh\n(.*?)```", text, re.DOTALL)


def prose(text: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^( *)```.*?^\1```$", "", text, flags=re.DOTALL | re.MULTILINE)


def links(page: Path) -> Iterator[tuple[Path, str]]:
    """Target and anchor (or ``""``) of each link of a page to a file."""
    for target, anchor in re.findall(r"\]\(([^)#\s]*)(?:#([^)\s]+))?\)", prose(page.read_text(encoding="utf-8"))):
        if not target.startswith(("http:", "https:")):
            yield (page.parent / target).resolve() if target else page, anchor


def anchors(page: Path) -> set[str]:
    """Anchors of the headings of a page, as GitHub and MkDocs name them."""
    headings = re.findall(r"^#+ (.*)", prose(page.read_text(encoding="utf-8")), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
