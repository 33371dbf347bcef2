"""Description of existing images from the headers of some of them."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.image.classes import SUFFIXES, class_names, image_names
from dlio_torch.formats.image.completeness import check_complete
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.image.pillow_codec import library_version
from dlio_torch.formats.image.sizes import first_names, holds_images
from dlio_torch.units import counted

_MOST_HEADERS = 256
_ORIENTATION = 0x0112  # EXIF
_UPRIGHT = 1
_MOST_NAMES = 1000
_SHOWN = 4
_UNLABELLED = "a pattern is read without labels; dataset.image.classes=true takes them from the folders"


def describe_pixels(path: Path) -> DataDescription:
    """Describes an image of format jpeg or png, whose files all have one size.

    Raises:
        DataError: no image.
        MissingPackageError: Pillow is not installed.
    """
    library_version("jpg", "jpeg")
    (width, height), mode = check_complete(path)
    field = FieldConfig("image", "uint8", [height, width, 3])
    return DataDescription((field,), samples=1, arrays=(StoredArray("image", mode, (height, width)),))


def describe(path: Path, files: Sequence[Path] = ()) -> DataDescription:
    """Describes an image file, or a folder of images with class folders or without.

    Args:
        path: of the file or the folder.
        files: all files of a pattern.

    Raises:
        DataError: no image, or a folder without images.
        MissingPackageError: Pillow is not installed.
    """
    library_version("jpg", "imagefolder")
    if path.is_file():
        (width, height), mode = check_complete(path)
        return DataDescription(
            options=_options(classes=False),
            samples=1,
            arrays=(StoredArray("image", mode, (height, width), stored_bytes=path.stat().st_size),),
            notes=(*_transform_notes(), *([_UNLABELLED] if len(files) > 1 else [])),
        )
    flat = holds_images(name for name in first_names(path, _MOST_NAMES) if not (path / name).is_dir())
    names = image_names(path, classes=not flat)
    if not names:
        raise DataError(f"{path} contains no images", hint="give the folder of images")
    sample = _Sample(path, names)
    shapes = {shape for shape, _ in sample.sizes}
    details: dict[str, Any] = {
        "suffixes": dict(Counter(os.path.splitext(name)[1].lower() for name in names).most_common()),
        "headers_read": len(sample.sizes) + len(sample.damaged),
        "modes": dict(Counter(mode for _, mode in sample.sizes).most_common()),
        "height": _range([height for height, _ in shapes]),
        "width": _range([width for _, width in shapes]),
    }
    notes = list(_transform_notes())
    if flat:
        notes.append("images lie in no class folders and have no labels")
        if any((path / name).is_dir() for name in first_names(path, _MOST_NAMES)):
            notes.append("images in subfolders are read as well")
    else:
        classes = class_names(path)
        details["classes"] = len(classes)
        empty = sorted(set(classes) - {name.partition("/")[0] for name in names})
        if empty:
            notes.append(
                f"{counted(len(empty), 'class folder')} without images, such as {empty[0]}: its number is kept, as by "
                "ImageFolder with allow_empty=True, which else refuses the folder"
            )
    notes += sample.notes()
    others = Counter(
        os.path.splitext(name)[1].lower() or name
        for _, _, files in os.walk(path)
        for name in files
        if not name.lower().endswith(SUFFIXES)
    )
    if others:
        shown = ", ".join(f"{suffix} {count}" for suffix, count in others.most_common(_SHOWN))
        notes.append(f"not read, since no image has their suffix: {counted(others.total(), 'file')} ({shown})")
    hidden = sorted({part for name in names for part in name.split("/")[:-1] if part.startswith(".")})
    if hidden:
        notes.append(f"hidden folders are read as well, as by ImageFolder: {', '.join(hidden[:_SHOWN])}")
    return DataDescription(
        options=_options(classes=not flat),
        samples=len(names),
        arrays=(StoredArray("image", "uint8"), *(() if flat else (StoredArray("label", "int64", ()),))),
        notes=tuple(notes),
        details=details,
    )


def _options(*, classes: bool) -> dict[str, Any]:
    """Options with which images of any size make a batch."""
    options: dict[str, Any] = {"transform": "random_resized_crop", "size": ImageConfig().size}
    return options if classes else options | {"classes": False}


def _transform_notes() -> tuple[str, ...]:
    size = ImageConfig().size
    return (
        f"images are decoded and cropped to {size} x {size} pixels, as in a training; dataset.image.transform and "
        "dataset.image.size change that",
    )


def _range(values: list[int]) -> list[int]:
    return [min(values), max(values)] if values else []


@dataclass
class _Sample:
    """Headers of some images, spread over a folder."""

    folder: Path
    names: list[str]

    def __post_init__(self) -> None:
        from PIL import Image

        step = max(1, len(self.names) // _MOST_HEADERS)
        self.sizes: list[tuple[tuple[int, int], str]] = []
        self.damaged: list[str] = []
        self.turned = self.animated = 0
        for name in self.names[::step][:_MOST_HEADERS]:
            try:
                (width, height), mode = check_complete(self.folder / name)
            except DataError:
                self.damaged.append(name)
                continue
            self.sizes.append(((height, width), mode))
            with suppress(Exception), warnings.catch_warnings():  # an EXIF block that cannot be parsed is none
                warnings.simplefilter("ignore")
                with Image.open(self.folder / name) as image:
                    self.turned += image.getexif().get(_ORIENTATION, _UPRIGHT) != _UPRIGHT
                    self.animated += getattr(image, "n_frames", 1) > 1

    def notes(self) -> list[str]:
        """Lines about images that are not as usual."""
        lines = []
        among = f"of {len(self.sizes) + len(self.damaged)} images whose headers were read"
        if self.damaged:
            lines.append(
                f"{len(self.damaged)} {among} are damaged or incomplete, such as {self.damaged[0]}; "
                "dataset.image.on_error=skip leaves them out"
            )
        if self.turned:
            lines.append(f"{self.turned} {among} have an EXIF orientation, which is not applied, as by ImageFolder")
        if self.animated:
            lines.append(f"{self.animated} {among} have several frames, of which the first is read")
        return lines
