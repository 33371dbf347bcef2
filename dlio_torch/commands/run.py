"""The verbs run, generate and train."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from dlio_torch.commands.command_line import Command, parse
from dlio_torch.commands.common import composed
from dlio_torch.dist.launcher import Launch
from dlio_torch.errors import ConfigError, DlioError, PreconditionError
from dlio_torch.native import NativeUnavailable

if TYPE_CHECKING:
    from dlio_torch.config.compose import Composed

_RESTART_MARK = "DLIO_TORCH_REEXECUTED"


def main(command: Command, launch: Launch) -> int:
    """Run the phases, or print their plan with ``--dry-run``; returns the exit code."""
    phases = ("generate", "train") if command.verb == "run" else (command.verb,)
    try:
        composed_run = _checked(command, launch, phases)
    except DlioError as error:
        if launch.world_size > 1 and "--dry-run" not in command.flags:
            from dlio_torch.dist.failure.abort import abort_start

            abort_start(error, command.settings, launch)
        raise
    if "--dry-run" in command.flags:
        from dlio_torch.preflight.dry_run import dry_run

        return dry_run(composed_run, phases)
    if composed_run.config.trace.posix and "train" in phases:
        wait_for_recording(command)
    if composed_run.config.loader.replay == "reads" and "train" in phases:
        _wait_for_memory(command)
    from dlio_torch.execution.pipeline import run

    return run(composed_run, phases=phases)


def _checked(command: Command, launch: Launch, phases: Sequence[str]) -> Composed:
    """Composes the configuration, and checks it as far as possible without torch and without writing a file."""
    composed_run = replace(composed(command, launch), detail=command.detail)
    if "train" in phases and composed_run.config.dataset.path is None:
        from dlio_torch.config.validate import check_world

        # Existing data are counted later.
        world_size = 1 if composed_run.config.dist.backend == "single" else launch.world_size
        check_world(composed_run.config, world_size, sources=composed_run.sources)
    if "train" in phases and composed_run.config.output.dir is not None and launch.world_size == 1:
        # With several ranks, the first one makes the folder and reports a failure to all.
        from dlio_torch.run_directory.kept_results import check_run_folder

        line = check_run_folder(composed_run.config, composed_run.sources["output.dir"])
        if line and "--dry-run" in command.flags:
            print(line)
    if launch.rank == 0 and command.detail != "quiet":
        for note in composed_run.adjusted:
            print(f"adjusted: {note}", file=sys.stderr)
    return composed_run


def wait_for_recording(command: Command) -> None:
    """Restart this process with the library that records I/O calls, unless that library is loaded already."""
    from dlio_torch.iotrace.recorder.self_recording import is_waiting, waiting_environment

    if not is_waiting():
        _restart(
            command,
            waiting_environment,
            "trace.posix=true: I/O calls cannot be recorded",
            "install a C compiler (gcc), or set trace.posix=false and start the run under: python -m dlio_torch "
            "trace --method strace --",
        )


def _wait_for_memory(command: Command) -> None:
    """Restart this process with the library that answers read calls from memory, unless it is loaded already."""
    from dlio_torch.data.engines.replay_reads import is_waiting, waiting_environment

    if not is_waiting():
        _restart(
            command,
            waiting_environment,
            "loader.replay=reads: read calls cannot be answered from memory",
            "install a C compiler (gcc), or set loader.replay=none",
        )


def _restart(command: Command, variables: Callable[[], dict[str, str]], problem: str, remedy: str) -> None:
    """Replace this process by the same command with further environment variables."""
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
            f"{problem}: the library that intercepts calls must be loaded when the process starts",
            hint="start the run with python -m dlio_torch",
        )
    # The process number stays the same: if the dynamic linker ignores the library, one restart is enough.
    mark = f"{os.getpid()} {environment['LD_PRELOAD']}"
    if os.environ.get(_RESTART_MARK) == mark:
        raise PreconditionError(
            f"{problem}: the dynamic linker (ld.so) ignores {environment['LD_PRELOAD']}", hint=remedy
        )
    environment[_RESTART_MARK] = mark
    sys.stdout.flush()
    os.execve(sys.executable, [sys.executable, *sys.orig_argv[1:]], environment)
