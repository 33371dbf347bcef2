"""Layout of an image file, which is read by one call and decoded by the same thread."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.formats.core.buffered_file import refusing
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout
from dlio_torch.formats.core.layout_in_memory import held, held_rows
from dlio_torch.formats.core.layout_whole_file import read_whole


def image_layout(
    path: Path,
    expected: float,
    *,
    start: Callable[[IO[bytes], Path], Any],
    finish: Callable[[Any], npt.NDArray[np.generic]],
    name: str,
    variable: bool,
    label: tuple[str, int] | None,
) -> FileLayout:
    """Layout of the image and its label, both in memory.

    Args:
        path: the file.
        expected: bytes of a file, in the mean.
        start: what is done with a file that was just opened; its result goes to ``finish``.
        finish: gives the array.
        name: of the array in a batch.
        variable: the array is of variable length.
        label: name and value of the label, if there is one.

    Raises:
        DataError: the file cannot be read, or ``start`` refuses it.
    """
    with refusing(path):
        stored = read_whole(path, expected)
        array = finish(start(io.BytesIO(stored), path))
    arrays: dict[str, ArrayLayout] = {
        name: held_rows(path, array, np.array([0, len(array)])) if variable else held(path, array[np.newaxis])
    }
    if label is not None:
        arrays[label[0]] = held(path, np.array([label[1]], np.int64))
    return FileLayout(1, arrays, once=True, read_bytes=len(stored))
