"""Check of an image file by its header and its end, without decoding."""

from __future__ import annotations

import io
import os
import warnings
from pathlib import Path
from typing import IO

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
    with refusing(path), open_buffered(path, 0) as file:
        size, mode, kind = _header(file, path)
        total = os.fstat(file.fileno()).st_size
        file.seek(0)
        head = file.read(8)
        file.seek(max(0, total - _TAIL_BYTES))
        _check_end(kind, head, file.read(), total, path)
    return size, mode


def check_stored(stored: bytes | bytearray, path: Path) -> None:
    """Raise unless the bytes of a file are a complete image.

    Raises:
        DataError: no image, or its end is missing.
    """
    _, _, kind = _header(io.BytesIO(stored), path)
    _check_end(kind, bytes(stored[:8]), bytes(stored[-_TAIL_BYTES:]), len(stored), path)


def _header(file: IO[bytes], path: Path) -> tuple[list[int], str, str]:
    """Width and height, mode and format."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the loader's own concern
        with open_image(file, path) as image:
            return list(image.size), image.mode, image.format or ""


def _check_end(kind: str, head: bytes, tail: bytes, total: int, path: Path) -> None:
    """Raise if the end of a JPEG, PNG or WebP file is missing; other formats do not tell.

    Args:
        kind: as Pillow names the format.
        head: first 8 bytes.
        tail: last bytes.
        total: bytes of the file.
        path: for the error.
    """
    complete = _ENDS.get(kind, b"") in tail
    if kind == "WEBP":
        complete = int.from_bytes(head[4:], "little") + 8 <= total  # RIFF states its length
    if not complete:
        raise DataError(
            f"{path} is truncated: the end of the image is missing",
            hint="the file is incomplete; generate or fetch the file again",
        )
