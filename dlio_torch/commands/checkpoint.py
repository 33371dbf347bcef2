"""The verb checkpoint: saves the checkpoints of a recipe and reads them back, without training."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.run import wait_for_recording
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import DlioError

if TYPE_CHECKING:
    from dlio_torch.preflight.checkpoint_plan import CheckpointPlan


def main(command: Command, launch: Launch) -> int:
    """Save and read back, or print the plan with ``--dry-run``; returns the exit code.

    Raises:
        DlioError: a mistake in the arguments, too little space, or a checkpoint that cannot be written or read.
    """
    is_dry = "--dry-run" in command.flags
    try:
        plan = _planned(command, launch)
    except DlioError as error:
        if launch.world_size > 1 and not is_dry:
            from dlio_torch.dist.failure.abort import abort_start

            abort_start(error, command.settings, launch)
        raise
    if is_dry:
        if launch.rank == 0:
            problems = (f"not possible on this machine: {problem}" for problem in plan.problems())
            print("\n".join([*plan.lines(), *problems]))
        return 0
    if plan.config.trace.posix:
        wait_for_recording(command)
    from dlio_torch.execution.checkpoint_run import run_checkpoints

    return run_checkpoints(plan)


def _planned(command: Command, launch: Launch) -> CheckpointPlan:
    """Composes the configuration, and plans; nothing is written."""
    from dlio_torch.study.checkpoint_arguments import checkpoint_plan

    plan = checkpoint_plan(command.settings, launch.world_size)
    if launch.rank == 0 and command.detail != "quiet":
        for note in plan.composed.adjusted:
            print(f"adjusted: {note}", file=sys.stderr)
    return replace(plan, composed=replace(plan.composed, detail=command.detail))
