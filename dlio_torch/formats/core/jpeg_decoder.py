"""Native decoder of JPEG images, for those kinds of images of which it gives the pixels that Pillow gives."""

from __future__ import annotations

import functools
import io
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import numpy.typing as npt

from dlio_torch import native
from dlio_torch.native.jpeg import JpegFile, JpegHeader, NativeJpeg, Sampling
from dlio_torch.native.memory import address_of

_SIZES = ((37, 53), (64, 48), (1, 1), (16, 17), (9, 130))
_PILLOW_SAMPLINGS = {Sampling.YCBCR_444: 0, Sampling.YCBCR_422: 1, Sampling.YCBCR_420: 2}
"""Pillow's numbers of the samplings that it writes."""


class PlainJpegDecoder:
    """Thread-safe reader and decoder of plain JPEG images; runs without the interpreter lock.

    Args:
        library: reads and decodes.
        samplings: of images of which it gives Pillow's pixels.
    """

    def __init__(self, library: NativeJpeg, samplings: frozenset[Sampling]) -> None:
        self._library = library
        self._samplings = samplings
        self.decode = library.decode

    def read(self, path: Path, expected: float | None) -> JpegFile:
        """Reads a whole file of any kind; see :meth:`NativeJpeg.read`."""
        return self._library.read(path, expected)

    def header(self, address: int, length: int) -> JpegHeader | None:
        """The header of an image in memory; ``None``: Pillow must decode it."""
        return self.usable(self._library.header(address, length))

    def usable(self, header: JpegHeader) -> JpegHeader | None:
        """The header of an image; ``None``: Pillow must decode it."""
        return header if header.sampling in self._samplings else None


@functools.cache
def plain_jpeg_decoder() -> PlainJpegDecoder | None:
    """The decoder of this machine, compared with Pillow now; ``None``: it has none that gives Pillow's pixels."""
    try:
        library = NativeJpeg()
    except native.NativeUnavailable:
        return None
    equal = frozenset(sampling for sampling in Sampling if _gives_pixels_of_pillow(library, sampling))
    return PlainJpegDecoder(library, equal) if equal else None


def _gives_pixels_of_pillow(library: NativeJpeg, sampling: Sampling) -> bool:
    if sampling is Sampling.NOT_PLAIN:
        return False
    return all(_same_pixels(library, sampling, stored) for stored in _images(sampling))


def _same_pixels(library: NativeJpeg, sampling: Sampling, stored: bytes) -> bool:
    from PIL import Image

    address = address_of(np.frombuffer(stored, np.uint8))  # valid as long as the bytes
    header = library.header(address, len(stored))
    with Image.open(io.BytesIO(stored)) as image:
        want = np.asarray(image.convert("RGB"))
    pixels = np.empty((header.height, header.width, 3), np.uint8)
    return (
        header.sampling is sampling
        and pixels.shape == want.shape
        and library.decode(address, len(stored), header, address_of(pixels))
        and np.array_equal(pixels, want)
    )


def _images(sampling: Sampling) -> Iterator[bytes]:
    """Encoded images of several sizes and qualities, smooth ones and noise."""
    from PIL import Image

    generator = np.random.default_rng(0)
    for height, width in _SIZES:
        noise = generator.integers(0, 256, (height, width, 3), np.uint8)
        coarse = generator.integers(0, 256, (2, 2, 3), np.uint8)
        for quality, pixels in ((75, noise), (95, _enlarged(coarse, height, width))):
            image = Image.fromarray(pixels)
            image = image.convert("L") if sampling is Sampling.GREY else image
            file = io.BytesIO()
            image.save(file, "JPEG", quality=quality, subsampling=_PILLOW_SAMPLINGS.get(sampling, -1))
            yield file.getvalue()


def _enlarged(pixels: npt.NDArray[np.uint8], height: int, width: int) -> npt.NDArray[np.uint8]:
    from PIL import Image

    return np.asarray(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))
