"""Formats ``jpeg`` and ``png``: one image per file, written by Pillow and read as torchvision's ImageFolder reads.

A file is opened, decoded and closed each time that its sample is read (``pil_loader``: ``open(path, "rb")``,
``Image.open(file).convert("RGB")``).  The labels are the numbers of the class folders, as ``ImageFolder``
gives them, where ``dataset.num_subfolders`` makes class folders.

JPEG loses information and both encoders change with their versions: what a JPEG sample is, is what decoding
its file gives.  The version of the library is therefore among what names a data set on disk.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from concurrent.futures import Executor
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.device_decoder import DeviceDecoder
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.image.classes import ClassFolders
from dlio_torch.formats.image.completeness import check_complete, check_stored, details_of
from dlio_torch.formats.image.decoders import nvjpeg_on
from dlio_torch.formats.image.generated_images import Encoder, GeneratedImages
from dlio_torch.formats.image.jpeg_record import PixelSample
from dlio_torch.formats.image.labels import LABEL, generated_class, labelled
from dlio_torch.formats.image.layout import image_layout
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.image.pillow_codec import decoded, library_version, pixels_of
from dlio_torch.formats.image.pixel_spec import ONE_IMAGE, pixel_spec
from dlio_torch.formats.image.reader import ImageReader
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

if TYPE_CHECKING:
    import torch
    from PIL import Image


class _ImageFormat(Format):
    """Base of the formats whose files are single images in class folders."""

    reads_direct: ClassVar[bool] = True
    writes_at_once: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True
    codec: ClassVar[str]  # as Pillow names it
    accepted: ClassVar[tuple[str, ...]]  # what Pillow may call such a file
    magic: ClassVar[bytes]  # begins a file
    library: ClassVar[str]  # whose version the bytes depend on, as Pillow names it

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: ImageConfig = config.of(ImageConfig)
        super().__init__(config, seed)
        self._version = library_version(self.library, self.name)
        self._spec = pixel_spec(config, self.name)
        usual = (self._spec.shape[0], self._spec.shape[1])
        self._images = GeneratedImages(seed, self.options, Encoder(self.codec, self.save_options()), usual)
        self._classes = ClassFolders()

    def specs(self) -> list[ArraySpec]:
        spec = self._spec
        if not self.options.decoded_by_readers:
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
        stored = self._images.encoded(sample)
        pixels = decoded(stored) if self.options.decoded_by_readers else np.frombuffer(stored, np.uint8)
        folders = self.config.num_subfolders
        return labelled({self._spec.name: pixels}, generated_class(sample, folders) if folders else None)

    def parameters(self) -> dict[str, float]:
        """Mean size of a file in bytes at each share of noise; empty if no file size is configured."""
        return self._images.parameters()

    def use_parameters(self, parameters: Mapping[str, float]) -> None:
        self._images.use_parameters(parameters)

    # --- sizes ---

    def sample_bytes(self) -> float:
        pixels = math.prod(self._spec.shape) if self.options.decoded_by_readers else self.stored_bytes()
        return pixels + (8 if self.config.num_subfolders else 0)

    def stored_bytes(self) -> float:
        return self._images.mean_bytes()

    # --- files ---

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        if num_samples != 1:
            raise ConfigError(f"a {self.codec} file holds one image, not {num_samples}", hint=ONE_IMAGE)
        path.write_bytes(self._images.encoded(first_sample))

    def inspect(self, path: Path) -> FileInfo:
        """Check header and end of the file; the pixels are not decoded."""
        header = check_complete(path)
        self.check(header.kind, (header.width, header.height), path)
        return FileInfo(1, details_of(header, path))

    def check(self, kind: str | None, size: tuple[int, int], path: Path) -> None:
        """Raise unless a file has this format and its image has the specified size.

        Args:
            kind: format of the file, as Pillow names it.
            size: width and height in pixels.
            path: for the error.

        Raises:
            DataError: it is another one.
        """
        if kind not in self.accepted:
            raise DataError(
                f"{path} holds a {kind} image",
                hint=f"replace the file by a {self.codec} file, or correct dataset.format",
            )
        height, width, _ = self._spec.shape
        if self.options.decode and size != (width, height):
            raise DataError(
                f"{path}: the image has {size[1]} x {size[0]} pixels, but dataset.fields expect {height} x {width}",
                hint="correct the shape in dataset.fields, or set dataset.image.decode=false to read stored bytes",
            )

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return ImageReader(path, self.options.buffer_bytes, direct=self.config.direct_io, **self._ways(path))

    def layout(self, path: Path) -> FileLayout:
        return image_layout(path, self._expected_bytes, **self._ways(path), pixels=self._pixel_sample(path))

    def _pixel_sample(self, path: Path) -> PixelSample | None:
        """Arrays of a sample that native code may decode; ``None``: Pillow must."""
        if self.codec != "JPEG" or not self.options.decoded_by_readers:
            return None
        others = labelled({}, self._number(path))
        return PixelSample(self.specs(), self._spec.name, lambda height, width: others)

    def _ways(self, path: Path) -> dict[str, Any]:
        """Settings that a reader of one file needs."""
        decode = self.options.decoded_by_readers
        return {
            "start": self._begin if decode else self._stored,
            "finish": partial(self._arrays, label=self._number(path)),
            "variable": frozenset() if decode else frozenset({self._spec.name}),
        }

    def _number(self, path: Path) -> int | None:
        """Number of the class of a file; ``None``: there are no classes."""
        return self._classes.number(path) if self.config.num_subfolders else None

    def _arrays(self, started: Any, path: Path, label: int | None) -> Sample:
        """The arrays of an open image, or of the stored bytes."""
        return labelled({self._spec.name: pixels_of(started) if self.options.decoded_by_readers else started}, label)

    @cached_property
    def _expected_bytes(self) -> float:
        return self.stored_bytes()

    def _begin(self, file: IO[bytes], path: Path) -> Image.Image:
        """Open the file and read its header, as Pillow does before it decodes pixels."""
        from PIL import Image

        image = Image.open(file)
        self.check(image.format, image.size, path)
        return image

    def _stored(self, file: IO[bytes], path: Path) -> npt.NDArray[np.generic]:
        """Read the whole file."""
        stored = file.read()
        if not stored.startswith(self.magic):
            raise DataError(
                f"{path} is not a {self.codec} file",
                hint=f"replace the file by a {self.codec} file, or correct dataset.format",
            )
        check_stored(stored, path, self.codec)
        return np.frombuffer(bytearray(stored), np.uint8)


class JpegFormat(_ImageFormat):
    """JPEG files of ``dataset.image.quality``."""

    name: ClassVar[str] = "jpeg"
    suffix: ClassVar[str] = ".jpeg"
    codec: ClassVar[str] = "JPEG"
    accepted: ClassVar[tuple[str, ...]] = ("JPEG", "MPO")
    magic: ClassVar[bytes] = b"\xff\xd8\xff"
    library: ClassVar[str] = "jpg"

    def save_options(self) -> dict[str, Any]:
        return {"quality": self.options.quality}

    def device_decoder(self, device: torch.device) -> DeviceDecoder | None:
        return nvjpeg_on(device, self.options, self._spec, self.seed) if self.options.decoder == "nvjpeg" else None


class PngFormat(_ImageFormat):
    """PNG files."""

    name: ClassVar[str] = "png"
    suffix: ClassVar[str] = ".png"
    codec: ClassVar[str] = "PNG"
    accepted: ClassVar[tuple[str, ...]] = ("PNG",)
    magic: ClassVar[bytes] = b"\x89PNG\r\n\x1a\n"
    library: ClassVar[str] = "zlib"
