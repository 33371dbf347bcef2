"""Facts about image files that need no open file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

from dlio_torch.formats.core.facts import WHOLE_FILES, FormatFacts, Unused
from dlio_torch.formats.image.options import SUFFIXES, ImageConfig

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config


_FOLDER_OPTIONS = (
    "transform",
    "size",
    "mode",
    "to_tensor",
    "on_error",
    "classes",
    "masks",
    "width_mean",
    "height_mean",
    "side_stdev",
)
_MOST_HEADERS = 1000  # that are read to find images of unequal size
_MOST_FOLDERS = 3  # of which names are listed to recognise class folders
_MOST_NAMES = 200
_MOST_ENTRIES = 1000  # of the folder itself


class JpegFacts(FormatFacts):
    """Facts about format ``jpeg``.

    Attributes:
        holds_jpeg: its files may hold JPEG images.
    """

    name: ClassVar[str] = "jpeg"
    format: ClassVar[str] = "dlio_torch.formats.image.format:JpegFormat"
    holds_jpeg: ClassVar[bool] = True
    options: ClassVar[type | None] = ImageConfig
    group: ClassVar[str] = "image"
    transfer_option: ClassVar[str] = "buffer_bytes"
    magics: ClassVar[tuple[bytes, ...]] = (b"\xff\xd8\xff",)
    suffixes: ClassVar[tuple[str, ...]] = (".jpg", ".jpeg")
    content: ClassVar[str] = "dlio_torch.formats.image.content:read_content"
    describe: ClassVar[str] = "dlio_torch.formats.image.describe:describe_pixels"
    described_as: ClassVar[str] = "imagefolder"

    def check(self, config: Config, fail: Fail) -> None:
        for option in _FOLDER_OPTIONS:
            if self.value(config, option) != getattr(ImageConfig(), option):
                fail(
                    [self.key(option), "dataset.format"],
                    f"format {self.name} reads images of one size without a transform",
                    f"set dataset.format=imagefolder, or remove {self.key(option)}",
                )
        _check_decoder(config, self, fail)

    def gpu_option(self, config: Config) -> str:
        return f"{self.key('decoder')}=nvjpeg" if self.value(config, "decoder") == "nvjpeg" else ""

    def unused_by_decoupled(self, config: Config) -> Sequence[Unused]:
        return (Unused(self.key("buffer_bytes"), WHOLE_FILES),)

    def ranges_past_cache(self, config: Config) -> bool:
        return False

    def content_text(self, content: Mapping[str, Any]) -> str:
        return f"{content['width']} x {content['height']} {content['mode']}" if "width" in content else ""


class PngFacts(JpegFacts):
    """Facts about format ``png``."""

    name: ClassVar[str] = "png"
    format: ClassVar[str] = "dlio_torch.formats.image.format:PngFormat"
    holds_jpeg: ClassVar[bool] = False
    magics: ClassVar[tuple[bytes, ...]] = (b"\x89PNG\r\n\x1a\n",)
    suffixes: ClassVar[tuple[str, ...]] = (".png",)


class ImageFolderFacts(JpegFacts):
    """Facts about format ``imagefolder``."""

    name: ClassVar[str] = "imagefolder"
    format: ClassVar[str] = "dlio_torch.formats.image.folder_format:ImageFolderFormat"
    magics: ClassVar[tuple[bytes, ...]] = ()
    suffixes: ClassVar[tuple[str, ...]] = SUFFIXES
    describe: ClassVar[str] = "dlio_torch.formats.image.describe:describe"
    recreate: ClassVar[str] = "dlio_torch.formats.image.recreate:recreate"
    compares_files: ClassVar[bool] = True
    described_as: ClassVar[str] = ""
    takes_any_folder: ClassVar[bool] = True

    def check(self, config: Config, fail: Fail) -> None:
        data, options = config.dataset, config.dataset.of(ImageConfig)
        _check_decoder(config, self, fail)
        if not options.decode:
            for option in ("transform", "mode", "to_tensor", "masks"):
                if self.value(config, option) != getattr(ImageConfig(), option):
                    fail(
                        [self.key(option), self.key("decode")],
                        "stored bytes are not decoded",
                        f"set {self.key('decode')}=true",
                    )
        elif (
            options.transform == "none" and options.mode != "as_is" and not data.fields and config.train.batch_size > 1
        ):
            self._refuse_unequal(config, fail)
        if data.path is None and options.classes and not data.num_subfolders:
            fail(
                [self.key("classes"), "dataset.num_subfolders"],
                "generated images without folders have no classes",
                f"set dataset.num_subfolders=10, or {self.key('classes')}=false",
            )

    def _refuse_unequal(self, config: Config, fail: Fail) -> None:
        """Raise, naming two images of unequal size where there are some; images of one size need ``dataset.fields``."""
        from dlio_torch.formats.image.sizes import unequal_images

        keys = [self.key("transform"), "train.batch_size"]
        both = f"set {self.key('transform')}=resize or random_resized_crop, or train.batch_size=1"
        path = config.dataset.path
        if path is None:
            fail(keys, "generated images have unequal sizes and cannot be stacked to a batch", both)
            return
        names, shape = unequal_images(path, _MOST_HEADERS)
        if names:
            fail(keys, f"{names}: images of unequal sizes cannot be stacked to a batch", both)
        elif shape:
            axes = ", ".join(map(str, (*shape, 3) if config.dataset.of(ImageConfig).mode != "L" else shape))
            field = f"dataset.fields=[{{name: image, dtype: uint8, shape: [{axes}]}}]"
            stated = f"the first images have {shape[0]} x {shape[1]} pixels, but no size is stated for all"
            fail(keys, stated, f"set {field}")

    def recognises(self, path: Path, head: bytes) -> bool:
        return head[:4] == b"RIFF" and head[8:12] == b"WEBP"

    def recognises_folder(self, path: Path, names: Sequence[str]) -> bool:
        import random

        from dlio_torch.formats.image.sizes import first_names, holds_images

        if len(names) > _MOST_ENTRIES:
            names = sorted(random.Random(0).sample(names, _MOST_ENTRIES))
        shown = [name for name in names if not name.startswith(".")]
        folders = [name for name in shown if (path / name).is_dir()]
        if holds_images(set(shown).difference(folders)):
            return True
        return any(holds_images(first_names(path / name, _MOST_NAMES)) for name in folders[:_MOST_FOLDERS])


def _check_decoder(config: Config, about: JpegFacts, fail: Fail) -> None:
    """Check ``dataset.image.decoder`` where it is not the default one."""
    if about.value(config, "decoder") != ImageConfig().decoder:
        from dlio_torch.formats.image.decoders import check_decoder

        check_decoder(config, about, fail)
