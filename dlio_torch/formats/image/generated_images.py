"""Synthetic images: colour gradients with as much noise as gives their files the configured size."""

from __future__ import annotations

import io
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import ConfigError
from dlio_torch.formats.core import payload
from dlio_torch.formats.image.options import ImageConfig

_NOISES = tuple((i / 16) ** 2 for i in range(17))  # share of noise in an image, where file sizes are tried
_TRIALS = 2
_DEFAULT_NOISE = 0.1
_BEST_QUALITY = 95  # above it libjpeg makes larger files and hardly better ones
_SIZES = 1  # stream of the spread of file sizes; 0: pixels

Pixels = npt.NDArray[np.uint8]


@dataclass(frozen=True)
class Encoder:
    """Encoder of an image file.

    Attributes:
        codec: as Pillow names it.
        save_options: arguments of Pillow's ``save``.
    """

    codec: str
    save_options: Mapping[str, Any]

    def __call__(self, pixels: Pixels) -> bytes:
        """Encodes pixels of ``(height, width, 3)``."""
        from PIL import Image

        stored = io.BytesIO()
        Image.fromarray(pixels).save(stored, self.codec, **self.save_options)
        return stored.getvalue()


class GeneratedImages:
    """The images of a data set, as functions of seed and sample.

    Args:
        seed: of the content.
        options: size of the files.
        encoder: makes the files.
        usual: height and width in the mean.
        size: gives height and width of a sample; ``None``: all have the usual ones.

    Raises:
        ConfigError: Pillow does not encode with the quality.
    """

    def __init__(
        self,
        seed: int,
        options: ImageConfig,
        encoder: Encoder,
        usual: tuple[int, int],
        size: Callable[[int], tuple[int, int]] | None = None,
    ) -> None:
        if options.quality > _BEST_QUALITY:
            raise ConfigError(f"dataset.image.quality={options.quality}", hint="set a quality from 1 to 95")
        self._seed, self._options, self._encoder, self._usual, self._size = seed, options, encoder, usual, size
        self._noises: dict[str, float] | None = None

    def encoded(self, sample: int) -> bytes:
        """The file of a sample."""
        shape = self._usual if self._size is None else self._size(sample)
        return self._encoder(self._pixels(sample, self._noise(sample), shape))

    def _pixels(self, sample: int, noise: float, shape: tuple[int, int]) -> Pixels:
        """Pixels of a colour gradient, of which the share ``noise`` (0 to 1) is replaced by random values."""
        generator = payload.rng(self._seed, sample)
        height, width = shape
        corners = generator.integers(0, 256, (2, 2, 3)).astype(np.float32)
        down = np.linspace(0, 1, height, dtype=np.float32)[:, None, None]
        across = np.linspace(0, 1, width, dtype=np.float32)[None, :, None]
        left, right = (corners[0, i] + (corners[1, i] - corners[0, i]) * down for i in (0, 1))
        smooth = left + (right - left) * across
        random = payload.array(generator, (height, width, 3), np.dtype(np.uint8)).astype(np.float32)
        return np.asarray(smooth + (random - smooth) * np.float32(noise)).astype(np.uint8)

    def _noise(self, sample: int) -> float:
        """Share of noise by which the file of this sample gets its size."""
        options = self._options
        if not options.file_bytes:
            return _DEFAULT_NOISE
        # Of an image of the usual size; a larger one with this noise has a larger file.
        sizes = list(self.parameters().values())
        wanted = payload.lengths(self._seed, _SIZES, sample, 1, options.file_bytes, options.file_bytes_stdev)[0]
        return float(np.interp(wanted, sizes, _NOISES))

    def parameters(self) -> dict[str, float]:
        """Mean size of a file in bytes at each share of noise; empty if no file size is configured.

        Raises:
            ConfigError: no share of noise gives the configured size.
        """
        if not self._options.file_bytes:
            return {}
        if self._noises is None:
            sizes = [self._trial_bytes(noise) for noise in _NOISES]
            sizes = np.maximum.accumulate(sizes).tolist()
            self._check(sizes[0], sizes[-1])
            self._noises = {_noise_key(noise): size for noise, size in zip(_NOISES, sizes, strict=True)}
        return self._noises

    def use_parameters(self, parameters: Mapping[str, float]) -> None:
        """Uses the parameters of an existing data set.

        Raises:
            ValueError: they are others than :meth:`parameters` has.
        """
        if not self._options.file_bytes:
            return
        if set(parameters) != {_noise_key(noise) for noise in _NOISES}:
            raise ValueError("the parameters belong to other shares of noise")
        self._noises = {_noise_key(noise): parameters[_noise_key(noise)] for noise in _NOISES}

    def mean_bytes(self) -> float:
        """Bytes of a file in the mean."""
        return float(self._options.file_bytes) or self._trial_bytes(_DEFAULT_NOISE)

    def _trial_bytes(self, noise: float) -> float:
        trials = (self._encoder(self._pixels(sample, noise, self._usual)) for sample in range(_TRIALS))
        return float(np.mean([len(stored) for stored in trials]))

    def _check(self, low: float, high: float) -> None:
        wanted = self._options.file_bytes
        if not low <= wanted <= high:
            shape = "x".join(map(str, (*self._usual, 3)))
            raise ConfigError(
                f"dataset.image.file_bytes={wanted} is not possible: {self._encoder.codec} files of {shape} have "
                f"{low:.0f} to {high:.0f} bytes",
                hint="choose a size in that range, another shape in dataset.fields"
                + (", or another dataset.image.quality" if self._encoder.save_options else ""),
            )


def _noise_key(noise: float) -> str:
    return f"bytes_at_noise_{noise:.4f}"
