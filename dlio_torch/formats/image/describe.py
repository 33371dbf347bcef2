"""Description of existing images from the headers of some of them."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import FieldConfig
from dlio_torch.errors import DataError
from dlio_torch.formats.core.data_description import DataDescription, StoredArray
from dlio_torch.formats.image.classes import class_names, file_names
from dlio_torch.formats.image.completeness import ImageHeader, check_complete
from dlio_torch.formats.image.options import SUFFIXES, ImageConfig
from dlio_torch.formats.image.pillow_codec import library_version
from dlio_torch.formats.image.sizes import first_names, holds_images
from dlio_torch.units import counted

_MOST_HEADERS = 256
_ORIENTATION = 0x0112  # EXIF
_UPRIGHT = 1
_MOST_NAMES = 1000
_SHOWN = 4
_TRANSFORMED = (
    f"images are decoded and cropped to {ImageConfig().size} x {ImageConfig().size} pixels, as in a training; "
    "dataset.image.transform and dataset.image.size change that"
)
_UNLABELLED = "a pattern is read without labels; dataset.image.classes=true takes them from the folders"


def describe_pixels(path: Path) -> DataDescription:
    """Describes an image of format jpeg or png, whose files all have one size.

    Raises:
        DataError: no image.
        MissingPackageError: Pillow is not installed.
    """
    library_version("jpg", "jpeg")
    header = check_complete(path)
    field = FieldConfig("image", "uint8", [header.height, header.width, 3])
    return DataDescription((field,), samples=1, arrays=(_stored(header),))


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
    if not path.is_file():
        return _folder(path)
    return DataDescription(
        options=_options(classes=False),
        samples=1,
        arrays=(_stored(check_complete(path), path.stat().st_size),),
        notes=(_TRANSFORMED, *([_UNLABELLED] if len(files) > 1 else [])),
    )


def _stored(header: ImageHeader, size: int | None = None) -> StoredArray:
    """An image as its header states it."""
    return StoredArray("image", header.mode, (header.height, header.width), stored_bytes=size)


def _folder(path: Path) -> DataDescription:
    """Describes a folder of images.

    Raises:
        DataError: it contains no images.
    """
    shown = first_names(path, _MOST_NAMES)
    inner = [name for name in shown if (path / name).is_dir()]
    flat = holds_images(set(shown).difference(inner))
    names, others = [], Counter[str]()
    for name in file_names(path, classes=not flat):
        suffix = os.path.splitext(name)[1].lower()
        if suffix in SUFFIXES:
            names.append(name)
        else:
            others[suffix or os.path.basename(name)] += 1
    if not names:
        raise DataError(f"{path} contains no images", hint="give the folder of images")
    sample = _Sample(path, names)
    heights, widths = ({getattr(header, side) for header in sample.headers} for side in ("height", "width"))
    details: dict[str, Any] = {
        "suffixes": dict(Counter(os.path.splitext(name)[1].lower() for name in names).most_common()),
        "headers_read": len(sample.headers) + len(sample.damaged),
        "modes": dict(Counter(header.mode for header in sample.headers).most_common()),
        "height": _range(heights),
        "width": _range(widths),
    }
    notes = [_TRANSFORMED]
    arrays = [StoredArray("image", "uint8")]
    if flat:
        notes.append("images lie in no class folders and have no labels")
        notes += ["images in subfolders are read as well"] if inner else []
    else:
        arrays.append(StoredArray("label", "int64", ()))
        classes = class_names(path)
        details["classes"] = len(classes)
        notes += _about_classes(classes, names)
        others.update(_beside_classes(path))
    notes += [*sample.notes(), *_about_others(names, others)]
    return DataDescription(
        options=_options(classes=not flat),
        samples=len(names),
        arrays=tuple(arrays),
        notes=tuple(notes),
        details=details,
    )


def _about_classes(classes: Sequence[str], names: Sequence[str]) -> Iterator[str]:
    """A line about class folders without images."""
    empty = sorted(set(classes) - {name.partition("/")[0] for name in names})
    if empty:
        yield (
            f"{counted(len(empty), 'class folder')} without images, such as {empty[0]}: its number is kept, as by "
            "ImageFolder with allow_empty=True, which else refuses the folder"
        )


def _beside_classes(path: Path) -> Iterator[str]:
    """Suffixes of the files beside the class folders that are no images."""
    with os.scandir(path) as entries:
        for entry in entries:
            suffix = os.path.splitext(entry.name)[1].lower()
            if entry.is_file() and suffix not in SUFFIXES:
                yield suffix or entry.name


def _about_others(names: Sequence[str], others: Counter[str]) -> Iterator[str]:
    """Lines about files that are not read, and about hidden folders that are."""
    if others:
        shown = ", ".join(f"{suffix} {count}" for suffix, count in others.most_common(_SHOWN))
        yield f"not read, since no image has their suffix: {counted(others.total(), 'file')} ({shown})"
    hidden = sorted({part for name in names for part in name.split("/")[:-1] if part.startswith(".")})
    if hidden:
        yield f"hidden folders are read as well, as by ImageFolder: {', '.join(hidden[:_SHOWN])}"


def _options(*, classes: bool) -> dict[str, Any]:
    """Options with which images of any size make a batch."""
    options: dict[str, Any] = {"transform": "random_resized_crop", "size": ImageConfig().size}
    return options if classes else options | {"classes": False}


def _range(values: set[int]) -> list[int]:
    return [min(values), max(values)] if values else []


@dataclass
class _Sample:
    """Headers of some images, spread over a folder."""

    folder: Path
    names: list[str]

    def __post_init__(self) -> None:
        from PIL import Image

        step = max(1, len(self.names) // _MOST_HEADERS)
        self.headers: list[ImageHeader] = []
        self.damaged: list[str] = []
        self.turned = self.animated = 0
        for name in self.names[::step][:_MOST_HEADERS]:
            try:
                self.headers.append(check_complete(self.folder / name))
            except DataError:
                self.damaged.append(name)
                continue
            with suppress(Exception), warnings.catch_warnings():  # an EXIF block that cannot be parsed is none
                warnings.simplefilter("ignore")
                with Image.open(self.folder / name) as image:
                    self.turned += image.getexif().get(_ORIENTATION, _UPRIGHT) != _UPRIGHT
                    self.animated += getattr(image, "n_frames", 1) > 1

    def notes(self) -> list[str]:
        """Lines about images that are not as usual."""
        lines = []
        among = f"of {len(self.headers) + len(self.damaged)} images whose headers were read"
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
