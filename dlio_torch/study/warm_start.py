"""Starts trials of a study by forking a server process that has imported the modules of a run.

Imports take most of a short trial: seconds of processor time for milliseconds that are measured.  A server process
(:mod:`dlio_torch.study.warm_server`) imports once and forks a process for each trial.  Session, environment, folder,
output, time limit, interrupts and exit code of the trial are those of a process of its own; imports that it inherits
count as its processor time, so that it can be compared with a run that imports by itself.
"""

from __future__ import annotations

import os
import pickle
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Self

from dlio_torch.config.gpu_options import gpu_options
from dlio_torch.config.schema import Config
from dlio_torch.dist.launcher import detect
from dlio_torch.supervision.run_process import (
    Ended,
    Usage,
    ending_with_this,
    environment,
    kill_family,
    new_log,
    supervise,
)


def needs_fresh_start(config: Config, ranks: int) -> bool:
    """Whether a run must start in a new process, not in a fork of the server.

    Several ranks are started by a launcher, CUDA and MPI do not survive a fork, and a preloaded library acts from
    ``execve`` on.

    Args:
        config: of the run.
        ranks: its processes.
    """
    uses_mpi = config.access.io != "posix" or config.dist.backend not in ("auto", "single")
    preloads = config.trace.posix or config.loader.replay == "reads"
    return ranks > 1 or bool(gpu_options(config)) or uses_mpi or preloads


class WarmStart:
    """Starts trials from a server process, one at a time; :meth:`close`, or the end of ``with``, ends the server.

    The server starts with the first trial.  Another one takes its place when it dies, and for trials in another folder
    or environment.
    """

    def __init__(self) -> None:
        self._server: _Server | None = None
        self._unusable = False

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server after its trial has ended."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def run(self, arguments: Sequence[str], log: Path, *, timeout_s: float, cwd: Path | None = None) -> Ended | None:
        """Run ``python -m dlio_torch arguments`` and wait for its end; its output is written to ``log``.

        Args:
            arguments: of the command line.
            log: file for its output.
            timeout_s: after it the run is ended, with all its children.
            cwd: its folder; None: the current one.

        Returns:
            How the run ended.  ``None``: it cannot start this way, or the server died during the run, of which nothing
            is left but files; the caller starts it by itself.

        Raises:
            PreconditionError: the log cannot be written.
            KeyboardInterrupt: passed on when the run has ended.
        """
        # A preloaded library may record a program up to its usual end, and a launcher watches the processes it started.
        if self._unusable or os.environ.get("LD_PRELOAD") or detect().name != "single":
            return None
        try:
            server = self._ready(cwd or Path.cwd(), timeout_s)
            new_log(log).close()
            start = time.monotonic()
            return supervise(server.start(arguments, log), log, start=start, timeout_s=timeout_s)
        except _ServerLost as lost:
            self._unusable = lost.for_good
            self.close()
            return None

    def _ready(self, cwd: Path, timeout_s: float) -> _Server:
        variables = environment()
        if self._server is not None and self._server.serves != (cwd, variables):
            self.close()
        if self._server is None:
            self._server = _Server(cwd, variables)
        self._server.wait_until_ready(timeout_s)
        return self._server


class _ServerLost(Exception):
    """Error: the server cannot be used any more.

    Args:
        for_good: another one would not be usable either.
    """

    def __init__(self, *, for_good: bool = False) -> None:
        super().__init__(for_good)
        self.for_good = for_good


class _Server:
    """The server process.

    Args:
        cwd: its folder and that of its trials.
        variables: their environment.
    """

    def __init__(self, cwd: Path, variables: Mapping[str, str]) -> None:
        self.serves = cwd, variables
        self._was_ready = False
        self._connection, other = Pipe()
        try:
            self._process = subprocess.Popen(
                ending_with_this([sys.executable, "-m", "dlio_torch.study.warm_server", str(other.fileno())]),
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                cwd=cwd,
                env=variables,
                start_new_session=True,
            )
        except OSError:
            self._connection.close()
            raise _ServerLost(for_good=True) from None
        finally:
            other.close()

    def close(self) -> None:
        self._connection.close()
        self._process.kill()
        self._process.wait()

    def wait_until_ready(self, seconds: float) -> None:
        """Wait until the server has finished its imports."""
        try:
            _, reason = receive(self._connection, seconds) or ("ready", "the server did not finish its imports in time")
        except _ServerLost:
            raise _ServerLost(for_good=not self._was_ready) from None
        if reason:
            raise _ServerLost(for_good=True)
        self._was_ready = True

    def start(self, arguments: Sequence[str], log: Path) -> _Trial:
        try:
            self._connection.send((list(arguments), str(log.absolute())))
        except OSError:
            raise _ServerLost from None
        answer = receive(self._connection, None)
        assert answer is not None
        return _Trial(answer[1], self._connection)


class _Trial:
    """A run that the server has forked, a :class:`~dlio_torch.supervision.run_process.RunProcess`."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid = pid
        self._connection = connection
        self._usage: Usage | None = None

    def wait(self, seconds: float) -> Usage | None:
        if self._usage is None:
            try:
                answer = receive(self._connection, max(0.0, seconds))
            except _ServerLost:
                kill_family(self.pid)
                raise
            if answer is not None:
                self._usage = Usage.of(*answer[1:])
        return self._usage


def receive(connection: Connection, seconds: float | None) -> tuple[Any, ...] | None:
    """Returns the next message of the server; ``None`` if no message comes in time."""
    try:
        if not connection.poll(seconds):
            return None
        message: tuple[Any, ...] = connection.recv()
    except (EOFError, OSError, pickle.UnpicklingError):
        raise _ServerLost from None
    return message
