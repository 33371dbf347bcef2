"""Formats ``jpeg`` and ``png``: one image per file, written by Pillow and read as torchvision's ImageFolder reads.

A file is opened, decoded and closed each time that its sample is read (``pil_loader``: ``open(path, "rb")``,
``Image.open(file).convert("RGB")``).  The labels are the numbers of the class folders, as ``ImageFolder``
gives them, where ``dataset.num_subfolders`` makes class folders.

JPEG loses information and both encoders change with their versions: what a JPEG sample is, is what decoding
its file gives.  The version of the library is therefore among what names a data set on disk.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import cached_property
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.buffered_file import open_buffered, refusing
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.image.layout import image_layout
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.image.pillow_codec import decoded, library_version, pixels_of
from dlio_torch.formats.image.pixel_spec import _ONE, LABEL, pixel_spec
from dlio_torch.formats.image.reader import ClassFolders, ImageReader
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

if TYPE_CHECKING:
    from PIL import Image

_SPLIT = 1 << 40  # evaluation samples are numbered from here on
_NOISES = tuple((i / 16) ** 2 for i in range(17))  # share of noise in an image, where file sizes are tried
_TRIALS = 2
_DEFAULT_NOISE = 0.1
_SIZES = 1  # stream of the spread of file sizes; 0: pixels
_TAIL_BYTES = 64 << 10

_Pixels = npt.NDArray[np.uint8]


class _ImageFormat(Format):
    """Base of the formats whose files are single images in class folders."""

    reads_direct: ClassVar[bool] = True
    writes_at_once: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True
    codec: ClassVar[str]  # as Pillow names it
    accepted: ClassVar[tuple[str, ...]]  # what Pillow may call such a file
    magic: ClassVar[bytes]  # begins a file
    end_mark: ClassVar[bytes]  # stands near the end of a complete file
    library: ClassVar[str]  # whose version the bytes depend on, as Pillow names it

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: ImageConfig = config.of(ImageConfig)
        super().__init__(config, seed)
        self._version = library_version(self.library, self.name)
        self._spec = pixel_spec(config, self.name)
        self._noises: dict[str, float] | None = None
        self._classes = ClassFolders()

    def specs(self) -> list[ArraySpec]:
        spec = self._spec
        if not self.options.decode:
            spec = ArraySpec(spec.name, spec.dtype, (), variable=True)
        labels = [ArraySpec(LABEL, np.dtype(np.int64), ())] if self.config.num_subfolders else []
        return [spec, *labels]

    def layout_options(self) -> dict[str, Any]:
        options = self.options
        sizes = {"file_bytes": options.file_bytes, "file_bytes_stdev": options.file_bytes_stdev}
        return {**super().layout_options(), **sizes, **self.save_options(), "library": self._version}

    def save_options(self) -> dict[str, Any]:
        """Arguments of Pillow's ``save``."""
        return {}

    # --- content ---

    def expected(self, sample: int) -> Sample:
        content: Sample = {}
        stored = self._encode(self._pixels(sample, self._noise(sample)))
        if self.options.decode:
            content[self._spec.name] = decoded(stored)
        else:
            content[self._spec.name] = np.frombuffer(stored, np.uint8)
        if self.config.num_subfolders:
            # Files, and with them samples, are dealt to the folders in turn.
            content[LABEL] = np.asarray(sample % _SPLIT % self.config.num_subfolders, np.int64)
        return content

    def _pixels(self, sample: int, noise: float) -> _Pixels:
        """Pixels of a colour gradient, of which the share ``noise`` (0 to 1) is replaced by random values."""
        generator = payload.rng(self.seed, sample)
        height, width, _ = self._spec.shape
        corners = generator.integers(0, 256, (2, 2, 3)).astype(np.float32)
        down = np.linspace(0, 1, height, dtype=np.float32)[:, None, None]
        across = np.linspace(0, 1, width, dtype=np.float32)[None, :, None]
        left, right = (corners[0, i] + (corners[1, i] - corners[0, i]) * down for i in (0, 1))
        smooth = left + (right - left) * across
        random = payload.array(generator, self._spec.shape, np.dtype(np.uint8)).astype(np.float32)
        return np.asarray(smooth + (random - smooth) * np.float32(noise)).astype(np.uint8)

    def _encode(self, pixels: _Pixels) -> bytes:
        from PIL import Image

        stored = io.BytesIO()
        Image.fromarray(pixels).save(stored, self.codec, **self.save_options())
        return stored.getvalue()

    def _noise(self, sample: int) -> float:
        """Share of noise by which the file of this sample gets its size."""
        options = self.options
        if not options.file_bytes:
            return _DEFAULT_NOISE
        sizes = list(self.parameters().values())
        wanted = payload.lengths(self.seed, _SIZES, sample, 1, options.file_bytes, options.file_bytes_stdev)[0]
        return float(np.interp(wanted, sizes, _NOISES))

    # --- fitting ---

    def parameters(self) -> dict[str, float]:
        """Mean size of a file in bytes at each share of noise; empty if no file size is configured."""
        if not self.options.file_bytes:
            return {}
        if self._noises is None:
            sizes = [self._trial_bytes(noise) for noise in _NOISES]
            sizes = np.maximum.accumulate(sizes).tolist()
            self._check(sizes[0], sizes[-1])
            self._noises = {_noise_key(noise): size for noise, size in zip(_NOISES, sizes, strict=True)}
        return self._noises

    def use_parameters(self, parameters: Mapping[str, float]) -> None:
        if not self.options.file_bytes:
            return
        if set(parameters) != {_noise_key(noise) for noise in _NOISES}:
            raise ValueError("the parameters belong to other shares of noise")
        self._noises = {_noise_key(noise): parameters[_noise_key(noise)] for noise in _NOISES}

    def _trial_bytes(self, noise: float) -> float:
        return float(np.mean([len(self._encode(self._pixels(sample, noise))) for sample in range(_TRIALS)]))

    def _check(self, low: float, high: float) -> None:
        wanted = self.options.file_bytes
        if not low <= wanted <= high:
            shape = "x".join(map(str, self._spec.shape))
            raise ConfigError(
                f"dataset.image.file_bytes={wanted} is not possible: {self.codec} files of {shape} have {low:.0f} to "
                f"{high:.0f} bytes",
                hint="choose a size in that range, another shape in dataset.fields"
                + (", or another dataset.image.quality" if self.save_options() else ""),
            )

    # --- sizes ---

    def sample_bytes(self) -> float:
        pixels = math.prod(self._spec.shape) if self.options.decode else self.stored_bytes()
        return pixels + (8 if self.config.num_subfolders else 0)

    def stored_bytes(self) -> float:
        return float(self.options.file_bytes) or self._trial_bytes(_DEFAULT_NOISE)

    # --- files ---

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        if num_samples != 1:
            raise ConfigError(f"a {self.codec} file holds one image, not {num_samples}", hint=_ONE)
        path.write_bytes(self._encode(self._pixels(first_sample, self._noise(first_sample))))

    def inspect(self, path: Path) -> FileInfo:
        """Check header and end of the file; the pixels are not decoded."""
        from PIL import Image

        with refusing(path), open_buffered(path, 0) as file:
            with Image.open(file) as image:
                self.check(image, path)
                size = path.stat().st_size
                details = {"size": list(image.size), "mode": image.mode, "bytes": size}
            file.seek(max(0, size - _TAIL_BYTES))
            self.check_end(file.read(), path)
        return FileInfo(1, details)

    def check(self, image: Image.Image, path: Path) -> None:
        """Raise unless the opened file has this format and its image has the specified size.

        Raises:
            DataError: it is another one.
        """
        if image.format not in self.accepted:
            raise DataError(
                f"{path} holds a {image.format} image",
                hint=f"replace the file by a {self.codec} file, or correct dataset.format",
            )
        height, width, _ = self._spec.shape
        if self.options.decode and image.size != (width, height):
            raise DataError(
                f"{path}: the image has {image.size[1]} x {image.size[0]} pixels, but dataset.fields expect {height} "
                f"x {width}",
                hint="correct the shape in dataset.fields, or set dataset.image.decode=false to read stored bytes",
            )

    def check_end(self, tail: bytes, path: Path) -> None:
        """Raise unless ``tail`` is the end of a complete file.

        Raises:
            DataError: it is not.
        """
        if self.end_mark not in tail:
            raise DataError(
                f"{path} is truncated: the end marker of the image is missing",
                hint="the file is incomplete; generate or fetch the file again",
            )

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return ImageReader(path, self.options.buffer_bytes, direct=self.config.direct_io, **self._ways(path))

    def layout(self, path: Path) -> FileLayout:
        return image_layout(path, self._expected_bytes, **self._ways(path))

    def _ways(self, path: Path) -> dict[str, Any]:
        """Settings that a reader of one file needs."""
        decode = self.options.decode
        start, finish = (self._begin, pixels_of) if decode else (self._stored, _same)
        label = (LABEL, self._classes.number(path)) if self.config.num_subfolders else None
        return {"start": start, "finish": finish, "name": self._spec.name, "variable": not decode, "label": label}

    @cached_property
    def _expected_bytes(self) -> float:
        return self.stored_bytes()

    def _begin(self, file: IO[bytes], path: Path) -> Image.Image:
        """Open the file and read its header, as Pillow does before it decodes pixels."""
        from PIL import Image

        image = Image.open(file)
        self.check(image, path)
        return image

    def _stored(self, file: IO[bytes], path: Path) -> npt.NDArray[np.generic]:
        """Read the whole file."""
        stored = bytearray(file.read())
        if not stored.startswith(self.magic):
            raise DataError(
                f"{path} is not a {self.codec} file",
                hint=f"replace the file by a {self.codec} file, or correct dataset.format",
            )
        self.check_end(bytes(stored[-_TAIL_BYTES:]), path)
        return np.frombuffer(stored, np.uint8)


