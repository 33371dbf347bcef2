"""Ends a rank early: the reason is written down in the run directory, and the other ranks are told."""

from __future__ import annotations

from pathlib import Path
from typing import NoReturn

from dlio_torch import runstate
from dlio_torch.dist import leave
from dlio_torch.dist.base import Communicator
from dlio_torch.dist.launcher import tell_torchrun
from dlio_torch.errors import RunFailed
from dlio_torch.syserrors import say

_HOOK_S = 1.0


class Ending:
    """How a rank's run ends, and where that is written down.

    Args:
        comm: the ranks.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._path: Path | None = None

    def write_to(self, path: Path) -> None:
        """Write the end to this file from now on; it is there."""
        self._path = path
        # Of the ranks that another one's failure ends, rank 0 writes it down, and rank 1 in case it is rank 0's.
        if self._comm.rank <= 1:
            self._comm.on_failure.append(lambda line, code: runstate.end(path, line, code))

    @property
    def record(self) -> Path | None:
        """The run directory; ``None`` where there is none yet."""
        return None if self._path is None else self._path.parent

    def fail(self, message: str, exit_code: int) -> None:
        """End the run early because of this rank; to be called last (see :meth:`Communicator.fail`)."""
        if self._path is not None:
            who = f"rank {self._comm.rank} failed: " if self._comm.world_size > 1 else ""
            runstate.end(self._path, f"{who}{message}", exit_code)
        self._comm.fail(message, exit_code)

    def give_up(self, message: str) -> NoReturn:
        """End this process now: its main thread is in a call that does not return.  Called by another thread."""
        code = RunFailed.exit_code
        self.fail(message, code)
        for hook in self._comm.on_failure:
            leave.bounded(lambda hook=hook: hook(message, code), _HOOK_S)  # type: ignore[misc]
        rank = f"rank {self._comm.rank}: " if self._comm.world_size > 1 else ""
        say(f"{rank}error: {message}")
        tell_torchrun(f"{leave.ERROR}{message}")
        leave.end_children()
        leave.leave(code)

    def changed(self, line: str) -> None:
        """The end of one set of ranks, for reasons that are none of theirs (see :mod:`dlio_torch.run.elastic`)."""
        if self._path is not None:
            runstate.end(self._path, line)

    def done(self, exit_code: int) -> None:
        """The run has done everything."""
        if self._path is not None and self._comm.rank == 0:
            runstate.end(self._path, exit_code=exit_code, failed=False)
