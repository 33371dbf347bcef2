"""The verb checkpoint: saves the checkpoints of a recipe and reads them back, without training."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from dlio_torch.commands.command_line import Command
from dlio_torch.commands.common import composed
from dlio_torch.commands.run import wait_for_recording
from dlio_torch.config.arguments import split_argument
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, DlioError
from dlio_torch.study.study_arguments import check_keys
from dlio_torch.study.verb_keys import KEYS

if TYPE_CHECKING:
    from dlio_torch.preflight.checkpoint_plan import CheckpointPlan

_MOST = 100_000
_LAST = "checkpoint.after_last"


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
    from dlio_torch.preflight.checkpoint_plan import plan_checkpoints

    given = dict(map(split_argument, command.settings))
    check_keys(given, command.verb)
    saves, loads = (_count(name, given.get(name, "10"), least) for name, least in (("saves", 1), ("loads", 0)))
    run = composed(replace(command, settings=_options(command)), launch)
    if launch.rank == 0 and command.detail != "quiet":
        for note in run.adjusted:
            print(f"adjusted: {note}", file=sys.stderr)
    world_size = 1 if run.config.dist.backend == "single" else launch.world_size
    return plan_checkpoints(replace(run, detail=command.detail), saves, loads, world_size)


def _options(command: Command) -> tuple[str, ...]:
    """Options of a run among the arguments; a layout needs no interval here, so that one save is requested."""
    options = [text for text in command.settings if split_argument(text)[0] not in KEYS[command.verb]]
    is_given = any(split_argument(text)[0] == _LAST for text in options)
    return (*options, *([] if is_given else [f"{_LAST}=true"]))


def _count(key: str, text: str, least: int) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) < 10 and least <= int(text) <= _MOST):
        reads = "; loads read what the saves have written" if key == "saves" else ""
        raise ConfigError(
            f"{key}={text} (command line): expected a number from {least} to {_MOST}{reads}",
            hint=f"write a number, for example {key}=10",
        )
    return int(text)
