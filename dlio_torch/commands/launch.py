"""The verb launch: writes a job script for Slurm or PBS and, with ``--submit``, submits it."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import composed, holds_study
from dlio_torch.config import resources
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError
from dlio_torch.launch import script
from dlio_torch.launch.job_content import launch_of, of_checkpoints, of_run, of_study
from dlio_torch.launch.job_request import parse
from dlio_torch.launch.submit import by_hand, submit


def main(command: Command, launch: Launch) -> int:
    """Write the script, or with ``--dry-run`` print it; returns the exit code.

    Raises:
        DlioError: a mistake in the keys of the job or in what it runs, the script cannot be written, or the
            scheduler is not here or refuses it.
    """
    if launch.world_size > 1:
        raise ConfigError(
            f"launch (command line): a launcher started this command as {launch.world_size} ranks, and launch "
            "needs a single process",
            hint="start the command without a launcher",
        )
    if {"--dry-run", "--submit"} <= command.flags:
        raise ConfigError(
            "--submit (command line): --dry-run writes no job script, so there is none to submit",
            hint="remove --submit or --dry-run",
        )
    job_request = parse(command.words, command.settings)
    flags = tuple(flag for flag in ("--remove-data",) if flag in command.flags)
    if flags and job_request.verb != "sweep":
        raise ConfigError(
            f"{flags[0]} (command line): the verb {job_request.verb} does not have this flag",
            hint=f"use {flags[0]} with launch sweep, or remove the flag",
        )
    if job_request.is_study:
        job_content, first = of_study(job_request)
        holds_study(None if job_content.result is None else str(job_content.result), first)
    elif job_request.verb == "checkpoint":
        job_request, job_content = of_checkpoints(job_request)
    else:
        job = Command(job_request.verb, settings=job_request.arguments)
        job_content = of_run(job_request, composed(job, launch_of(job_request)))
    paths = script.paths_of(job_request, job_content)
    text = script.render(job_request, job_content, paths, resources.find(Path.cwd(), os.environ), flags)
    for note in job_content.notes:
        print(f"note: {note}", file=sys.stderr)
    if "--dry-run" in command.flags:
        print(text, end="")
        return 0
    script.write(text, paths.script, force="--force" in command.flags)
    print(f"script: {paths.script}")
    if job_request.verb != "generate":
        print(f"results: {paths.result}")
    print(f"log: {paths.log}", flush=True)
    if "--submit" in command.flags:
        print(f"submitted: {submit(job_request.scheduler, paths.script)}")
    else:
        print(f"submit the job with: {by_hand(job_request.scheduler, paths.script)}")
    return 0
