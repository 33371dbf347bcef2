"""The verb trace: records every I/O call of any program."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any, Literal, cast

import psutil

from dlio_torch import __version__
from dlio_torch.commands.command_line import Command
from dlio_torch.dist.launcher import Launch
from dlio_torch.environment.machine import describe
from dlio_torch.errors import ConfigError, DlioError
from dlio_torch.run_directory.kept_results import keep_earlier, kept_line
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.units import parse_size

_LEAST_LIMIT = 65536
_METHODS = ("auto", "preload", "strace")


def main(command: Command, launch: Launch) -> int:
    """Run the program, write its trace folder and print its I/O figures; returns the program's exit code."""
    from dlio_torch.iotrace.recorder.record_program import record
    from dlio_torch.iotrace.recorder.self_recording import patterns

    if command.settings:
        raise ConfigError(
            f"trace: {command.settings[0]!r} (command line): the argument before -- is not a flag",
            hint="write the program after --, for example: trace --output DIR -- python train.py",
        )
    if not command.program:
        raise ConfigError(
            "trace (command line): no program to record is given",
            hint="write the program after --, for example: trace -- python train.py",
        )
    if launch.world_size > 1:
        raise ConfigError(
            f"trace (command line): a launcher started this command as {launch.world_size} ranks, and trace "
            "needs a single process",
            hint="start the launcher under trace: trace -- torchrun ...",
        )
    method = command.value("--method") or "auto"
    if method not in _METHODS:
        raise ConfigError(
            f"--method {method} (command line): no such recording method",
            hint=f"choose a method of {', '.join(_METHODS)}",
        )
    options: dict[str, Any] = {}
    limit = command.value("--limit")
    if limit is not None:
        options["limit_bytes"] = _size(limit)
    directory = _folder(command.value("--output"))
    directory.write_json(
        directory.environment,
        {**describe({"runs": directory.path, "cwd": Path.cwd()}), "dlio_torch": __version__},
    )
    # Told before the program starts: a recording that is killed keeps what it was of.
    about = {"command": list(command.program), "cwd": os.getcwd(), "started_time_ns": time.time_ns(), **_process()}
    directory.write_json(directory.command, about)
    recorded = record(
        list(command.program),
        directory.events,
        include=patterns(command.all_values("--include")),
        exclude=patterns(command.all_values("--exclude")),
        method=cast(Literal["auto", "preload", "strace"], method),
        calls_only="--calls-only" in command.flags,
        **options,
    )
    failed: list[DlioError] = []
    with _keeping(failed):
        directory.write_json(directory.command, {**about, **asdict(recorded)})
    _say(directory, failed)
    if failed:
        first = failed[0]
        raise type(first)(
            f"{first.message}; the program ended with {recorded.exit_code}, its figures are printed above",
            hint=first.hint,
        )
    return recorded.exit_code


def _folder(output: str | None) -> RunDir:
    """Make the folder of the recording; an earlier recording there is kept under another name."""
    if output is not None:
        folder = Path(output).expanduser().absolute()
        if (kept := keep_earlier(folder, "--output")) is not None:
            print(kept_line("--output", output, kept), file=sys.stderr)
    return RunDir.create("runs", "trace", output, kind="recording", option="--output")


def _process() -> dict[str, int]:
    """Number and start of this process, which tell a later recording to this folder whether this one is running."""
    return {"pid": os.getpid(), "process_started_ns": int(psutil.Process().create_time() * 1e9)}


@contextlib.contextmanager
def _keeping(failed: list[DlioError]) -> Iterator[None]:
    """Collects failures to write a file, which are reported after the figures."""
    try:
        yield
    except DlioError as error:
        failed.append(error)


def _say(directory: RunDir, failed: list[DlioError]) -> None:
    """Analyse the recording, draw the timeline, and print the figures to stderr; stdout belongs to the program."""
    from dlio_torch.analysis.run_recording import open_recording
    from dlio_torch.iotrace.figures.call_selection import data_only
    from dlio_torch.iotrace.figures.io_metrics import analyse
    from dlio_torch.iotrace.timeline.chrome_trace import write_trace
    from dlio_torch.report.io_text import print_io

    recording = open_recording(directory.path)
    analysis = analyse(data_only(recording))
    with _keeping(failed):
        directory.write_json(directory.summary, {"posix": analysis})
    with _keeping(failed):
        write_trace(recording.events, directory.trace)
    last = f"Results: {directory.path} (python -m dlio_torch report {directory.path})"
    print_io(analysis, sys.stderr, [last])


def _size(text: str) -> int:
    try:
        size = parse_size(text)
    except ValueError as error:
        raise ConfigError(
            f"--limit {text} (command line): {error}", hint="write a size, for example --limit 4GiB"
        ) from error
    if size < _LEAST_LIMIT:
        raise ConfigError(
            f"--limit {text} (command line): the limit is too small to record any call",
            hint="set --limit 64KiB or more",
        )
    return size
