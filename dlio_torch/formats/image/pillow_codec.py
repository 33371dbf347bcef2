"""Decoding of images by Pillow, and the version of the library that encodes them."""

from __future__ import annotations

import io
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.libraries import import_library

if TYPE_CHECKING:
    from PIL import Image


def library_version(library: str, name: str) -> str:
    """Name and version of the codec library that Pillow uses, for the description of a data set.

    Args:
        library: Pillow's name of it.
        name: the format, for the message.

    Raises:
        MissingPackageError: Pillow is not installed.
    """
    import_library("PIL", f"dataset.format={name} needs Pillow", "image")
    from PIL import features

    return f"{library} {features.version(library)}"


def open_image(file: IO[bytes], path: Path) -> Image.Image:
    """Opens an image and reads its header, as Pillow does before it decodes pixels.

    Raises:
        DataError: the file holds no image that Pillow knows.
    """
    from PIL import Image, UnidentifiedImageError

    try:
        return Image.open(file)
    except UnidentifiedImageError as error:
        raise DataError(
            f"{path} holds no image that Pillow can read",
            hint="replace or remove the file, or set dataset.image.on_error=skip to leave such files out",
        ) from error


def decoded(stored: bytes) -> npt.NDArray[np.generic]:
    """Pixels of an encoded image; uint8 of ``(height, width, 3)``."""
    from PIL import Image

    with Image.open(io.BytesIO(stored)) as image:
        return pixels_of(image)


def pixels_of(image: Image.Image) -> npt.NDArray[np.generic]:
    """Pixels of an open image, decoded now; uint8 of ``(height, width, 3)``."""
    return np.asarray(image.convert("RGB"))
