"""Check of an image file by its header and its end, without decoding."""

from __future__ import annotations

import io
import warnings
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from dlio_torch.errors import DataError
from dlio_torch.formats.core.buffered_file import open_buffered, refusing
from dlio_torch.formats.image.pillow_codec import open_image

_TAIL_BYTES = 64 << 10
_ENDS = {"JPEG": b"\xff\xd9", "MPO": b"\xff\xd9", "PNG": b"IEND"}
_RIFF = 8  # bytes before those that the header of a WebP file counts


@dataclass(frozen=True)
class ImageHeader:
    """Header of an image file.

    Attributes:
        width: in pixels.
        height: in pixels.
        mode: of the pixels, in Pillow's words.
        kind: format of the file, as Pillow names it.
    """

    width: int
    height: int
    mode: str
    kind: str


def check_complete(path: Path) -> ImageHeader:
    """Returns the header of an image whose file is complete.

    Raises:
        DataError: no image, or its end is missing.
    """
    with refusing(path), open_buffered(path, 0) as file:
        header = _header(file, path)
        _check_end(header.kind, file, path)
    return header


def check_stored(stored: bytes, path: Path, kind: str = "") -> None:
    """Raise unless the bytes of a file are a complete image.

    Args:
        stored: the bytes.
        path: of the file, for messages.
        kind: of the image, as Pillow names it; empty: its header tells.

    Raises:
        DataError: no image, or its end is missing.
    """
    file = io.BytesIO(stored)
    _check_end(kind or _header(file, path).kind, file, path)


def details_of(header: ImageHeader, path: Path) -> dict[str, Any]:
    """Figures of an image file for the report."""
    return {"size": [header.width, header.height], "mode": header.mode, "bytes": path.stat().st_size}


def _header(file: IO[bytes], path: Path) -> ImageHeader:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the loader's own concern
        with open_image(file, path) as image:
            return ImageHeader(image.width, image.height, image.mode, image.format or "")


def _check_end(kind: str, file: IO[bytes], path: Path) -> None:
    """Raise if the end of a JPEG, PNG or WebP file is missing; other formats do not tell."""
    size = file.seek(0, io.SEEK_END)
    complete = True
    if kind == "WEBP":
        file.seek(_RIFF - 4)
        complete = int.from_bytes(file.read(4), "little") + _RIFF <= size
    elif kind in _ENDS:
        file.seek(max(0, size - _TAIL_BYTES))
        complete = _ENDS[kind] in file.read()
    if not complete:
        raise DataError(
            f"{path} is truncated: the end of the image is missing",
            hint="the file is incomplete; generate or fetch the file again",
        )
