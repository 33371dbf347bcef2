"""Refuses recordings from which no recipe follows; each message says what is missing."""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from dlio_torch.errors import ConfigError, DataError
from dlio_torch.iotrace.events.call_names import CLASSES, MAP, OPEN, READ, class_codes
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.events.torch_calls import TorchCalls
from dlio_torch.run_directory.run_dir import RunDir

_COMMON = 0.5
"""Least share of common files of samples in two recordings of one program."""


def refuse_incomplete(recording: Recording) -> None:
    """Refuse a run of this tool, and the recording of a program that failed, was killed or was not recorded to its end.

    Raises:
        DataError: it is one of these.
    """
    path = recording.path
    if recording.kind == "run":
        config = RunDir(path).config
        raise DataError(
            f"{path} is a run of dlio_torch, whose recipe is known: {config}",
            hint=f"run it with recipe={config}, or record a training with trace",
        )
    if recording.kind != "trace":
        return
    code = recording.facts.get("exit_code")
    if code is None:
        raise DataError(
            f"{path}: the recording stops before the end of the program", hint="record the program until it ends"
        )
    if code != 0:
        raise DataError(
            f"{path}: the recorded program {_failure(code)}", hint="record a run that ends with exit code 0"
        )


def refuse_damaged(recording: Recording) -> None:
    """Refuse a recording of which events are missing.

    Raises:
        DataError: names the first file that is not complete.
    """
    if recording.kind == "trace" and recording.events.skipped:
        part = recording.events.skipped[0]
        raise DataError(
            f"{recording.path}: events are missing: {part.path.name}: {part.reason}",
            hint="record the program again, with enough disk space and --limit",
        )


def refuse_without_reads(recording: Recording, calls: pd.DataFrame) -> None:
    """Refuse a recording in which no data were read.

    Args:
        recording: the recording.
        calls: its I/O calls on files of data.

    Raises:
        DataError: no file was read, mapped or opened.
    """
    classes = [CLASSES.index(name) for name in (READ, MAP, OPEN)]
    if calls.empty or not np.isin(class_codes(calls), classes).any():
        raise DataError(
            f"{recording.path}: no file of data was read", hint="record the program while it reads its data"
        )


def refuse_without_training(recording: Recording, torch: TorchCalls, calls: pd.DataFrame) -> None:
    """Refuse a program that used no torch and read its files once, as a copy does.

    Args:
        recording: the recording; a log of another tool has no torch calls and is not refused.
        torch: calls to torch.
        calls: its I/O calls on files of data.

    Raises:
        DataError: there is no training in it.
    """
    if recording.kind != "trace" or torch.processes or torch.loaders or _reads_again(calls):
        return
    raise DataError(
        f"{recording.path}: no training in it: no process imported torch, and nothing was read twice",
        hint="record a training, of two epochs or more if it does not use torch",
    )


def refuse_other_program(first: Path, files: Sequence[str], other: Path, other_files: Sequence[str]) -> None:
    """Refuse a second recording that is of another program.

    Args:
        first: path of the recording.
        files: its files of samples.
        other: path of the second recording.
        other_files: its files of samples.

    Raises:
        ConfigError: most files of samples differ.
    """
    common, either = set(files) & set(other_files), set(files) | set(other_files)
    if len(common) < _COMMON * len(either):
        raise ConfigError(
            f"--rerun {other} (command line): not a recording of the program of {first}: of {len(either)} files of "
            f"samples, both read {len(common)}",
            hint="record the same command a second time",
        )


def _failure(code: object) -> str:
    """How a program ended, by its exit code; of 128 and more the signal."""
    number = code - 128 if isinstance(code, int) and code > 128 else -code if isinstance(code, int) and code < 0 else 0
    if number in set(signal.Signals):
        return f"was killed by {signal.Signals(number).name} (exit code {code})"
    return f"failed with exit code {code}"


def _reads_again(calls: pd.DataFrame) -> bool:
    """Whether any place of a file was read more than once."""
    reads = calls[class_codes(calls) == CLASSES.index(READ)]
    known = reads[(reads["offset"] >= 0) & (reads["bytes"] > 0)]
    places: pd.Series[bool] = known.duplicated(subset=["file", "offset"])
    return bool(places.any())
