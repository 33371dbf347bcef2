"""Reads an events folder, which this package's recorder wrote, as a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.iotrace.events import call_names
from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.iotrace.events.path_patterns import selector
from dlio_torch.iotrace.events.posix_accounts import TREE_FILE
from dlio_torch.iotrace.events.recording import Kind, Recording
from dlio_torch.iotrace.importers.strace import read_strace

_SPANS, _TORCH = "*.spans", "*.torch"
_EVENT_FILES = (_SPANS, "*.posix")
_STRACE_FILES = "strace.*"


def is_event_folder(folder: Path) -> bool:
    """Whether a folder directly contains files of the recorder."""
    return _has(folder, *_EVENT_FILES, TREE_FILE)


def read_event_folder(
    folder: Path,
    path: Path | None = None,
    kind: Kind | None = None,
    facts: Mapping[str, Any] | None = None,
    notes: tuple[str, ...] = (),
) -> Recording:
    """Reads spans and calls, or the text of strace if the recorder used strace instead.

    Args:
        folder: the events folder; a missing one gives a recording without events.
        path: path of the recording; None: the folder.
        kind: ``run`` or ``trace``; None: ``run`` if the folder holds spans of a run, else ``trace``.
        facts: known facts, for :attr:`Recording.facts`.  ``include`` and ``exclude`` select the files of strace's text.
        notes: known remarks, put before those of the reader.
    """
    path, facts = path or folder, dict(facts or {})
    straced = sorted(folder.glob(_STRACE_FILES))
    if straced and not _has(folder, *_EVENT_FILES):
        recording = read_strace(path, straced)
        # The recorder traces all classes of calls.
        everything = frozenset(call_names.CLASSES)
        facts, notes = {**recording.facts, **facts}, (*notes, *recording.notes)
        return _selected(replace(recording, notes=notes, facts=facts, sees=everything))
    return _events(
        path, folder, kind or ("run" if _has(folder, _SPANS) and not _has(folder, _TORCH) else "trace"), facts, notes
    )


def _events(path: Path, folder: Path, kind: Kind, facts: dict[str, Any], notes: tuple[str, ...]) -> Recording:
    events = read_events(folder)
    frame = events.frame
    remarks = [f"{part.path.name}: {part.reason}" for part in events.skipped]
    if not len(frame):
        remarks.append("no event was recorded")
    return Recording(
        path=path,
        kind=kind,
        events=events,
        # One account for each process whose calls were recorded, even if it made none.
        sees=frozenset(call_names.CLASSES) if events.accounts else frozenset(),
        world_size=len({process.rank for process in events.processes}) or None,
        runtime_s=int(frame["end_ns"].max() - frame["start_ns"].min()) / 1e9 if len(frame) else None,
        notes=(*notes, *remarks),
        facts=facts,
    )


def _selected(recording: Recording) -> Recording:
    """Keeps the selected files, because strace records calls on all files."""
    include, exclude = (recording.facts.get(name) for name in ("include", "exclude"))
    if not isinstance(include, list) or not isinstance(exclude, list):
        return recording
    is_wanted = selector([str(pattern) for pattern in include], [str(pattern) for pattern in exclude])
    frame = recording.events.frame
    of_file = np.array([is_wanted(str(name)) for name in frame["file"].cat.categories] + [False])
    kept = frame[of_file[frame["file"].cat.codes.to_numpy()]].reset_index(drop=True)
    kept["file"] = kept["file"].cat.remove_unused_categories()
    left_out = len(frame) - len(kept)
    notes = (f"{left_out} calls on files that the patterns exclude are left out",) if left_out else ()
    return replace(recording, events=replace(recording.events, frame=kept), notes=(*recording.notes, *notes))


def _has(folder: Path, *patterns: str) -> bool:
    return any(next(folder.glob(pattern), None) is not None for pattern in patterns)
