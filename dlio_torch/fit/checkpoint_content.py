"""Content of recorded checkpoints: tensors, or files of bytes, as options of the group ``checkpoint``."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

import numpy as np

from dlio_torch.config.schema_training import StateType
from dlio_torch.fit.checkpoint_writes import CheckpointWrites, writes_of_saves
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedTraining
from dlio_torch.iotrace.events.state_item import StateItem
from dlio_torch.iotrace.events.torch_calls import SavedState
from dlio_torch.units import counted, format_size

_MOST = 64  # entries of checkpoint.tensors
_SAME_BYTES = {"complex64": "int64", "complex32": "int32", "quint8": "uint8", "qint8": "int8"}


def content_of_state(training: RecordedTraining, saves: Sequence[SavedState]) -> Findings:
    """Layout and tensors of saves by torch, of which the largest stands for all.

    Args:
        training: the recording.
        saves: of the first rank.
    """
    largest = max(saves, key=lambda state: state.bytes)
    files = writes_of_saves(training, saves)
    is_dcp = largest.call.startswith("dcp.")
    calls = sorted({state.call for state in saves})
    evidence = f"{', '.join(calls)} was called {counted(len(saves), 'time')}"
    values = [Finding("checkpoint.layout", "dcp" if is_dcp else "torch_save", evidence)]
    values += _tensors(largest, files[saves.index(largest)], is_dcp=is_dcp)
    values += _writers(training, largest, files[saves.index(largest)]) if is_dcp else []
    sizes = {state.bytes for state in saves}
    gaps = [f"states of {format_size(min(sizes))} to {format_size(max(sizes))} are saved; the largest is emulated"]
    return findings(values, gaps if len(sizes) > 1 else ())


def content_of_writes(files: Sequence[CheckpointWrites], reason: str, replaced: Collection[str] = ()) -> Findings:
    """Layout ``files``: each file with its size and that of its write calls.

    Args:
        files: of one checkpoint.
        reason: why they are not described by tensors.
        replaced: paths that the next checkpoint replaces.
    """
    names = [_name(number, file.path, file.path in replaced) for number, file in enumerate(files)]
    entries = [
        {"name": name, "bytes": file.bytes, "write_bytes": min(file.write_bytes, file.bytes)}
        for name, file in zip(names, files, strict=True)
    ]
    evidence = f"{counted(len(files), 'file')} of {format_size(sum(file.bytes for file in files))}: {reason}"
    return findings(
        [
            Finding("checkpoint.layout", "files", evidence, "likely"),
            Finding("checkpoint.files", entries, "bytes and most frequent size of their write calls", "likely"),
        ]
    )


def _name(number: int, path: str, is_replaced: bool) -> str:
    """Name of a file in the emulation, which does not tell that of the program's."""
    return f"{'checkpoint' if is_replaced else '{step}'}-{number}{Path(path).suffix}"


def _tensors(state: SavedState, file: CheckpointWrites, *, is_dcp: bool) -> list[Finding]:
    """The tensors of the state; without them, its size."""
    if state.state:
        listed = [_entry(item) for item in _merged(state.state)]
        evidence = f"{counted(state.tensors, 'tensor')} of {format_size(state.bytes)} were saved"
        return [Finding("checkpoint.tensors", listed, evidence)]
    evidence = f"the state is of {format_size(state.bytes)} in {counted(state.tensors, 'tensor')} of unknown shapes"
    if not is_dcp:
        return [Finding("checkpoint.state_bytes", max(1, file.bytes or state.bytes), evidence, "likely")]
    count = max(1, state.tensors)
    entry = {"name": "state", "shape": [max(1, state.bytes // count)], "dtype": "uint8", "count": count}
    return [Finding("checkpoint.tensors", [entry], evidence, "assumed")]


def _writers(training: RecordedTraining, state: SavedState, file: CheckpointWrites) -> list[Finding]:
    """Options of ``dcp``: background, threads, and the files of the rank."""
    values = []
    if state.call == "dcp.async_save":
        writer = "thread" if state.pid in file.pids else "process"
        values.append(Finding("checkpoint.async_save", writer, f"a {writer} writes the files of dcp.async_save"))
    names = _data_files(training, state)
    if len(names) > 1:
        tensors = sum(item.count for item in state.state) or state.tensors
        each = len(names) >= tensors
        key, value = ("single_file_per_rank", False) if each else ("thread_count", len(names))
        values.append(Finding(f"checkpoint.{key}", value, f"a save of the rank writes {len(names)} data files"))
    return values


def _data_files(training: RecordedTraining, state: SavedState) -> set[str]:
    """Names of the data files that the rank wrote in the folder of a save."""
    calls = training.calls[training.calls["rank"] == state.rank]
    paths = (Path(str(name)) for name in calls["file"].unique())
    return {path.name for path in paths if str(path.parent) == state.path and path.suffix == ".distcp"}


def _merged(items: Sequence[StateItem]) -> list[StateItem]:
    """At most 64 items: with more, those of the same shape and type count together, and then the smallest ones do."""
    if len(items) <= _MOST:
        return list(items)
    merged: dict[tuple[tuple[int, ...], str], StateItem] = {}
    for item in items:
        key = (item.shape, item.dtype)
        before = merged.get(key)
        merged[key] = item if before is None else replace(before, count=before.count + item.count)
    ordered = list(merged.values())
    return ordered if len(ordered) <= _MOST else list(_largest(ordered))


def _largest(items: Sequence[StateItem]) -> Iterator[StateItem]:
    """The largest items, and one that stands for all others, with their number and mean size."""
    sizes = np.array([float(np.prod(item.shape)) for item in items])
    rest = set(np.argsort(sizes, kind="stable")[: len(items) - _MOST + 1].tolist())
    yield from (item for number, item in enumerate(items) if number not in rest)
    count = sum(items[number].count for number in rest)
    elements = sum(sizes[number] * items[number].count for number in rest)
    yield StateItem("others", (max(1, round(elements / count)),), items[min(rest)].dtype, count)


def _entry(item: StateItem) -> dict[str, Any]:
    entry = {"name": item.name or "state", "shape": list(item.shape), "dtype": _type(item.dtype)}
    return entry | ({"count": item.count} if item.count > 1 else {})


def _type(name: str) -> str:
    """An element type that the emulation has, of the same size where that is known."""
    if name in get_args(StateType):
        return name
    return "uint8" if name.startswith("float8") else _SAME_BYTES.get(name, "float32")
