"""Search of a word among options, figures of ``summary.json`` and terms of the glossary, for ``explain WORD``."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlio_torch.analysis import summary_figures
from dlio_torch.analysis.summary_figures import SummaryFigure
from dlio_torch.commands.glossary import Term, terms
from dlio_torch.config.explanation import explain_data
from dlio_torch.config.fields import Option, lookup, nearest, walk

_ALIKE = 0.75
"""How like a name a word has to be to be taken for a slip, from 0 to 1."""


@dataclass(frozen=True)
class WordMatches:
    """The options, figures and terms that a word means.

    Attributes:
        terms: entries of the glossary.
        options: options with that name, and those behind the terms.
        figures: figures with that name, and those behind the terms.
    """

    terms: tuple[Term, ...] = ()
    options: tuple[Option, ...] = ()
    figures: tuple[SummaryFigure, ...] = ()

    def __bool__(self) -> bool:
        return bool(self.terms or self.options or self.figures)

    def __len__(self) -> int:
        return len(self.terms) + len(self.options) + len(self.figures)

    def text(self) -> str:
        """The terms with their definitions; options and figures in a list each, one line of them."""
        parts = [f"{term.name}: {term.text}\n{_verbs(term)}" for term in self.terms]
        options = [(option.key, option.doc) for option in self.options]
        figures = [(_name(figure), f"{_unit(figure)}{figure.meaning}") for figure in self.figures]
        parts += [
            f"{heading}\n{_rows(rows)}"
            for heading, rows in (("options", options), ("figures of summary.json", figures))
            if rows
        ]
        if options or figures:
            parts.append("`explain NAME` says more about one of them.\n")
        return "\n".join(parts)

    def data(self) -> dict[str, Any]:
        """The same as plain data."""
        options: dict[str, Any] = {}
        for option in self.options:
            options |= explain_data(option.key)
        return {
            "terms": [asdict(term) for term in self.terms],
            "options": options,
            "figures": [asdict(figure) for figure in self.figures],
        }


def search(word: str) -> WordMatches:
    """Everything that is called ``word``, upper and lower case alike.

    A name is found by its last parts, or by any part of a figure's; where no name has it, by a word of the last part:
    ``wait`` finds ``stalls.wait_s``. A term is found by a word of its name, and leads to its options and figures.
    """
    word = word.lower().strip(".")
    if not word.strip("*."):
        return WordMatches()
    options = [option for option in walk() if _ends_with(option.key, word)]
    figures = [figure for figure in summary_figures.figures() if f".{word}." in f".{figure.name}."]
    if not options and not figures and "." not in word:
        options = [option for option in walk() if word in option.name.split("_")]
        figures = [figure for figure in summary_figures.figures() if word in _parts(figure.name)[-1].split("_")]
    entries = tuple(term for term in terms() if word in (*term.words, term.name.lower()))
    for term in entries:
        options += [option for key in term.options if (option := lookup(key.split("."))) is not None]
        figures += [figure for name in term.figures for figure in _below(name)]
    unique_options = {option.key: option for option in options}
    unique_figures = {figure.name: figure for figure in figures}
    return WordMatches(entries, tuple(unique_options.values()), tuple(unique_figures.values()))


def similar_word(word: str, keys: Iterable[str]) -> str:
    """The part of a figure's name, or the word of a term, that is spelt most like ``word``.

    Empty if there is none, or if an option or one of ``keys`` is spelt more like it.

    Args:
        word: as given.
        keys: further names beside those of options.
    """
    options = {option.key if "." in word else option.name for option in walk()} | set(keys)
    if "." in word:
        names = {".".join(_parts(figure.name)) for figure in summary_figures.figures()}
    else:
        names = {part for figure in summary_figures.figures() for part in _parts(figure.name)}
        names |= {part for term in terms() for part in term.words}
    close = nearest(word, [*sorted(options), *sorted(names - options)], cutoff=_ALIKE)
    return close[0] if close and close[0] not in options else ""


def _ends_with(key: str, word: str) -> bool:
    return f".{key}".endswith(f".{word}")


def _parts(name: str) -> list[str]:
    """Parts of a figure's name without those that stand for any."""
    return [part for part in name.split(".") if "*" not in part]


def _below(name: str) -> list[SummaryFigure]:
    """The figure of a name, or those below it."""
    exact = summary_figures.find(name)
    below = [figure for figure in summary_figures.figures() if figure.name.startswith(f"{name}.")]
    return [exact] if exact is not None else below


def _name(figure: SummaryFigure) -> str:
    return f"{summary_figures.ROOT}.{figure.name}"


def _unit(figure: SummaryFigure) -> str:
    return f"[{figure.unit}] " if figure.unit else ""


def _verbs(term: Term) -> str:
    return f"  verbs: {', '.join(term.verbs)}\n" if term.verbs else ""


def _rows(rows: Sequence[tuple[str, str]]) -> str:
    width = max(len(name) for name, _ in rows)
    return "".join(f"  {name:<{width}}  {text}\n" for name, text in rows)
