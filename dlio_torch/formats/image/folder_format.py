"""Format ``imagefolder``: images of any kind and size in class folders, read as torchvision's ImageFolder reads them.

An image is opened, decoded, transformed and closed each time that its sample is read (``pil_loader``:
``open(path, "rb")``, ``Image.open(file).convert("RGB")``), with the Pillow calls of torchvision's transforms.  As with
that loader, an EXIF orientation is not applied, and of an animation the first frame is read.

An image that keeps its size (``dataset.image.transform=none``) is an array of variable length, with one row a pixel,
and its height and width stand beside it; where ``dataset.fields`` state one size for all, it is an array of that shape.
"""

from __future__ import annotations

import io
import math
from collections.abc import Mapping, Sequence
from concurrent.futures import Executor
from functools import cached_property, partial
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, ClassVar

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.batch import ArraySpec, Sample
from dlio_torch.formats.core.buffered_file import companion_path, open_buffered, refusing
from dlio_torch.formats.core.device_decoder import DeviceDecoder
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.layout import FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.image.classes import ClassFolders, ClassTree, image_names
from dlio_torch.formats.image.completeness import check_complete, check_stored, details_of
from dlio_torch.formats.image.decoders import nvjpeg_on
from dlio_torch.formats.image.folder_sample import ImageArrays
from dlio_torch.formats.image.folder_specs import IMAGE, folder_specs, image_array, pixel_array
from dlio_torch.formats.image.format import JpegFormat
from dlio_torch.formats.image.generated_images import Encoder, GeneratedImages
from dlio_torch.formats.image.jpeg_record import PixelSample
from dlio_torch.formats.image.labels import generated_class, labelled
from dlio_torch.formats.image.layout import image_layout
from dlio_torch.formats.image.masks import Masks, generated_mask
from dlio_torch.formats.image.options import ImageConfig
from dlio_torch.formats.image.pillow_codec import library_version, open_image
from dlio_torch.formats.image.pixel_spec import ONE_IMAGE
from dlio_torch.formats.image.reader import ImageReader
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

if TYPE_CHECKING:
    import torch
    from PIL import Image

_SIDES = 2  # stream of heights and widths
_USUAL_BYTES = 128 << 10  # of an existing image file that is given by a pattern
_MOST_SIZES = 64  # existing files whose sizes give the mean


