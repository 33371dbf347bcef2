"""The verbs doctor, which checks the machine, and clean, which removes files of a recipe."""

from __future__ import annotations

import sys
from pathlib import Path

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import composed
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, PreconditionError


def main(command: Command, launch: Launch) -> int:
    """Run the verb; returns the exit code."""
    if command.verb == "doctor":
        from dlio_torch.doctor import doctor

        run = composed(command, launch) if command.settings else None
        return doctor(run, json="--json" in command.flags, quiet="--quiet" in command.flags)
    from dlio_torch.clean.named_folders import clean_named
    from dlio_torch.clean.recipe_files import clean

    if command.words and command.settings:
        raise ConfigError(
            f"clean {' '.join((*command.words, *command.settings))} (command line): clean removes either the named "
            "folders or the files of a recipe",
            hint=f"write clean {' '.join(command.words)}, or clean {' '.join(command.settings)}",
        )
    config = None if command.words else composed(command, launch).config
    if launch.rank != 0:
        return 0
    yes = "--yes" in command.flags
    confirm = _confirm if sys.stdin is not None and sys.stdin.isatty() else None
    if config is None:
        paths = [Path(word).expanduser() for word in command.words]
        return 0 if clean_named(paths, yes=yes, say=print, confirm=confirm) else PreconditionError.exit_code
    clean(config, yes=yes, say=print, confirm=confirm)
    return 0


def _confirm(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False
