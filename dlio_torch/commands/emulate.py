"""The verbs run, generate and train."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_torch.commands.arguments import Command, parse
from dlio_torch.commands.common import composed
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, DlioError, PreconditionError
from dlio_torch.native import NativeUnavailable
from dlio_torch.rundir import require_claimable

if TYPE_CHECKING:
    from dlio_torch.config.compose import Composed

_BEGUN_ANEW = "DLIO_TORCH_BEGUN_ANEW"


def main(command: Command, launch: Launch) -> int:
    """Do the phases, or with ``--dry-run`` say what they would do; returns the exit code."""
    phases = ("generate", "train") if command.verb == "run" else (command.verb,)
    try:
        found = _checked(command, launch, phases)
    except DlioError as error:
        if launch.world_size > 1 and "--dry-run" not in command.flags:
            from dlio_torch.dist.refusal import refuse

            refuse(error, command.settings, launch)
        raise
    if "--dry-run" in command.flags:
        from dlio_torch.plan import dry_run

        return dry_run(found, phases)
    if found.config.trace.posix and "train" in phases:
        _wait_for_recording(command)
    if found.config.loader.replay == "reads" and "train" in phases:
        _wait_for_memory(command)
    from dlio_torch.run import run

    return run(found, phases=phases)


def _checked(command: Command, launch: Launch, phases: Sequence[str]) -> Composed:
    """The configuration, as far as it can be checked before torch is imported and anything is written."""
    found = composed(command, launch)
    if "train" in phases and found.config.dataset.path is None:
        from dlio_torch.config.validate import check_world

        # Existing data are counted later.
        world_size = 1 if found.config.dist.backend == "single" else launch.world_size
        check_world(found.config, world_size, sources=found.sources)
    if "train" in phases and found.config.output.dir is not None and launch.world_size == 1:
        # Several ranks hear of it from the first one, which makes the folder.
        require_claimable(Path(found.config.output.dir), "output.dir", found.sources["output.dir"])
    if launch.rank == 0:
        for note in found.adjusted:
            print(f"adjusted: {note}", file=sys.stderr)
    return found


def _wait_for_recording(command: Command) -> None:
    """Begin this process anew with the library that records its calls, unless it is there already."""
    from dlio_torch.trace.posix.within import is_waiting, waiting_environment

    if not is_waiting():
        _begin_anew(
            command,
            waiting_environment,
            "trace.posix=true: calls cannot be recorded",
            "install a C compiler (gcc), or run it under: python -m dlio_torch trace --method strace --",
        )


def _wait_for_memory(command: Command) -> None:
    """Begin this process anew with the library that answers its reads, unless it is there already."""
    from dlio_torch.data.engines.replay_reads import is_waiting, waiting_environment

    if not is_waiting():
        _begin_anew(
            command,
            waiting_environment,
            "loader.replay=reads: calls cannot be answered from memory",
            "install a C compiler (gcc), or set loader.replay=none",
        )


def _begin_anew(command: Command, variables: Callable[[], dict[str, str]], problem: str, remedy: str) -> None:
    """Begin this process anew with further variables of the environment."""
    try:
        environment = {**os.environ, **variables()}
    except NativeUnavailable as error:
        raise PreconditionError(f"{problem}: {error}", hint=remedy) from error
    try:
        is_main = parse(sys.argv[1:]) == command
    except ConfigError:
        is_main = False
    if not is_main:  # called by another program, which must not be replaced
        raise PreconditionError(
            f"{problem}: the library must be there when the process starts", hint="run python -m dlio_torch"
        )
    # The same process, before and after: where the loader ignores the library, once is enough.
    mark = f"{os.getpid()} {environment['LD_PRELOAD']}"
    if os.environ.get(_BEGUN_ANEW) == mark:
        raise PreconditionError(f"{problem}: the loader ignores {environment['LD_PRELOAD']}", hint=remedy)
    environment[_BEGUN_ANEW] = mark
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
