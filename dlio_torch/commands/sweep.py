"""The verb sweep: many runs, one for each combination of values.

What is wrong with the arguments is found here, before anything heavy is imported, printed or written; the runs are
made by :mod:`dlio_torch.commands.sweep_run`.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from dlio_torch.commands.arguments import Command
from dlio_torch.commands.common import goes_on, refuse_launcher
from dlio_torch.dist.launcher import Launch
from dlio_torch.sweep import resolve, study
from dlio_torch.sweep.scaled import scale_lines


def main(command: Command, launch: Launch) -> int:
    """Run a study, or what is left of it; returns the exit code.

    Raises:
        DlioError: a mistake anywhere in it, too little room, or no point gave a figure.
    """
    refuse_launcher(command, launch)
    given = command.value("--resume")
    if given is not None:
        from dlio_torch.commands.sweep_run import resume

        return resume(command, Path(given), None)
    asked, output = study.parse(command.settings)
    resolved, notes = resolve.resolve(asked)
    asked = replace(asked, scaled=scale_lines(resolved))
    there = goes_on(output, resolved[0].composed)

    from dlio_torch.commands.sweep_run import begin, resume

    if there and output is not None:
        return resume(command, Path(output), asked)
    return begin(command, asked, output, resolved, notes)
