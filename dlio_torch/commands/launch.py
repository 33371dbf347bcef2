"""The verb launch: a job script for Slurm or PBS, written and, where that is asked for, submitted."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dlio_torch.commands.arguments import Command
from dlio_torch.commands.common import composed, goes_on
from dlio_torch.config import resources
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError
from dlio_torch.jobs import content, request, script
from dlio_torch.jobs.submit import by_hand, submit


def main(command: Command, launch: Launch) -> int:
    """Write the script, or with ``--dry-run`` print it; returns the exit code.

    Raises:
        DlioError: a mistake in the keys of the job or in what it runs, the script cannot be written, or the
            scheduler is not here or refuses it.
    """
    if launch.world_size > 1:
        raise ConfigError(
            f"launch (command line): started as one of {launch.world_size} ranks", hint="start it without a launcher"
        )
    if {"--dry-run", "--submit"} <= command.flags:
        raise ConfigError("--submit (command line): --dry-run writes nothing that could be submitted", hint="keep one")
    asked = request.parse(command.words, command.settings)
    flags = tuple(flag for flag in ("--remove-data",) if flag in command.flags)
    if flags and asked.verb != "sweep":
        raise ConfigError(f"{flags[0]} (command line): not a flag of {asked.verb}", hint="use it with launch sweep")
    if asked.is_study:
        found, first = content.of_study(asked)
        goes_on(None if found.result is None else str(found.result), first)
    else:
        job = Command(asked.verb, settings=asked.arguments)
        found = content.of_run(asked, composed(job, content.launch_of(asked)))
    where = script.place(asked, found)
    text = script.render(asked, found, where, resources.find(Path.cwd(), os.environ), flags)
    for note in found.notes:
        print(f"note: {note}", file=sys.stderr)
    if "--dry-run" in command.flags:
        print(text, end="")
        return 0
    script.write(text, where.script)
    print(f"script: {where.script}")
    if asked.verb != "generate":
        print(f"results: {where.result}")
    print(f"log: {where.log}", flush=True)
    if "--submit" in command.flags:
        print(f"submitted: {submit(asked.scheduler, where.script)}")
    else:
        print(f"submit it with: {by_hand(asked.scheduler, where.script)}")
    return 0
