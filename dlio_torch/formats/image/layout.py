"""Layout of an image file, which is read by one call; a plain JPEG image is decoded later, any other at once."""

from __future__ import annotations

import io
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

import numpy as np

from dlio_torch.formats.core.batch import Sample
from dlio_torch.formats.core.buffered_file import refusing
from dlio_torch.formats.core.jpeg_decoder import plain_jpeg_decoder
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout
from dlio_torch.formats.core.layout_in_memory import held, held_rows
from dlio_torch.formats.core.layout_whole_file import read_whole
from dlio_torch.formats.image.jpeg_record import JpegRecord, PixelSample


def image_layout(
    path: Path,
    expected: float | None,
    *,
    start: Callable[[IO[bytes], Path], Any],
    finish: Callable[[Any, Path], Sample],
    variable: frozenset[str],
    pixels: PixelSample | None = None,
) -> FileLayout:
    """Layout of the arrays of one image file, all in memory.

    Args:
        path: the file.
        expected: bytes of a file, in the mean; ``None``: the file itself tells.
        start: what is done with a file that was just opened; its result goes to ``finish``.
        finish: gives the arrays of the sample.
        variable: names of the arrays of variable length.
        pixels: the same arrays for an image that native code may decode; ``None``: it may not.

    Raises:
        DataError: the file cannot be read, or ``start`` refuses it.
    """
    decoder = None if pixels is None else plain_jpeg_decoder()
    with refusing(path):
        if decoder is None or pixels is None:
            stored = read_whole(path, expected)
        else:
            file = decoder.read(path, expected)
            if decoder.usable(file.header) and pixels.fits(file.header):
                record = JpegRecord(path, file, decoder, pixels, start, finish)
                return FileLayout(1, {}, record, once=True, read_bytes=file.length)
            stored = file.stored()
        sample = finish(start(io.BytesIO(stored), path), path)
    arrays: dict[str, ArrayLayout] = {}
    for name, array in sample.items():
        if name in variable:
            arrays[name] = held_rows(path, array, np.array([0, len(array)]))
        else:
            arrays[name] = held(path, array[np.newaxis])
    return FileLayout(1, arrays, once=True, read_bytes=len(stored))
