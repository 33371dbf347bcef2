"""The verb headspace: measures the maximum gain of removing each cost of the loader.

Mistakes in the arguments are found before anything heavy is imported, printed or written.
"""

from __future__ import annotations

from pathlib import Path

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import holds_study, refuse_launcher
from dlio_torch.dist.launcher import Launch
from dlio_torch.study.model import Point
from dlio_torch.study.resolve import resolve_point
from dlio_torch.study.study_arguments import parse


def main(command: Command, launch: Launch) -> int:
    """Run a new headspace study, or resume one; returns the exit code.

    Raises:
        DlioError: a mistake in the arguments, too little space, or the configuration itself does not run.
    """
    refuse_launcher(command, launch)
    resumed = command.value("--resume")
    if resumed is not None:
        from dlio_torch.study.session import resume
        from dlio_torch.study.strategies.ladder.ladder import stored_ladder

        return resume(Path(resumed), lambda store: stored_ladder(store, changes=command.settings), command.flags)
    study, output = parse(command.settings, verb="headspace")
    exists = False
    if not study.axes:  # the plan refuses them
        exists = holds_study(output, resolve_point(Point(1, (), study.settings, study.ranks)).composed)

    from dlio_torch.study.session import begin, resume
    from dlio_torch.study.strategies.ladder.ladder import plan_ladder, stored_ladder

    if exists and output is not None:
        return resume(Path(output), lambda store: stored_ladder(store, study), command.flags)
    return begin(plan_ladder(study), output, command.flags)
