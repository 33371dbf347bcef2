"""Options of image files: ``dataset.image``, for imagefolder, jpeg and png."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import LARGEST_CALL, opt

SUFFIXES = (".jpg", ".jpeg", ".png", ".ppm", ".bmp", ".pgm", ".tif", ".tiff", ".webp")
"""Ends of file names that ImageFolder takes for images, in any case (``IMG_EXTENSIONS`` of
``torchvision/datasets/folder.py``)."""
_MOST_PIXELS = 65500
"""Largest width and height of a JPEG image (libjpeg)."""


@dataclass(frozen=True)
class ImageConfig:
    """Image files, one image a file."""

    transform: Literal["none", "resize", "random_resized_crop"] = opt(
        "none",
        "with format=imagefolder: what is done with a decoded image; resize: Resize(size) and CenterCrop(size) of "
        "torchvision; random_resized_crop: its RandomResizedCrop(size); none: the image keeps its size",
    )
    size: int = opt(224, "height and width of a transformed image, in pixels", minimum=1, maximum=_MOST_PIXELS)
    mode: Literal["RGB", "L", "as_is"] = opt(
        "RGB",
        "with format=imagefolder: pixels that the loader gives; RGB: three bytes; L: one byte of brightness; as_is: "
        "those of the file, whose dtype and shape dataset.fields then state",
    )
    to_tensor: bool = opt(
        False,
        "with format=imagefolder: form of the pixels; true: that of torchvision's ToTensor, float32 of (channels, "
        "height, width) from 0 to 1; false: that of Pillow, bytes of (height, width, channels)",
    )
    on_error: Literal["fail", "skip"] = opt(
        "fail",
        "with format=imagefolder: a file that holds no complete image; fail: the run ends; skip: all files are opened "
        "before training, and damaged ones are left out",
    )
    classes: bool = opt(
        True,
        "with format=imagefolder: the class folder of an image gives its label, as in torchvision's ImageFolder; "
        "false: images have no labels",
    )
    masks: str | None = opt(
        None,
        "with format=imagefolder: folder of label images, one for each image, with the same path below it except for "
        "the suffix; null: an image is read alone",
    )
    width_mean: int = opt(400, "mean width of generated images", minimum=8, maximum=_MOST_PIXELS // 8)
    height_mean: int = opt(350, "mean height of generated images", minimum=8, maximum=_MOST_PIXELS // 8)
    side_stdev: float = opt(
        0.25, "standard deviation of width and height of generated images, relative to the mean", minimum=0, maximum=0.5
    )
    quality: int = opt(90, "JPEG quality, 1 to 95", minimum=1)
    file_bytes: int = opt(0, "mean file size; 0: the size that quality and shape give", unit="B", minimum=0)
    file_bytes_stdev: float = opt(0.0, "standard deviation of the file size", unit="B", minimum=0)
    decode: bool = opt(
        True,
        "true: each image is decoded to pixels by the thread or process that reads it; false: the stored "
        "bytes are delivered",
    )
    decoder: Literal["pillow", "nvjpeg"] = opt(
        "pillow",
        "decoder of images; pillow: each image is decoded by the thread or process that reads it; nvjpeg: the loader "
        "delivers the stored bytes, and the rank's GPU decodes and transforms each batch of JPEG images by "
        "torchvision, as a part of its copy (train.device=cuda)",
    )
    buffer_bytes: int = opt(
        0,
        "buffer of an open file; 0: st_blksize of the file system (4 KiB on ext4, 4 MiB on Lustre)",
        unit="B",
        minimum=0,
        maximum=LARGEST_CALL,
    )

    @property
    def decoded_by_readers(self) -> bool:
        """Whether the loader delivers pixels, and not the stored bytes."""
        return self.decode and self.decoder == "pillow"
