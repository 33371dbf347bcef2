"""The verb headspace: what each cost of the loader could gain at the most.

What is wrong with the arguments is found here, before anything heavy is imported, printed or written; the runs are
made by :mod:`dlio_torch.commands.headspace_run`.
"""

from __future__ import annotations

from pathlib import Path

from dlio_torch.commands.arguments import Command
from dlio_torch.commands.common import goes_on, refuse_launcher
from dlio_torch.dist.launcher import Launch
from dlio_torch.sweep.resolve import resolve_point
from dlio_torch.sweep.study import Point, parse


def main(command: Command, launch: Launch) -> int:
    """Run the ladder, or what is left of it; returns the exit code.

    Raises:
        DlioError: a mistake in the arguments, too little room, or the configuration itself does not run.
    """
    refuse_launcher(command, launch)
    resumed = command.value("--resume")
    if resumed is not None:
        from dlio_torch.commands.headspace_run import resume

        return resume(command, Path(resumed), None)
    asked, output = parse(command.settings, verb="headspace")
    there = False
    if not asked.axes:  # which are refused with the rest of the plan
        found = resolve_point(Point(1, (), asked.settings, asked.ranks))
        there = goes_on(output, found.composed)

    from dlio_torch.commands.headspace_run import begin, resume

    if there and output is not None:
        return resume(command, Path(output), asked)
    return begin(command, asked, output)
