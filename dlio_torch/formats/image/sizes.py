"""Sizes of existing images, from their headers, and folders of images, by their names."""

from __future__ import annotations

import os
import warnings
from collections.abc import Iterable
from contextlib import suppress
from itertools import islice
from pathlib import Path

from dlio_torch.formats.image.classes import image_names
from dlio_torch.formats.image.options import SUFFIXES


def first_names(folder: Path, most: int) -> list[str]:
    """Some names in a folder; empty if it cannot be listed."""
    with suppress(OSError), os.scandir(folder) as entries:
        return [entry.name for entry in islice(entries, most)]
    return []


def holds_images(names: Iterable[str]) -> bool:
    """Whether most of the files of these names are images."""
    files = [name.lower() for name in names if not name.startswith(".")]
    images = sum(name.endswith(SUFFIXES) for name in files)
    return 2 * images > len(files)


def unequal_images(path: str, most: int) -> tuple[str, tuple[int, int] | None]:
    """Compares the sizes of existing images.

    Args:
        path: value of ``dataset.path``.
        most: images whose headers are read.

    Returns:
        Two images of unequal size, as text, empty if there are none among them; height and width of the first image,
        ``None`` if there is no image.
    """
    from PIL import Image

    folder = Path(path)
    names = image_names(folder, classes=False)[:most] if folder.is_dir() else []
    first: tuple[str, tuple[int, int]] | None = None
    for name in names:
        with suppress(OSError, SyntaxError, ValueError, Image.DecompressionBombError), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            with Image.open(folder / name) as image:
                size = image.height, image.width
            if first is None:
                first = name, size
            elif size != first[1]:
                shown = [f"{label} ({shape[0]} x {shape[1]})" for label, shape in (first, (name, size))]
                return " and ".join(shown), first[1]
    return "", first[1] if first is not None else None
