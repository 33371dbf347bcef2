"""The verb sweep: starts a run for each combination of option values.

Mistakes in the arguments are found before anything heavy is imported, printed or written.
"""

from __future__ import annotations

from pathlib import Path

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import holds_study, refuse_launcher
from dlio_torch.dist.launcher import Launch
from dlio_torch.study.resolve import resolve
from dlio_torch.study.study_arguments import changed, parse


def main(command: Command, launch: Launch) -> int:
    """Run a new sweep, or resume one; returns the exit code.

    Raises:
        DlioError: a mistake in the study, too little space, or no point gave a figure.
    """
    refuse_launcher(command, launch)
    resumed = command.value("--resume")
    if resumed is not None:
        from dlio_torch.study.session import resume
        from dlio_torch.study.strategies.grid import prepare_grid

        return resume(
            Path(resumed),
            lambda store: prepare_grid(changed(store.study, command.settings), cwd=store.cwd),
            command.flags,
        )
    study, output = parse(command.settings)
    resolved, notes = resolve(study)
    exists = holds_study(output, resolved[0].composed)

    from dlio_torch.study.session import begin, resume
    from dlio_torch.study.strategies.grid import Grid, prepare_grid

    if exists and output is not None:
        return resume(Path(output), lambda store: prepare_grid(study, cwd=store.cwd), command.flags)
    return begin(Grid(study, resolved, notes), output, command.flags)
