"""torchvision's modules that decode JPEG images by nvJPEG and transform images on a GPU."""

from __future__ import annotations

import io
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from dlio_torch.errors import MissingPackageError, PreconditionError
from dlio_torch.formats.core.libraries import import_library

_NEED = "dataset.image.decoder=nvjpeg needs torchvision"
_OTHERWISE = "set dataset.image.decoder=pillow"
_SIDE = 64  # pixels of the image that is decoded to learn whether torchvision can


@dataclass(frozen=True)
class Torchvision:
    """Modules of torchvision.

    Attributes:
        io: ``torchvision.io``, with ``decode_jpeg``.
        functional: ``torchvision.transforms.v2.functional``.
    """

    io: Any
    functional: Any


def nvjpeg_library(device: torch.device) -> Torchvision:
    """Imports torchvision and decodes a small image on the GPU, by which its library gets ready.

    Raises:
        MissingPackageError: torchvision is not installed, or belongs to another torch.
        PreconditionError: torchvision cannot decode JPEG images on this GPU.
    """
    library = _imported()
    try:
        library.io.decode_jpeg([_small_image()], mode=library.io.ImageReadMode.RGB, device=device)
    except (RuntimeError, AttributeError, TypeError) as error:  # without nvJPEG or operators, or of another release
        raise PreconditionError(
            f"dataset.image.decoder=nvjpeg: torchvision cannot decode on {device}: {first_line(error)}",
            hint=f"install a torchvision with nvJPEG that fits this torch, or {_OTHERWISE}",
        ) from error
    return library


def first_line(error: Exception) -> str:
    """The first line of an error's message; torch appends lines about its own source."""
    return (str(error).splitlines() or [type(error).__name__])[0]


def _imported() -> Torchvision:
    """Imports the modules.

    Raises:
        MissingPackageError: they cannot be imported.
    """
    try:
        return Torchvision(
            *(
                import_library(module, _NEED, "nvjpeg", otherwise=_OTHERWISE)
                for module in ("torchvision.io", "torchvision.transforms.v2.functional")
            )
        )
    except RuntimeError as error:  # its compiled operators belong to another torch
        raise MissingPackageError(
            f"{_NEED}, which cannot be imported ({first_line(error)})",
            hint=f"install the torchvision that fits this torch, or {_OTHERWISE}",
        ) from error


def _small_image() -> torch.Tensor:
    """A JPEG file of one colour."""
    from PIL import Image

    stored = io.BytesIO()
    Image.fromarray(np.full((_SIDE, _SIDE, 3), 128, np.uint8)).save(stored, "JPEG")
    return torch.frombuffer(bytearray(stored.getvalue()), dtype=torch.uint8)
