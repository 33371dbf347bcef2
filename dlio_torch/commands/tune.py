"""The verb tune: searches for better settings, and confirms their gain.

Mistakes in the arguments are found before anything heavy is imported, printed or written.
"""

from __future__ import annotations

from pathlib import Path

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import holds_study, refuse_launcher
from dlio_torch.dist.launcher import Launch
from dlio_torch.study.strategies.search.search_request import check_objective, parse_request
from dlio_torch.study.strategies.search.search_space import given_points


def main(command: Command, launch: Launch) -> int:
    """Run a new search, or resume one; returns the exit code.

    Raises:
        DlioError: a mistake in the arguments, too little space, every run failed, or a requested utilisation is not
            reached.
    """
    refuse_launcher(command, launch)
    resumed = command.value("--resume")
    if resumed is not None:
        from dlio_torch.study.session import resume
        from dlio_torch.study.strategies.search.search import stored_search

        return resume(Path(resumed), lambda store: stored_search(store, changes=command.settings), command.flags)
    request = parse_request(command.settings)
    given = given_points(request)
    check_objective(request, given.default.composed.config)
    exists = holds_study(request.output, given.default.composed)

    from dlio_torch.study.session import begin, resume
    from dlio_torch.study.strategies.search.search import prepare_search, stored_search

    if exists and request.output is not None:
        return resume(Path(request.output), lambda store: stored_search(store, command.settings), command.flags)
    return begin(prepare_search(request, given), request.output, command.flags)
