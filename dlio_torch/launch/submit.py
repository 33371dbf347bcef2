"""Handing a script to the scheduler."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

from dlio_torch.errors import PreconditionError, RunFailed
from dlio_torch.launch.job_request import COMMANDS


def by_hand(scheduler: str, script: Path) -> str:
    """The command that submits a script."""
    return shlex.join([COMMANDS[scheduler], str(script)])


def submit(scheduler: str, script: Path) -> str:
    """Submit a script; what the scheduler says, which names the job.

    Raises:
        PreconditionError: its program is not here.
        RunFailed: it refused the script.
    """
    program = shutil.which(COMMANDS[scheduler])
    hint = f"the script is written; submit it with: {by_hand(scheduler, script)}"
    if program is None:
        raise PreconditionError(f"--submit (command line): {COMMANDS[scheduler]} is not installed here", hint=hint)
    try:
        done = subprocess.run([program, str(script)], capture_output=True, text=True, errors="replace", check=False)
    except OSError as error:
        raise RunFailed(f"{program} cannot be started: {error.strerror}", hint=hint) from None
    if done.returncode:
        said = (done.stderr.strip() or done.stdout.strip() or f"exit code {done.returncode}").splitlines()
        raise RunFailed(f"{COMMANDS[scheduler]} refused it: {' '.join(said)}", hint=hint)
    return done.stdout.strip()
