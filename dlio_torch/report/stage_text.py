"""Text on the copies of data staged on node-local storage."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any

from dlio_torch.storage.staging import Staged
from dlio_torch.units import counted, format_duration, format_size


def stage_line(everyone: Sequence[Staged]) -> str:
    """One line on the staging of all ranks before an epoch."""
    rows = [asdict(copied) for copied in everyone]
    figures = {name: sum(row[name] for row in rows) for name in ("files", "bytes", "reused")}
    return f"stage: {stage_words({**figures, 'seconds': max(row['seconds'] for row in rows), 'ranks': rows})}"


def stage_words(stage: Mapping[str, Any]) -> str:
    """Text on the staging of a whole run, from ``stage`` of ``summary.json``."""
    size, seconds = stage["bytes"], stage["seconds"]
    folders = {(row["host"], row["folder"]) for row in stage["ranks"]}
    rate = f", {format_size(int(size / seconds))}/s" if size and seconds else ""
    return (
        f"{counted(stage['files'], 'file')}, {format_size(size)}, copied to {counted(len(folders), 'folder')} in "
        f"{format_duration(seconds)}{rate}; {stage['reused']} existing copies reused"
    )
