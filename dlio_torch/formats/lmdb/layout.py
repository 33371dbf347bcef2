"""Layout of LMDB files: the bytes of each value, which lie in one piece."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout, Listed
from dlio_torch.formats.lmdb.entry_keys import count_samples, entry_key
from dlio_torch.formats.lmdb.options import LmdbConfig
from dlio_torch.formats.lmdb.shared_environments import data_file
from dlio_torch.formats.lmdb.tree_pages import open_tree


def file_layout(path: Path, options: LmdbConfig, specs: Sequence[ArraySpec]) -> FileLayout:
    """The layout of an environment, from the pages of its tree.

    Raises:
        DataError: it is no environment, is damaged, or has other entries.
    """
    place = data_file(path)
    with open_tree(place) as tree:
        size, extents = tree.size, {entry.key: (entry.offset, entry.size) for entry in tree.walk()}
    if options.key:
        count = count_samples(options, len(extents), len(specs), path)
    else:
        for name in options.other_entries:
            extents.pop(name.encode(), None)
        count = len(extents)
    listed = list(extents)
    arrays: dict[str, ArrayLayout] = {}
    for spec in specs:
        keys = [entry_key(options, spec, index) for index in range(count)] if options.key else listed
        try:
            places = np.array([extents[key] for key in keys], np.int64).reshape(-1, 2)
        except KeyError as error:
            raise DataError(
                f"{path} has no entry {error.args[0].decode(errors='replace')!r}",
                hint="correct dataset.lmdb.key or dataset.lmdb.first_index",
            ) from None
        row = math.prod(spec.shape) * spec.dtype.itemsize
        arrays[spec.name] = Listed(place, places[:, 0], places[:, 1], row, variable=spec.variable, limit=size)
    return FileLayout(count, arrays)
