"""Existing files of a data set: their names, by a listing, and what they hold, by a look into them."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.file_names import Names
from dlio_torch.errors import DataError
from dlio_torch.files.path_pattern import matching
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.probe import inspect_files
from dlio_torch.formats.core.registry import all_facts
from dlio_torch.ownership.marker import holds_results
from dlio_torch.ownership.names import MARKER
from dlio_torch.storage.base import Entry, Storage
from dlio_torch.storage.local.stored_paths import kind_of
from dlio_torch.storage.registry import open_storage

_MOST_INSPECTED = 64
"""Files that each rank opens before training, where a file holds one sample."""


def list_existing(config: Config, fmt: Format) -> tuple[Path, Names]:
    """The folder of existing data and the names of its files."""
    path = Path(config.dataset.path or "")
    if not path.exists():
        matches = [name for name in matching(str(path)) if fmt.is_there(Path(name))]
        if matches:
            folder = Path(os.path.commonpath([Path(name).parent for name in matches]))
            return folder, Names([os.path.relpath(name, folder) for name in matches])
        raise DataError(
            f"dataset.path={str(path)!r} does not exist", hint="correct dataset.path, or remove it to generate data"
        )
    if fmt.is_there(path) or path.is_file():
        return path.parent, Names([path.name])
    if not path.is_dir():
        raise DataError(f"dataset.path={str(path)!r} is {kind_of(path)}", hint="set dataset.path to a file or a folder")
    once_names = {once.name for once in config.dataset.once if once.name}
    known = next((about.suffixes for about in all_facts() if about.name == config.dataset.format), ())
    suffixes = tuple(dict.fromkeys((fmt.suffix, *known)))
    names = sorted(name for name in _files_of(fmt, open_storage(path), suffixes) if name not in once_names)
    with os_errors(path):
        names = list(fmt.select(path, names))
    if not names:
        raise DataError(
            f"dataset.path={str(path)!r} contains no {' or '.join(f'*{suffix}' for suffix in suffixes)} file",
            hint=f"correct dataset.path or dataset.format; dataset.format={fmt.name} reads {', '.join(suffixes)} files",
        )
    return path, Names(names)


def _files_of(fmt: Format, storage: Storage, suffixes: tuple[str, ...]) -> list[str]:
    """Names of the files of a format in a storage, from its listing without access to the files.

    Folders with results of this tool, such as those of an earlier run in the same folder, are left out.
    """
    names: list[str] = []
    others: list[Entry] = []
    results: tuple[str, ...] = ()
    for entry in storage.list():
        if entry.name.endswith(f"/{MARKER}") and holds_results(storage.path(entry.name).parent):
            results += (entry.name.removesuffix(MARKER),)
        if entry.name.lower().endswith(suffixes):
            if entry.kind == "file" and not fmt.in_folders:
                names.append(entry.name)
            elif entry.kind != "file":
                others.append(entry)
    names += [entry.name for entry in others if not entry.name.startswith(results) and _is_data(fmt, storage, entry)]
    return [name for name in names if not name.startswith(results)] if results else names


def _is_data(fmt: Format, storage: Storage, entry: Entry) -> bool:
    """Whether an entry that is no file belongs to the data; links to nothing are left out with damaged files.

    Raises:
        DataError: it is a link to nothing, a socket or the like.
    """
    path = storage.path(entry.name)
    if entry.kind == "other" and fmt.leaves_out_damaged():
        return False
    if entry.kind == "other" and (kind := kind_of(path)) is not None:
        raise DataError(f"{path} is {kind}, not a file of data", hint=f"remove {path}, or replace it by a file of data")
    return fmt.in_folders and fmt.is_there(path)


InspectedFiles = tuple[npt.NDArray[np.int64], int, dict[str, Any]]
"""Number of samples of each file; bytes of all files; details of the first file's layout."""


def inspect_existing(folder: Path, names: Sequence[str], fmt: Format) -> InspectedFiles:
    """Number of samples of each file, bytes of all files, and details of the first file's layout."""
    looked_at = names
    if fmt.counted_by_name() and len(names) > _MOST_INSPECTED:
        looked_at = [names[int(i)] for i in np.linspace(0, len(names) - 1, _MOST_INSPECTED)]
    infos = inspect_files(fmt.inspect, [folder / name for name in looked_at], apart=fmt.may_crash)
    counts = [info.num_samples for info in infos] if looked_at is names else [1] * len(names)
    kept = (name for name, count in zip(names, counts, strict=True) if count)
    size = sum(fmt.stored_size(f"{folder}/{name}") or 0 for name in kept)
    details = next((info.details for info in infos if info.num_samples), {})
    return np.array(counts, np.int64), size, details
