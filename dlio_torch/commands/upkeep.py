"""The verbs doctor, which checks the machine, and clean, which removes files of a recipe."""

from __future__ import annotations

import sys

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import composed
from dlio_torch.dist.launcher import Launch


def main(command: Command, launch: Launch) -> int:
    """Run the verb; returns the exit code."""
    if command.verb == "doctor":
        from dlio_torch.doctor import doctor

        run = composed(command, launch) if command.settings else None
        return doctor(run, json="--json" in command.flags, quiet="--quiet" in command.flags)
    from dlio_torch.clean import clean

    composed_run = composed(command, launch)
    if launch.rank != 0:
        return 0
    asks = sys.stdin is not None and sys.stdin.isatty()
    clean(composed_run.config, yes="--yes" in command.flags, say=print, confirm=_confirm if asks else None)
    return 0


def _confirm(question: str) -> bool:
    try:
        return input(question).strip().lower() in ("y", "yes")
    except EOFError:
        return False
