"""Description of existing LMDB environments: keys, and sizes of the values of some samples."""

from __future__ import annotations

import statistics
from contextlib import closing
from itertools import islice
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.lmdb.key_patterns import KeyPattern, pattern_of
from dlio_torch.formats.lmdb.options import LmdbConfig
from dlio_torch.formats.lmdb.shared_environments import SharedEnvironment, data_file, library
from dlio_torch.formats.lmdb.tree_pages import open_tree

_MOST_KEYS = 2000
_MOST_VALUES = 64
_SHOWN = 4
_MAGICS = {
    b"\xff\xd8\xff": "JPEG images",
    b"\x89PNG": "PNG images",
    b"RIFF": "RIFF files (WebP, WAV)",
    b"GIF8": "GIF images",
    b"\x93NUMPY": "files of numpy.save",
    b"\x80\x03": "pickles, which are never loaded",
    b"\x80\x04": "pickles, which are never loaded",
    b"\x80\x05": "pickles, which are never loaded",
}


def describe(path: Path) -> DataDescription:
    """Describes an environment.

    Args:
        path: the folder with ``data.mdb``, or the file.

    Raises:
        DataError: it is no environment, is damaged, or holds no samples.
    """
    lmdb = library()
    with closing(SharedEnvironment(path, LmdbConfig())) as shared:
        trees, keys = _first_keys(data_file(path))
        try:
            figures = shared.get().stat()
            with shared.get().begin(buffers=True) as transaction:
                cursor = transaction.cursor()
                if cursor.last():
                    keys.append(bytes(cursor.key()))
                keys = list(dict.fromkeys(key for key in keys if key not in trees))
                pattern = pattern_of(
                    keys, figures["entries"] - len(trees), lambda key: transaction.get(key) is not None
                )
                if pattern is None:
                    raise _nothing(path, trees)
                values = {name: _values(transaction, pattern, name, keys) for name in pattern.fields}
        except lmdb.Error as error:
            raise open_error(path, error) from error
    samples = (figures["entries"] - len(trees) - len(pattern.others)) // len(pattern.fields)
    return DataDescription(
        fields=tuple(_field(name, sizes) for name, (sizes, _) in values.items()),
        options=_options(path, pattern, trees),
        samples=samples,
        arrays=tuple(_stored(name, sizes, content) for name, (sizes, content) in values.items()),
        notes=tuple(_notes(pattern, trees, values)),
        details={
            "entries": figures["entries"],
            "keys": [key.decode(errors="replace") for key in keys[:_SHOWN]],
            "page_bytes": figures["psize"],
        },
    )


def _first_keys(place: Path) -> tuple[list[bytes], list[bytes]]:
    """Names of the named databases among the first entries, and the keys of all of these."""
    with open_tree(place) as tree:
        entries = list(islice(tree.walk(), _MOST_KEYS))
    return [entry.key for entry in entries if entry.named_tree], [entry.key for entry in entries]


def _values(transaction: Any, pattern: KeyPattern, name: str, keys: list[bytes]) -> tuple[list[int], str]:
    """Sizes of the values of some samples, and the kind of the first one."""
    if pattern.key:
        indices = range(pattern.first_index, pattern.first_index + _MOST_VALUES)
        of_field = [pattern.key.format(index=index, field=name).encode() for index in indices]
    else:
        of_field = [key for key in keys if key not in pattern.others][:_MOST_VALUES]
    present = [value for value in map(transaction.get, of_field) if value is not None]
    head = bytes(present[0][:8])
    content = next((kind for magic, kind in _MAGICS.items() if head.startswith(magic)), "")
    return [len(value) for value in present], content


def _options(path: Path, pattern: KeyPattern, trees: list[bytes]) -> dict[str, Any]:
    plain, options = LmdbConfig(), dict[str, Any]()
    if pattern.key != plain.key:
        options["key"] = pattern.key
    if pattern.first_index:
        options["first_index"] = pattern.first_index
    others = [key.decode(errors="replace") for key in (*pattern.others, *trees)]
    if others:
        options["other_entries"] = others
    if not path.is_dir():
        options["subdir"] = False
    return options


def _field(name: str, sizes: list[int]) -> FieldConfig:
    if len(sizes) > 1 and len(set(sizes)) == 1 and sizes[0]:
        return FieldConfig(name, "uint8", sizes[:1])
    mean, deviation = max(1.0, statistics.fmean(sizes)), statistics.pstdev(sizes)
    return FieldConfig(name, "uint8", [], round(mean, 1), round(deviation, 1))


def _stored(name: str, sizes: list[int], content: str) -> StoredArray:
    shape = (sizes[0],) if len(set(sizes)) == 1 else None
    return StoredArray(name, f"bytes: {content}" if content else "bytes", shape)


def _notes(pattern: KeyPattern, trees: list[bytes], values: dict[str, tuple[list[int], str]]) -> list[str]:
    compared = max(len(sizes) for sizes, _ in values.values())
    notes = [
        f"values are bytes: their sizes are those of {compared} samples, and what they hold is not stated; for arrays "
        "set dataset.fields"
    ]
    if not pattern.key:
        notes.append("keys follow no pattern: all keys are listed when the environment is opened")
    if pattern.others:
        notes.append("not samples: " + ", ".join(key.decode() for key in pattern.others))
    if trees:
        notes.append("named databases, which are not read: " + ", ".join(key.decode(errors="replace") for key in trees))
    return notes


def _nothing(path: Path, trees: list[bytes]) -> DataError:
    problem = "only named databases, which are not supported" if trees else "no samples"
    return DataError(f"{path} holds {problem}", hint="choose another dataset.path")
