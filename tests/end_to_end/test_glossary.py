"""The glossary names options, figures and verbs that exist, and its terms are sorted and unique."""

from __future__ import annotations

import re

import pytest
from ranks import REPO

from dlio_torch.analysis import summary_figures
from dlio_torch.commands.verbs import VERBS
from dlio_torch.config.fields import lookup

TEXT = (REPO / "docs/glossary.md").read_text(encoding="utf-8")
ENTRIES = [" ".join(entry.split()) for entry in TEXT.split("\n\n") if entry.startswith("**")]
TERMS = [entry.partition(".**")[0].removeprefix("**") for entry in ENTRIES]
NAMED = re.compile(r"\b(Option|Figure|Verb)s?: ((?:`[^`]+`(?:, )?)+)")


def named(entry: str) -> list[tuple[str, str]]:
    """Kind and name of each option, figure and verb of an entry."""
    return [(kind, name) for kind, names in NAMED.findall(entry) for name in re.findall(r"`([^`]+)`", names)]


def test_forty_terms_or_more_are_sorted_and_unique() -> None:
    assert len(TERMS) >= 40
    assert sorted({term.lower() for term in TERMS}) == [term.lower() for term in TERMS]


@pytest.mark.parametrize("entry", ENTRIES, ids=TERMS)
def test_an_entry_is_short_and_names_what_exists(entry: str) -> None:
    definition = NAMED.sub("", entry.partition(".**")[2])
    assert 1 <= len(re.findall(r"\.(?:\s|$)", definition.replace(" .", ""))) <= 3
    assert named(entry)
    for kind, name in named(entry):
        if kind == "Option":
            assert lookup(name.split(".")) is not None, name
        elif kind == "Figure":
            assert name.startswith(f"{summary_figures.ROOT}.")
            assert summary_figures.explain(name) is not None, name
        else:
            assert name in VERBS, name


def test_readme_leads_to_the_glossary_which_is_in_the_source_distribution() -> None:
    assert "(docs/glossary.md)" in (REPO / "README.md").read_text(encoding="utf-8")
    assert '"/docs"' in (REPO / "pyproject.toml").read_text(encoding="utf-8").partition("targets.sdist]")[2]
