"""Outcome of a rank's run: written to the run directory, and sent to the other ranks if the run fails."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import NoReturn

from dlio_torch.dist.base import Communicator
from dlio_torch.dist.launcher import tell_torchrun
from dlio_torch.errors import DlioError, RunFailed
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.results_folder import name_run_directory
from dlio_torch.supervision.process_exit import ERROR_PREFIX, end_children, exit_now, run_bounded
from dlio_torch.syserrors import say

_HOOK_S = 1.0
_INTERRUPTED = 130


class RunOutcome:
    """Records how the run of one rank ends.

    Args:
        comm: the ranks.
    """

    def __init__(self, comm: Communicator) -> None:
        self._comm = comm
        self._path: Path | None = None

    def write_to(self, path: Path) -> None:
        """Write the outcome to this file of the run directory, which exists."""
        self._path = path
        # If another rank fails, rank 0 writes that down, and so does rank 1 in case rank 0 is the one that failed.
        if self._comm.rank <= 1:
            self._comm.on_failure.append(lambda line, code: run_state.end(path, line, code))

    @property
    def run_directory(self) -> Path | None:
        """The run directory; ``None`` before the directory is made."""
        return None if self._path is None else self._path.parent

    @contextlib.contextmanager
    def failures(self) -> Iterator[None]:
        """Context manager that records an error, sends it to the other ranks, and raises it again."""
        try:
            yield
        except DlioError as error:
            self.fail(str(error), error.exit_code)
            raise
        except KeyboardInterrupt as error:
            self.fail(getattr(error, "word", "interrupted"), getattr(error, "exit_code", _INTERRUPTED))
            if self.run_directory is not None:
                name_run_directory(error, self.run_directory)
            raise
        except BaseException as error:
            self.fail(f"{type(error).__name__}: {error}", 1)
            raise

    def fail(self, message: str, exit_code: int) -> None:
        """Record that this rank failed, and end the other ranks; the last call (see :meth:`Communicator.fail`)."""
        if self._path is not None:
            rank = f"rank {self._comm.rank} failed: " if self._comm.world_size > 1 else ""
            run_state.end(self._path, f"{rank}{message}", exit_code)
        self._comm.fail(message, exit_code)

    def give_up(self, message: str) -> NoReturn:
        """End this process at once; another thread calls this when the main thread is in a call that hangs."""
        code = RunFailed.exit_code
        self.fail(message, code)
        for hook in self._comm.on_failure:
            run_bounded(lambda hook=hook: hook(message, code), _HOOK_S)  # type: ignore[misc]
        rank = f"rank {self._comm.rank}: " if self._comm.world_size > 1 else ""
        say(f"{rank}error: {message}")
        tell_torchrun(f"{ERROR_PREFIX}{message}")
        end_children()
        exit_now(code)

    def ranks_changed(self, line: str) -> None:
        """Record that this set of ranks of an elastic run ends, though none of them failed."""
        if self._path is not None:
            run_state.end(self._path, line)

    def finish(self, exit_code: int) -> None:
        """Record that the run is complete."""
        if self._path is not None and self._comm.rank == 0:
            run_state.end(self._path, exit_code=exit_code, failed=False)
