"""The verb import-dlio: converts a workload file of DLIO or MLPerf Storage to a recipe."""

from __future__ import annotations

import contextlib
import os
import sys
from pathlib import Path

from dlio_torch.commands.command_line import Command
from dlio_torch.config import resources
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError
from dlio_torch.interop.dlio import convert
from dlio_torch.interop.dlio.files import read_workload, write_recipe
from dlio_torch.units import counted


def main(command: Command, launch: Launch) -> int:
    """Print or write the recipe, and print to stderr the keys that it could not honour; returns the exit code."""
    if len(command.words) != 1:
        given = " ".join(command.words) or "no file"
        raise ConfigError(
            f"import-dlio: {given} (command line): exactly one workload file is needed",
            hint="name one workload file: import-dlio FILE.yaml",
        )
    (name,), output = command.words, command.value("--output")
    ranks = command.value("--ranks") or "0"
    if not (ranks.isascii() and ranks.isdecimal() and len(ranks) < 8) or (
        "--ranks" in command.flags and not int(ranks)
    ):
        raise ConfigError(
            f"--ranks {ranks} (command line): the value is not a number of ranks (1 or more)",
            hint="write a number, for example --ranks 8",
        )
    places = resources.find(Path.cwd(), os.environ)
    converted = convert(read_workload(name), places, strict="--strict" in command.flags, ranks=int(ranks))
    if launch.rank != 0:
        return 0
    if output is not None:
        write_recipe(converted.text, output, name, force="--force" in command.flags)
    else:
        print(converted.text, end="")
        sys.stdout.flush()
    counts = (
        f"{converted.mapped} keys mapped, {len(converted.not_honoured)} not honoured, {len(converted.unknown)} unknown"
    )
    lines = [f"dlio_torch: {name}: {counts}", *(f"  {line}" for line in converted.report())]
    if converted.words:
        ranks = counted(converted.ranks, "rank")
        lines.append(f"dlio_torch: run the recipe on {ranks} with: {converted.command(output or 'FILE.yaml')}")
    with contextlib.suppress(OSError, ValueError):
        sys.stderr.write("".join(f"{line}\n" for line in lines))
    return 0