class JpegFormat(_ImageFormat):
    """JPEG files of ``dataset.image.quality``."""

    name: ClassVar[str] = "jpeg"
    suffix: ClassVar[str] = ".jpeg"
    codec: ClassVar[str] = "JPEG"
    accepted: ClassVar[tuple[str, ...]] = ("JPEG", "MPO")
    magic: ClassVar[bytes] = b"\xff\xd8\xff"
    end_mark: ClassVar[bytes] = b"\xff\xd9"
    library: ClassVar[str] = "jpg"

    def save_options(self) -> dict[str, Any]:
        return {"quality": self.options.quality}


class PngFormat(_ImageFormat):
    """PNG files."""

    name: ClassVar[str] = "png"
    suffix: ClassVar[str] = ".png"
    codec: ClassVar[str] = "PNG"
    accepted: ClassVar[tuple[str, ...]] = ("PNG",)
    magic: ClassVar[bytes] = b"\x89PNG\r\n\x1a\n"
    end_mark: ClassVar[bytes] = b"IEND"
    library: ClassVar[str] = "zlib"


def _noise_key(noise: float) -> str:
    return f"bytes_at_noise_{noise:.4f}"


def _same(array: npt.NDArray[np.generic]) -> npt.NDArray[np.generic]:
    return array
