"""Checkpoints whose save did not end, in the directory of a run that was killed."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from dlio_torch.checkpoint.position import complete_steps, read_all
from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.config.compose import compose
from dlio_torch.errors import DlioError
from dlio_torch.ownership.names import matched_numbers
from dlio_torch.run_directory.checkpoint_folder import checkpoint_folder
from dlio_torch.run_directory.run_dir import RunDir

_RANK = re.compile(r"rank-\d+")


def incomplete_checkpoints(run: RunDir) -> list[Path]:
    """Files and folders of checkpoints that not all ranks completed, and files without their final name.

    A run that resumes never reads them: it takes the newest checkpoint that all ranks completed.

    Args:
        run: directory of a run that has ended.
    """
    try:
        patterns = _patterns(run)
        complete = complete_steps(read_all(run))
    except DlioError:  # the run was killed before it wrote its configuration, or a file is damaged
        return []
    return [path for path in _saved(checkpoint_folder(run)) if _is_incomplete(path.name, patterns, complete)]


def _patterns(run: RunDir) -> set[str]:
    """Names of files and folders of the layout, with patterns for their numbers, without the folder of a rank.

    Raises:
        DlioError: the configuration of the run cannot be read.
    """
    config = compose([f"recipe={run.config}"]).config
    layout = layout_of(config.checkpoint.layout)
    entries = [] if layout is None else layout.file_names(config)
    return {entry.split("/")[1 if entry.startswith("rank-") and "/" in entry else 0] for entry in entries}


def _saved(folder: Path) -> Iterator[Path]:
    """Yields what lies in the folder of the checkpoints and in those of its ranks."""
    for path in sorted(folder.iterdir()) if folder.is_dir() else ():
        if path.is_dir() and _RANK.fullmatch(path.name):
            yield from _saved(path)
        else:
            yield path


def _is_incomplete(name: str, patterns: set[str], complete: set[int]) -> bool:
    if name.startswith("."):
        return True
    matches = [numbers for pattern in patterns if (numbers := matched_numbers(pattern, name))]
    return bool(matches) and not any(complete & set(numbers) for numbers in matches)
