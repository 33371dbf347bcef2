"""The glossary of the documentation: words of the field with the options and figures behind them."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from dlio_torch.config.resources import shipped

FILE = "docs/glossary.md"
_LINKS = re.compile(r"\b(Option|Figure|Verb)s?: ((?:`[^`]+`(?:, )?)+)\.?")


@dataclass(frozen=True)
class Term:
    """One entry.

    Attributes:
        name: the term, with its abbreviation in brackets if it has one.
        text: definition.
        options: keys of options that it names.
        figures: names of figures that it names, below ``summary``.
        verbs: verbs that it names.
    """

    name: str
    text: str
    options: tuple[str, ...]
    figures: tuple[str, ...]
    verbs: tuple[str, ...]

    @property
    def words(self) -> list[str]:
        """Words of the name, in lower case."""
        return [word for word in re.findall(r"[\w/-]+", self.name.lower()) if word != "and"]


@cache
def terms() -> tuple[Term, ...]:
    """All entries in their order; none where the file is missing."""
    try:
        text = (shipped() / FILE).read_text(encoding="utf-8")
    except OSError:
        return ()
    return tuple(_term(" ".join(entry.split())) for entry in text.split("\n\n") if entry.startswith("**"))


def _term(entry: str) -> Term:
    name, _, text = entry.removeprefix("**").partition(".**")
    links: dict[str, list[str]] = {"Option": [], "Figure": [], "Verb": []}
    for kind, names in _LINKS.findall(text):
        links[kind] += re.findall(r"`([^`]+)`", names)
    figures = tuple(figure.removeprefix("summary.") for figure in links["Figure"])
    return Term(name, _LINKS.sub("", text).strip(), tuple(links["Option"]), figures, tuple(links["Verb"]))
