"""Measurement of all limits of this machine for a recipe: each alone, and those of the data path at the same time.

A process of its own measures, so that no page cache, thread or GPU context of the caller takes part; nothing of it
stays.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from typing import IO, Any

from dlio_torch.config.schema import Config
from dlio_torch.dist.launcher import without_launcher
from dlio_torch.errors import PreconditionError, RunFailed
from dlio_torch.node.limits.measurement_request import MeasurementRequest
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.supervision.run_process import ending_with_this, environment, kill_family

Note = Callable[[str], None]
"""Takes one line of progress."""

_SILENCE_S = 900.0  # longest wait for the next message
_END_S = 10.0


def measure_limits(
    config: Config, *, folder: Path, seconds: float, note: Note, accelerators: int | None = None
) -> list[NodeLimit]:
    """Measure each limit alone.

    Args:
        config: the resolved experiment; its data set exists.
        folder: an existing folder on the storage of the data, which can be written.
        seconds: length of each measurement.
        note: takes one line before each measurement.
        accelerators: emulated accelerators of this node; ``None``: the visible GPUs, or one where there is none.

    Raises:
        DlioError: the data are missing or do not fit the options, or the process that measures was killed.
    """
    return _limits(MeasurementRequest(config, folder, seconds, accelerators, joint=False), note)


def measure_together(
    config: Config, *, folder: Path, seconds: float, note: Note, accelerators: int | None = None
) -> list[NodeLimit]:
    """Measure the limits of the data path while all of its resources are in use; see :func:`measure_limits`."""
    note("limits of the data path at the same time")
    return _limits(MeasurementRequest(config, folder, seconds, accelerators, joint=True), note)


def _limits(request: MeasurementRequest, note: Note) -> list[NodeLimit]:
    limits: list[NodeLimit] = []
    with tempfile.TemporaryFile() as log, _started(log) as (connection, process):
        connection.send(request)
        while True:
            kind, value = _message(connection, process, log)
            if kind == "note":
                note(value)
            elif kind == "limit":
                limits.append(value)
            elif kind == "error":
                raise value
            else:
                return limits


@contextlib.contextmanager
def _started(log: IO[bytes]) -> Iterator[tuple[Connection, subprocess.Popen[bytes]]]:
    """Start the process that measures; end it, and all that it started, at the end."""
    connection, other = Pipe()
    with connection, other:
        command = [sys.executable, "-m", "dlio_torch.node.limits.measuring_process", str(other.fileno())]
        try:
            process = subprocess.Popen(
                ending_with_this(command), stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT,
                env=without_launcher(environment()), pass_fds=[other.fileno()], start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise PreconditionError(f"the process that measures limits cannot be started: {error}") from error
        other.close()
        try:
            yield connection, process
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(_END_S)
        finally:
            kill_family(process.pid)
            process.wait()


def _message(connection: Connection, process: subprocess.Popen[bytes], log: IO[bytes]) -> tuple[str, Any]:
    try:
        if connection.poll(_SILENCE_S):
            message: tuple[str, Any] = connection.recv()
            return message
    except (EOFError, OSError):
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(_END_S)  # it prints why after it has closed the connection
        log.seek(0)
        lines = log.read().decode("utf-8", "replace").split("\n")
        last = next((line.strip() for line in reversed(lines) if line.strip()), "it printed no message")
        raise RunFailed(f"the process that measures limits has ended: {last}") from None
    raise RunFailed("the process that measures limits sends no results", hint="check the storage of the data")
