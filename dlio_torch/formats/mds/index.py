"""``index.json`` of an MDS folder: the shards, their columns and sizes."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError
from dlio_torch.files.atomic_file import replaced
from dlio_torch.formats.core.file_errors import os_errors
from dlio_torch.formats.mds.facts import INDEX
from dlio_torch.formats.mds.shard import VERSION, StoredColumn, columns_of, read_head

_UNPACKERS = {".zstd": "zstd -d", ".gz": "gunzip -k", ".bz2": "bunzip2 -k", ".br": "brotli -d"}
_HINT = "the index is damaged; write the data set again, or remove index.json to read the shards by their own heads"


@dataclass(frozen=True)
class IndexedShard:
    """Entry of a shard.

    Attributes:
        columns: in the order of storage.
        samples: their number.
        bytes: of the file.
        compressed: name of the compressed file; empty: there is none.
    """

    columns: tuple[StoredColumn, ...]
    samples: int
    bytes: int
    compressed: str


def read_index(folder: Path) -> Mapping[str, IndexedShard] | None:
    """The shards of a folder by the names of their uncompressed files; ``None``: there is no index.

    An index is read once in a process, as the library reads it, unless it changes.

    Raises:
        DataError: damaged, or of another version.
    """
    path = folder / INDEX
    with os_errors(path):
        try:
            status = path.stat()
        except FileNotFoundError:
            return None
    return _parsed(path, status.st_mtime_ns, status.st_size)


@lru_cache(maxsize=1024)  # a data set may have many folders, each with an index
def _parsed(path: Path, mtime_ns: int, size: int) -> Mapping[str, IndexedShard]:
    with os_errors(path):
        text = path.read_bytes()
    try:
        entries = json.loads(text)["shards"]
        return {_name(entry["raw_data"]): _shard(entry, path) for entry in entries}
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is no index of MDS shards", hint=_HINT) from error


def _name(file: Mapping[str, Any]) -> str:
    """Name of a file of the folder."""
    name = file["basename"]
    if not isinstance(name, str) or Path(name).name != name:
        raise ValueError("a shard has no valid name")
    return name


def _shard(entry: Mapping[str, Any], path: Path) -> IndexedShard:
    packed = entry.get("zip_data")
    samples, size = entry["samples"], entry["raw_data"]["bytes"]
    if type(samples) is not int or type(size) is not int or min(samples, size) < 0:
        raise ValueError("a shard has no valid number of samples or bytes")
    return IndexedShard(columns_of(entry, path), samples, size, _name(packed) if packed else "")


def check_complete(folder: Path, names: Sequence[str]) -> None:
    """Raise unless all shards are there that the indices of a data set name.

    Args:
        folder: of the data set, with an index in it or in folders below.
        names: paths of the shards that are there, relative to the folder.

    Raises:
        DataError: names the first missing shard.
    """
    there = {Path(name) for name in names}
    for inner in sorted({Path(), *(path.parent for path in there)}):
        for name, entry in (read_index(folder / inner) or {}).items():
            if inner / name in there:
                continue
            packed = folder / inner / entry.compressed
            if entry.compressed and packed.exists():
                raise DataError(
                    f"{packed.with_name(name)} is not there, but compressed as {packed.name}, which MosaicML Streaming "
                    "unpacks into its local folder before it reads it",
                    hint=unpacking_hint(packed),
                )
            raise DataError(
                f"{folder / inner / INDEX} names {name}, which does not exist",
                hint=f"complete the folder, or set dataset.path='{folder}/*.mds' to read the shards that are there",
            )


def unpacking_hint(packed: Path) -> str:
    """Hint on the program that unpacks a compressed shard and all others of its folder."""
    program = _UNPACKERS.get(packed.suffix)
    example = f", for example by `{program} {packed.parent}/*{packed.suffix}`" if program else ""
    return f"unpack all shards in place{example}"


def write_index(folder: Path, names: list[str]) -> None:
    """Write the index of the shards ``names`` of a folder, from their heads, unless it is newer than all of them.

    Raises:
        DataError: a shard is damaged.
    """
    if _is_current(folder, names):
        return
    entries = []
    for name in names:
        head = read_head(folder / name)
        entries.append(
            {
                **shard_config(head.columns),
                "raw_data": {"basename": name, "bytes": int(head.offsets[-1]), "hashes": {}},
                "samples": head.num_samples,
                "zip_data": None,
            }
        )
    with replaced(folder / INDEX) as file:
        file.write(json.dumps({"version": VERSION, "shards": entries}, sort_keys=True).encode())


def _is_current(folder: Path, names: list[str]) -> bool:
    """Whether the folder has an index of these shards that was written after them."""
    try:
        index = read_index(folder)
        if index is None or list(index) != names:
            return False
        written_ns = (folder / INDEX).stat().st_mtime_ns
        return all((folder / name).stat().st_mtime_ns <= written_ns for name in names)
    except (DataError, OSError):
        return False


def shard_config(columns: tuple[StoredColumn, ...]) -> dict[str, Any]:
    """The JSON object that describes the columns of a shard, as MDSWriter makes it."""
    return {
        "version": VERSION,
        "format": "mds",
        "compression": None,
        "hashes": [],
        "size_limit": None,
        "column_names": [column.name for column in columns],
        "column_encodings": [column.encoding for column in columns],
        "column_sizes": [column.size for column in columns],
    }
