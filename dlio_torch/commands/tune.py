"""The verb tune: search for better settings, and confirm what is found.

What is wrong with the arguments is found here, before anything heavy is imported, printed or written; the search is
made by :mod:`dlio_torch.commands.tune_run`.
"""

from __future__ import annotations

from pathlib import Path

from dlio_torch.commands.arguments import Command
from dlio_torch.commands.common import goes_on, refuse_launcher
from dlio_torch.dist.launcher import Launch
from dlio_torch.sweep.tune.request import check_objective, parse_request
from dlio_torch.sweep.tune.space import given_points


def main(command: Command, launch: Launch) -> int:
    """Search, or go on with a search; returns the exit code.

    Raises:
        DlioError: a mistake in the arguments, too little room, every run failed, or a utilisation that was asked
            for is not reached.
    """
    refuse_launcher(command, launch)
    named = command.value("--resume")
    if named is not None:
        from dlio_torch.commands.tune_run import resume

        return resume(command, Path(named), named=True)
    request = parse_request(command.settings)
    given = given_points(request)
    check_objective(request, given.default.composed.config)
    there = goes_on(request.output, given.default.composed)

    from dlio_torch.commands.tune_run import begin, resume

    if there and request.output is not None:
        return resume(command, Path(request.output), named=False)
    return begin(command, request, given)
