"""Options of WebDataset tar shards: ``dataset.webdataset``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import LARGEST_CALL, opt

Decode = Literal["none", "basic", "l8", "rgb8", "rgba8", "rgb", "torchrgb"]
"""Decoders of members, as the arguments of WebDataset's ``decode``."""

IMAGE_AXES = {"l8": (), "rgb8": (3,), "rgba8": (4,), "rgb": (3,), "torchrgb": (3,)}
"""Axes behind height and width of an image."""

FLOATS = ("rgb", "torchrgb")
"""Decoders of images that give float32 from 0 to 1; ``torchrgb`` with the channels first."""


@dataclass(frozen=True)
class WebdatasetConfig:
    """Tar shards whose members with the same key are a sample; a field's name is the extension of its member."""

    decode: Decode = opt(
        "rgb8",
        "decoding of members as by WebDataset's decode(); none: stored bytes; basic, its decode() without arguments: "
        "integers (cls, id, index) and npy arrays; rgb8, l8, rgba8: images as well, by Pillow; rgb, torchrgb: "
        "their float32 values from 0 to 1, with the channels last or first; other members are delivered as stored "
        "bytes",
    )
    missing: Literal["fail", "skip"] = opt(
        "fail",
        "sample without one of the members in dataset.fields; fail: the run fails, as WebDataset's to_tuple(); skip: "
        "the sample is left out, as with handler=ignore_and_continue",
    )
    quality: int = opt(
        90, "JPEG quality of generated images, 1 to 100 (that of webdataset's own encoder)", minimum=1, maximum=100
    )
    noise: int = opt(
        24, "generated images: number of values among which the noise of a pixel is drawn", minimum=1, maximum=255
    )
    compression: Literal["none", "gzip"] = opt(
        "none", "compression of generated shards; shards of any compression are read, which their first bytes tell"
    )
    buffer_bytes: int = opt(
        0,
        "buffer of an open shard; 0: Python's own, st_blksize of the file system (4 KiB on ext4, 4 MiB on Lustre)",
        unit="B",
        minimum=0,
        maximum=LARGEST_CALL,
    )
