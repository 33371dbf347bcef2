"""The verbs ls, explain and show: they list recipes and options, explain options, and print a configuration."""

from __future__ import annotations

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import as_json, composed
from dlio_torch.commands.text_width import output_width, wrap
from dlio_torch.config.fields import lookup, nearest
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError
from dlio_torch.study import verb_keys

if TYPE_CHECKING:
    from dlio_torch.config.compose import Composed

_KEYS = "".join(f"keys of {verb}: {', '.join(names)}\n" for verb, names in verb_keys.KEYS.items())


def main(command: Command, launch: Launch) -> int:
    """Run the verb and print its answer; returns the exit code."""
    text = {"ls": _ls, "explain": _explain, "show": _show}[command.verb](command, launch)
    print(text, end="")
    return 0


def _ls(command: Command, launch: Launch) -> str:
    from dlio_torch.config.explanation import listing, listing_text
    from dlio_torch.formats.core.registry import available

    if command.settings:
        raise ConfigError(
            f"argument {command.settings[0]!r} (command line): ls takes only names of sections, for example recipes",
            hint=f"to print a configuration, use: show {command.settings[0]}",
        )
    sections = listing(command.words, formats=sorted(available()))
    return as_json(sections) if "--json" in command.flags else listing_text(sections)


def _explain(command: Command, launch: Launch) -> str:
    text = _explanation(command, launch)
    return text if "--json" in command.flags else wrap(text, output_width())


def _explanation(command: Command, launch: Launch) -> str:
    """The answer to ``explain``: JSON, or text whose lines are not wrapped."""
    from dlio_torch.analysis import summary_figures
    from dlio_torch.commands.word_search import search
    from dlio_torch.config.explanation import explain, explain_data

    composed_run = composed(command, launch) if command.settings else None
    key = command.words[0] if command.words else ""
    if key.partition(".")[0] == summary_figures.ROOT:
        return _explain_figure(command, key)
    verbs = verb_keys.verbs_of(key)
    option = key == "" or lookup(key.split(".")) is not None
    as_data = "--json" in command.flags
    if not option and not verbs:
        return _explain_word(command, key, composed_run)
    if as_data:
        data = {key: {"verbs": {verb: asdict(verb_keys.KEYS[verb][key]) for verb in verbs}}} if verbs else {}
        return as_json(data | (explain_data(key, composed_run) if option else {}))
    text = "".join(f"{line}\n" for line in verb_keys.explained(key)) if verbs else ""
    if option:
        text += explain(key, composed_run)
    elif matches := search(key):
        text += f"\n{matches.text()}"
    if not key:
        return text + _KEYS
    if summary_figures.explain(f"{summary_figures.ROOT}.{key}") is not None:
        text += f"figures  `explain {summary_figures.ROOT}.{key}` explains those of summary.json with this name\n"
    return text


def _explain_word(command: Command, word: str, composed_run: Composed | None) -> str:
    """Explain a word that is neither an option nor a key: a part of a name, a term, or a slip.

    Raises:
        ConfigError: nothing has a similar name.
    """
    from dlio_torch.analysis import summary_figures
    from dlio_torch.commands.word_search import search, similar_word
    from dlio_torch.config.explanation import explain, explain_data

    keys = [name for several in verb_keys.KEYS.values() for name in several]
    matches = search(word)
    if not matches and (similar := similar_word(word, keys)):
        print(f"explain {word}: no such name; the most similar one is {similar}", file=sys.stderr)
        word, matches = similar, search(similar)
    as_data = "--json" in command.flags
    if "." in word and summary_figures.find(word) is not None:
        return _explain_figure(command, f"{summary_figures.ROOT}.{word}")
    if len(matches) == 1 and matches.figures:
        return _explain_figure(command, f"{summary_figures.ROOT}.{matches.figures[0].name}")
    if len(matches) == 1 and matches.options:
        key = matches.options[0].key
        return as_json(explain_data(key, composed_run)) if as_data else explain(key, composed_run)
    if matches:
        return as_json(matches.data()) if as_data else matches.text()
    close = nearest(word, keys, cutoff=verb_keys.ALIKE)
    if close and "." not in word:
        raise ConfigError(f"explain {word}: no such key", hint=f"did you mean {close[0]}?")
    return explain(word)  # raises, and names the nearest option


def _explain_figure(command: Command, key: str) -> str:
    from dlio_torch.analysis import summary_figures

    text = summary_figures.explain(key)
    if text is None:
        close = nearest(
            key,
            [f"{summary_figures.ROOT}.{figure.name}" for figure in summary_figures.figures()],
            cutoff=verb_keys.ALIKE,
        )
        hint = f"did you mean {close[0]}?" if close else f"`explain {summary_figures.ROOT}` lists them"
        raise ConfigError(f"explain {key}: no such figure of summary.json", hint=hint)
    if "--json" in command.flags:
        below = key.removeprefix(summary_figures.ROOT).lstrip(".")
        return as_json(
            {"figures": [asdict(figure) for figure in summary_figures.figures() if figure.name.startswith(below)]}
        )
    return text


def _show(command: Command, launch: Launch) -> str:
    from dlio_torch.config.explanation import show, show_data

    composed_run = composed(command, launch)
    return as_json(show_data(composed_run)) if "--json" in command.flags else show(composed_run)
