"""Layout of an image file, which is read by one call and decoded by the same thread."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from dlio_torch.formats.core.batch import Sample
from dlio_torch.formats.core.buffered_file import refusing
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout
from dlio_torch.formats.core.layout_in_memory import held, held_rows
from dlio_torch.formats.core.layout_whole_file import read_whole


def image_layout(
    path: Path,
    expected: float | None,
    *,
    start: Callable[[IO[bytes], Path], Any],
    finish: Callable[[Any, Path], Sample],
    variable: frozenset[str],
) -> FileLayout:
    """Layout of the arrays of one image file, all in memory.

    Args:
        path: the file.
        expected: bytes of a file, in the mean; ``None``: the file itself tells.
        start: what is done with a file that was just opened; its result goes to ``finish``.
        finish: gives the arrays of the sample.
        variable: names of the arrays of variable length.

    Raises:
        DataError: the file cannot be read, or ``start`` refuses it.
    """
    with refusing(path):
        stored = read_whole(path, expected)
        sample = finish(start(io.BytesIO(stored), path), path)
    arrays: dict[str, ArrayLayout] = {}
    for name, array in sample.items():
        if name in variable:
            arrays[name] = held_rows(path, array, np.array([0, len(array)]))
        else:
            arrays[name] = held(path, array[np.newaxis])
    return FileLayout(1, arrays, once=True, read_bytes=len(stored))
