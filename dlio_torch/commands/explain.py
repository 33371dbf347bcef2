"""The verbs ls, explain and show: they list recipes and options, explain options, and print a configuration."""

from __future__ import annotations

from dataclasses import asdict

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import as_json, composed
from dlio_torch.config.fields import lookup, nearest
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError
from dlio_torch.study import verb_keys

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
    from dlio_torch.analysis import summary_figures
    from dlio_torch.config.explanation import explain, explain_data

    composed_run = composed(command, launch) if command.settings else None
    key = command.words[0] if command.words else ""
    if key.partition(".")[0] == summary_figures.ROOT:
        return _explain_figure(command, key)
    verbs = verb_keys.verbs_of(key)
    option = key == "" or lookup(key.split(".")) is not None
    close = nearest(key, [name for several in verb_keys.KEYS.values() for name in several], cutoff=verb_keys.ALIKE)
    if not option and not verbs and close and "." not in key:
        raise ConfigError(f"explain {key}: no such key", hint=f"did you mean {close[0]}?")
    if "--json" in command.flags:
        data = {key: {"verbs": {verb: asdict(verb_keys.KEYS[verb][key]) for verb in verbs}}} if verbs else {}
        return as_json(data | (explain_data(key, composed_run) if option or not verbs else {}))
    text = "".join(f"{line}\n" for line in verb_keys.explained(key)) if verbs else ""
    if option or not verbs:
        text += explain(key, composed_run)
    return text if key else text + _KEYS


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
