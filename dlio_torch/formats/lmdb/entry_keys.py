"""Keys of the entries that hold the arrays of samples."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.lmdb.options import LmdbConfig

LONGEST_KEY = 511
"""Most bytes of a key, MDB_MAXKEYSIZE of the library."""


def check_keys(options: LmdbConfig, specs: Sequence[ArraySpec], *, generated: bool) -> None:
    """Raise unless the keys of samples are distinct and short.

    Raises:
        ConfigError: they are not.
    """
    shown = f"dataset.lmdb.key={options.key!r}"
    if not options.key:
        if len(specs) > 1 or generated:
            raise ConfigError(
                f"{shown}: keys are listed from existing files, whose entries are one array each",
                hint="set dataset.lmdb.key={index:08d}, or describe the sample by one field and set dataset.path",
            )
        return
    try:
        keys = {entry_key(options, spec, index) for spec in specs for index in (0, 1, 99_999_999)}
    except (LookupError, ValueError, AttributeError, TypeError) as error:
        raise ConfigError(
            f"{shown} is not a format of index and field ({error})", hint="set for example {index:08d}"
        ) from error
    if len(keys) < 3 * len(specs):
        raise ConfigError(
            f"{shown} gives equal keys for different {'fields or ' if len(specs) > 1 else ''}samples",
            hint="set {field}-{index:08d}" if len(specs) > 1 else "set {index:08d}",
        )
    longest = max(map(len, keys))
    if longest > LONGEST_KEY or not min(map(len, keys)):
        raise ConfigError(f"{shown} gives a key of {longest} bytes", hint=f"make keys of 1 to {LONGEST_KEY} bytes")


def entry_key(options: LmdbConfig, spec: ArraySpec, index: int) -> bytes:
    """Key of an array of the sample at position ``index`` of its file."""
    return options.key.format(index=options.first_index + index, field=spec.name).encode()


def count_samples(options: LmdbConfig, entries: int, fields: int, path: Path) -> int:
    """Number of samples, from the number of entries.

    Raises:
        DataError: there is not an entry for each field of each sample.
    """
    left = entries - len(options.other_entries)
    count, rest = divmod(left, fields)
    if left < 0 or rest:
        raise DataError(
            f"{path} has {entries} entries, which are not {fields} for each sample and "
            f"{len(options.other_entries)} others",
            hint="correct dataset.fields, or name the other entries in dataset.lmdb.other_entries",
        )
    return count


def listed_keys(transaction: Any, options: LmdbConfig) -> list[bytes]:
    """All keys of the tree in its order, without the entries that are no samples."""
    others = {name.encode() for name in options.other_entries}
    return [key for key in map(bytes, transaction.cursor().iternext(keys=True, values=False)) if key not in others]
