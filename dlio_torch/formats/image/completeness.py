"""Check of an image file by its header and its end, without decoding."""

from __future__ import annotations

import os
import warnings
from pathlib import Path

from dlio_torch.errors import DataError
from dlio_torch.formats.core.buffered_file import open_buffered, refusing
from dlio_torch.formats.image.pillow_codec import open_image

_TAIL_BYTES = 64 << 10
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}


def check_complete(path: Path) -> tuple[list[int], str]:
    """Width and height of an image in pixels, and its mode in Pillow's words.

    Raises:
        DataError: no image, or its end is missing.
    """
    with refusing(path), open_buffered(path, 0) as file, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the loader's own concern
        with open_image(file, path) as image:
            size, mode, kind = list(image.size), image.mode, image.format or ""
        bytes_of_file = os.fstat(file.fileno()).st_size
        if kind in _ENDS:
            file.seek(max(0, bytes_of_file - _TAIL_BYTES))
            complete = _ENDS[kind] in file.read()
        else:
            file.seek(0)
            complete = kind != "WEBP" or int.from_bytes(file.read(8)[4:], "little") + 8 <= bytes_of_file
    if not complete:
        raise DataError(
            f"{path} is truncated: the end of the image is missing",
            hint="the file is incomplete; generate or fetch the file again",
        )
    return size, mode
