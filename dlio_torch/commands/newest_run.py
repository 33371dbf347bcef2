"""The newest run, recording, study or measured node below a folder of results."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from dlio_torch.analysis.run_recording import is_recorded
from dlio_torch.node.node_directory import is_node
from dlio_torch.ownership.names import MARKER
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.store import is_study

_DEPTH = 3  # runs/<recipe>/<time>/turn-1, runs/sweeps/<name>/<time>


def newest(root: Path, *, studies: bool = True) -> tuple[str, Path] | None:
    """Kind (run, recording, study or node) and folder of what was begun last below ``root``; None if there is nothing.

    Runs of a study or of a measured node count as parts of it.

    Args:
        root: folder of results, which may itself be missing.
        studies: whether studies and measured nodes count.
    """
    results = [result for result in _results(root, _DEPTH) if studies or result[1] not in ("study", "node")]
    if not results:
        return None
    _, kind, folder = max(results)
    return kind, folder


def _results(folder: Path, depth: int) -> Iterator[tuple[int, str, Path]]:
    """Begin (ns), kind and path of each result below a folder."""
    try:
        with os.scandir(folder) as entries:
            paths = [folder / entry.name for entry in entries if not entry.name.startswith(".") and entry.is_dir()]
    except OSError:  # missing, or of somebody else
        return
    for path in paths:
        directory = RunDir(path)
        if is_study(path):
            yield _begun_ns(directory), "study", path
        elif is_node(path):
            yield _begun_ns(directory), "node", path
        elif is_recorded(directory):
            yield _begun_ns(directory), "recording" if directory.command.exists() else "run", path
        elif depth:
            yield from _results(path, depth - 1)


def _begun_ns(directory: RunDir) -> int:
    """Time of the oldest of the files that are written at the begin: a report that is added later does not count."""
    first = (directory.path / MARKER, directory.environment, directory.config, directory.command)
    return min((file.stat().st_mtime_ns for file in first if file.exists()), default=0)
