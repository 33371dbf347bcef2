"""Folders that Hugging Face's ``datasets`` writes: saved data sets, several splits, and the cache of a download.

``Dataset.save_to_disk`` writes ``state.json``, ``dataset_info.json`` and the files that ``state.json`` lists;
``DatasetDict.save_to_disk`` one such folder for each split, and ``dataset_dict.json``.  The cache of ``load_dataset``
has no ``state.json``; its files are named ``<name>-<split>.arrow`` or ``<name>-<split>-00000-of-00002.arrow``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError

STATE, INFO, SPLITS = "state.json", "dataset_info.json", "dataset_dict.json"
CACHED = "cache-"
"""First characters of the names of files in which datasets keeps results of ``map``, ``sort`` and ``shuffle``."""

_SHARD = re.compile(r"-\d{5}-of-\d{5}$")
_MOST_BYTES = 256 << 20


def data_files(folder: Path, names: Sequence[str]) -> list[str]:
    """The files of a data set among the files below its folder, in the order of their rows.

    Args:
        folder: of the data set.
        names: paths of its ``.arrow`` files, relative to the folder.

    Raises:
        DataError: the folder holds several splits, or a file of the data set is missing.
    """
    refuse_splits(folder, names)
    state = read_json(folder / STATE)
    if not state:
        return [name for name in names if not Path(name).name.startswith(CACHED)]
    if state.get("_indices_data_files"):
        raise DataError(
            f"{folder} was saved with an indices mapping ({STATE}: _indices_data_files), whose order and selection of "
            "rows is not read",
            hint="load it by the release of datasets that wrote it, call flatten_indices(), and save it again",
        )
    listed = state.get("_data_files")
    entries = listed if isinstance(listed, list) else []
    files = [str(entry.get("filename")) for entry in entries if isinstance(entry, Mapping)]
    missing = [name for name in files if name not in names]
    if missing or not files:
        problem = f"{missing[0]}, which does not exist" if missing else "no files"
        raise DataError(f"{folder / STATE} lists {problem}", hint="copy the folder again, with all its files")
    return files


def refuse_splits(folder: Path, names: Sequence[str]) -> None:
    """Raise if a folder holds several splits.

    Raises:
        DataError: names them.
    """
    splits = read_json(folder / SPLITS).get("splits")
    if isinstance(splits, list) and splits:
        raise DataError(
            f"{folder} holds the splits {', '.join(map(str, splits))}, each a data set of its own",
            hint=f"set dataset.path={folder / str(splits[0])}",
        )
    if (folder / STATE).exists() or not (folder / INFO).exists():
        return
    heads = sorted({_SHARD.sub("", name.removesuffix(".arrow")) for name in names if not name.startswith(CACHED)})
    stated = read_json(folder / INFO).get("splits")
    known = tuple(f"-{split}" for split in stated) if isinstance(stated, Mapping) else ()
    if len(heads) > 1 and known and all(head.endswith(known) for head in heads):
        raise DataError(
            f"{folder} is the cache of a data set with several splits: {', '.join(heads)}",
            hint=f"set dataset.path='{folder / heads[0]}*.arrow'",
        )


def read_json(path: Path) -> dict[str, Any]:
    """The object in a JSON file; empty if there is no file, or something else in it.

    Raises:
        DataError: the file is damaged.
    """
    try:
        with path.open("rb") as file:
            content = json.loads(file.read(_MOST_BYTES))
    except FileNotFoundError:
        return {}
    except (OSError, ValueError, RecursionError) as error:
        raise DataError(f"{path} cannot be read: {error}", hint="copy the folder again, with all its files") from error
    return content if isinstance(content, dict) else {}


def look_at_descriptions(folder: Path) -> bool:
    """Makes the calls of ``datasets.load_from_disk`` before it maps the files; returns whether the folder is saved.

    Raises:
        DataError: a description is damaged.
    """
    folder.lstat()
    if not all([(folder / name).exists() for name in (INFO, STATE, SPLITS, INFO, STATE)][:2]):
        return False
    try:
        state, _ = [json.loads((folder / name).read_text(encoding="utf-8")) for name in (STATE, INFO)]
        for entry in state["_data_files"]:
            (folder / entry["filename"]).exists()
    except (OSError, ValueError, KeyError, TypeError, RecursionError) as error:
        raise DataError(
            f"{folder} cannot be read: {error}", hint="copy the folder again, with all its files"
        ) from error
    return True