class ImageFolderFormat(Format):
    """Images in class folders; generated ones are JPEG files."""

    name: ClassVar[str] = "imagefolder"
    suffix: ClassVar[str] = ".jpg"
    reads_direct: ClassVar[bool] = True
    writes_at_once: ClassVar[bool] = True
    has_layout: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: ImageConfig = config.of(ImageConfig)
        super().__init__(config, seed)
        self._version = library_version("jpg", self.name)
        self._specs = folder_specs(config)
        self._arrays = ImageArrays(self.options, image_array(config, self.options), seed)
        self._variable = frozenset(spec.name for spec in self._specs if spec.variable)
        usual = self.options.height_mean, self.options.width_mean
        encoder = Encoder("JPEG", {"quality": self.options.quality})
        self._images = GeneratedImages(seed, self.options, encoder, usual, self._generated_size)
        tree = None if self._root is None else ClassTree(self._root)
        self._masks = None if self.options.masks is None else Masks(self.options.masks, tree)
        self._classes = tree or ClassFolders()

    @property
    def _root(self) -> Path | None:
        """The folder of existing images; ``None``: they are generated, or a file or a pattern is given."""
        path = self.config.path
        return Path(path) if path is not None and Path(path).is_dir() else None

    def generated_sizes(self, count: int) -> list[int]:
        """Bytes of the files of the first generated images."""
        return [len(self._images.encoded(sample)) for sample in range(count)]

    def specs(self) -> list[ArraySpec]:
        return list(self._specs)

    def layout_options(self) -> dict[str, Any]:
        names = ("width_mean", "height_mean", "side_stdev", "quality", "file_bytes", "file_bytes_stdev")
        sizes = {name: getattr(self.options, name) for name in names}
        return {"format": self.name, **sizes, "masks": self.options.masks, "library": self._version}

    # --- content ---

    def _generated_size(self, sample: int) -> tuple[int, int]:
        """Height and width of a generated image, in pixels."""
        options = self.options
        sides = []
        for stream, mean in enumerate((options.height_mean, options.width_mean)):
            drawn = payload.lengths(self.seed, _SIDES + stream, sample, 1, mean, options.side_stdev * mean)
            sides.append(int(np.clip(drawn[0], 8, 8 * mean)))
        return sides[0], sides[1]

    def expected(self, sample: int) -> Sample:
        stored = self._images.encoded(sample)
        label = generated_class(sample, self.config.num_subfolders or 1) if self.options.classes else None
        if not self.options.decoded_by_readers:
            return labelled({IMAGE: np.frombuffer(stored, np.uint8)}, label)
        from PIL import Image

        path, mask = Path(f"sample {sample}"), None
        with Image.open(io.BytesIO(stored)) as image:
            if self._masks is not None:
                mask = Image.fromarray(generated_mask(sample, self._generated_size(sample)))
            return self._arrays.of(self._arrays.decoded(image, path), path, label, mask)

    def parameters(self) -> dict[str, float]:
        return self._images.parameters()

    def use_parameters(self, parameters: Mapping[str, float]) -> None:
        self._images.use_parameters(parameters)

    def sample_bytes(self) -> float:
        pixels = self.options.height_mean * self.options.width_mean
        total = 0.0
        for spec in self._specs:
            rows = pixels if spec.variable else 1
            if spec.variable and not self.options.decoded_by_readers:
                rows = round(self.stored_bytes())
            total += rows * math.prod(spec.shape) * spec.dtype.itemsize
        return total

    @cached_property
    def _stored_bytes(self) -> float:
        if self.config.path is None:
            return self._images.mean_bytes()
        root = self._root
        names = () if root is None else self.select(root, ())
        if root is None or not names:
            return _USUAL_BYTES
        chosen = [root / names[int(number)] for number in np.linspace(0, len(names) - 1, min(_MOST_SIZES, len(names)))]
        return sum(file.stat().st_size for path in chosen for file in self.files(path)) / len(chosen)

    def stored_bytes(self) -> float:
        if self._masks is None or self.config.path is not None:
            return self._stored_bytes
        usual = self.options.height_mean, self.options.width_mean
        return self._stored_bytes + len(_png(generated_mask(0, usual)))

    # --- files ---

    def companion_files(self, path: str) -> Sequence[str]:
        return [] if self._masks is None else [str(self._mask_of(Path(path)))]

    def _mask_of(self, path: Path) -> Path:
        """Path of the mask of an image, which may carry a temporary name."""
        assert self._masks is not None
        return self._masks.path(path) if self._masks.folder else self._mask_beside(path)

    def _mask_beside(self, path: Path) -> Path:
        assert self._masks is not None
        suffix = self.suffix if self.suffix in path.name else path.suffix
        return companion_path(path, suffix, self._masks.ending)

    def select(self, folder: Path, names: Sequence[str]) -> Sequence[str]:
        """Names in the order of ImageFolder, also behind links to folders, without masks beside their images."""
        names = image_names(folder, classes=self.options.classes)
        if self._masks is not None and not self._masks.folder:
            names = [name for name in names if not name.endswith(self._masks.ending)]
        if not names and self.options.classes and image_names(folder, classes=False):
            raise DataError(
                f"dataset.path={str(folder)!r} has no class folders with images",
                hint="set dataset.image.classes=false to read images without labels",
            )
        return names

    def counted_by_name(self) -> bool:
        return self.options.on_error == "fail"

    def leaves_out_damaged(self) -> bool:
        return self.options.on_error == "skip"

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        if num_samples != 1:
            raise ConfigError(f"an image file holds one image, not {num_samples}", hint=ONE_IMAGE)
        if self._masks is not None:
            mask = generated_mask(first_sample, self._generated_size(first_sample))
            self._mask_beside(path).write_bytes(_png(mask))
        path.write_bytes(self._images.encoded(first_sample))

    def inspect(self, path: Path) -> FileInfo:
        """Check header and end of the file, and of its mask; the pixels are not decoded."""
        try:
            header = check_complete(path)
        except DataError:
            if self.options.on_error == "fail":
                raise
            return FileInfo(0, {})
        self._check_kind(header.kind in JpegFormat.accepted, path)
        if self._masks is not None:
            check_complete(self._mask_of(path))
        return FileInfo(1, details_of(header, path))

    # --- reading ---

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        return ImageReader(path, self.options.buffer_bytes, direct=self.config.direct_io, **self._ways(path))

    def layout(self, path: Path) -> FileLayout:
        expected = self._stored_bytes if self.config.path is None else None
        return image_layout(path, expected, **self._ways(path), pixels=self._pixel_sample(path))

    def _pixel_sample(self, path: Path) -> PixelSample | None:
        """Arrays of a sample that native code may decode; ``None``: Pillow must."""
        options = self.options
        changed = options.transform != "none" or options.mode != "RGB" or options.to_tensor
        changed = changed or options.masks is not None
        if changed or not options.decoded_by_readers:
            return None
        label = self._label(path) if options.classes else None
        return PixelSample(self._specs, IMAGE, partial(self._arrays.beside_pixels, label=label))

    def _ways(self, path: Path) -> dict[str, Any]:
        """Settings that a reader of one file needs."""
        label = self._label(path) if self.options.classes else None
        start, finish = (open_image, self._finish) if self.options.decoded_by_readers else (self._stored, _unchanged)
        return {"start": start, "finish": partial(finish, label=label), "variable": self._variable}

    def _label(self, path: Path) -> int:
        try:
            return self._classes.number(path)
        except (LookupError, OSError) as error:
            raise DataError(
                f"{path} lies in no class folder", hint="set dataset.image.classes=false, or correct dataset.path"
            ) from error

    def _finish(self, image: Image.Image, path: Path, label: int | None) -> Sample:
        """Decodes an open image, opens its mask behind it, and makes the arrays of the sample."""
        decoded, mask, mask_path = self._arrays.decoded(image, path), None, None
        if self._masks is not None:
            mask_path = self._mask_of(path)
            with refusing(mask_path), open_buffered(mask_path, self.options.buffer_bytes) as file:
                mask = open_image(file, mask_path)
                mask.load()
        return self._arrays.of(decoded, path, label, mask, mask_path)

    def _stored(self, file: IO[bytes], path: Path) -> Any:
        """Reads the whole file."""
        stored = file.read()
        self._check_kind(stored.startswith(JpegFormat.magic), path)
        check_stored(stored, path)
        return np.frombuffer(bytearray(stored), np.uint8)

    def _check_kind(self, is_jpeg: bool, path: Path) -> None:
        """Raise if nvJPEG is to decode an image of another kind."""
        if self.options.decoder == "nvjpeg" and not is_jpeg:
            raise DataError(
                f"{path} holds no JPEG image, and dataset.image.decoder=nvjpeg decodes no other",
                hint="set dataset.image.decoder=pillow, or remove the file",
            )

    def device_decoder(self, device: torch.device) -> DeviceDecoder | None:
        if self.options.decoder != "nvjpeg":
            return None
        return nvjpeg_on(device, self.options, pixel_array(self.config, self.options), self.seed)


def _unchanged(stored: Any, path: Path, label: int | None) -> Sample:
    """The arrays of a sample that is not decoded."""
    return labelled({IMAGE: stored}, label)


def _png(pixels: Any) -> bytes:
    from PIL import Image

    stored = io.BytesIO()
    Image.fromarray(pixels).save(stored, "PNG")
    return stored.getvalue()
