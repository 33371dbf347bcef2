"""Inspection of an image: size and mode from its header."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

from PIL import Image


def read_content(path: Path, content: dict[str, Any]) -> None:
    """Add ``width``, ``height`` and ``mode``."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an image is large matters to who decodes it
        try:
            with Image.open(path, formats=("PNG", "JPEG")) as image:
                content |= {"width": image.width, "height": image.height, "mode": image.mode}
        except (Image.DecompressionBombError, SyntaxError) as error:
            raise ValueError(str(error)) from error
