"""Members of a sample: their kinds by extension, and the arrays that they become."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.webdataset.options import FLOATS, IMAGE_AXES, WebdatasetConfig

Kind = Literal["image", "integer", "npy", "stored"]

IMAGES = ("jpg", "jpeg", "jpe", "jfif", "png", "webp", "gif", "bmp", "ppm", "pgm", "pbm", "pnm", "tif", "tiff", "jp2")
"""Extensions of images; those of WebDataset's that Pillow reads in its usual builds."""

INTEGERS = ("cls", "cls2", "index", "inx", "id")
"""Extensions whose text WebDataset decodes to an integer."""

PICKLES = ("pkl", "pickle", "pyd", "pth", "pt")
"""Extensions of pickled objects, which are never loaded."""

_NAME = re.compile(r"[^/A-Z_;][^/A-Z;]*(;[^/A-Z_;][^/A-Z;]*)*")


def kind_of_extension(extension: str) -> Kind:
    """Kind of a member; its last extension decides, as ``png`` of ``seg.png``."""
    last = extension.rpartition(".")[2]
    if last in IMAGES:
        return "image"
    if last in INTEGERS:
        return "integer"
    return "npy" if last == "npy" else "stored"


@dataclass(frozen=True)
class SampleMember:
    """One member of a sample that is read.

    Attributes:
        keys: extensions, of which the first that a sample has is read; those of ``jpg;png`` are two.
        kind: of the first of them.
        decoded: it is decoded; else its stored bytes are delivered.
        field: the array as ``dataset.fields`` describes it.
        spec: the array that is delivered.
    """

    keys: tuple[str, ...]
    kind: Kind
    decoded: bool
    field: ArraySpec
    spec: ArraySpec

    @property
    def row_bytes(self) -> int:
        """Bytes of a sample, or of a row if samples have a variable length."""
        return math.prod(self.spec.shape) * self.spec.dtype.itemsize


def members_of(config: DatasetConfig, fields: Sequence[ArraySpec]) -> list[SampleMember]:
    """The members that the fields of a data set name.

    Raises:
        ConfigError: a name that no member can have, or an array that its member cannot be decoded to.
    """
    decode = config.of(WebdatasetConfig).decode
    return [_member(spec, decode, generated=config.path is None) for spec in fields]


def _member(field: ArraySpec, decode: str, *, generated: bool) -> SampleMember:
    if not _NAME.fullmatch(field.name):
        raise ConfigError(
            f"dataset.fields: name={field.name!r} is not the extension of a member",
            hint="use lower-case names without slash that do not begin with an underscore, for example jpg or seg.png",
        )
    keys = tuple(field.name.split(";"))
    kind = kind_of_extension(keys[0])
    decoded = kind != "stored" and decode != "none" and (kind != "image" or decode != "basic")
    spec = field
    if kind == "image":
        _check_image(field, decode, decoded=decoded, generated=generated)
    if kind == "integer" and (decoded or generated) and (field.dtype.kind not in "iu" or field.shape or field.variable):
        raise _unfit(
            field,
            "which WebDataset decodes to one integer",
            f"set {{name: {field.name}, dtype: int64}}" + ("" if generated else ", or dataset.webdataset.decode=none"),
        )
    if kind == "image" and decoded and decode in FLOATS:
        height, width, channels = field.shape
        shape = (channels, height, width) if decode == "torchrgb" else field.shape
        spec = ArraySpec(field.name, np.dtype(np.float32), shape)
    if kind != "stored" and not decoded:
        spec = ArraySpec(field.name, np.dtype(np.uint8), (), variable=True)
    return SampleMember(keys, kind, decoded, field, spec)


def _check_image(field: ArraySpec, decode: str, *, decoded: bool, generated: bool) -> None:
    """Raise unless an image can be generated, or decoded, as the field describes it."""
    axes = IMAGE_AXES.get(decode, (3,))
    shape = "[HEIGHT, WIDTH" + "".join(f", {length}" for length in axes) + "]"
    usable = field.dtype == np.uint8
    if decoded:
        usable &= field.shape in ((), axes) if field.variable else len(field.shape) == 2 + len(axes)
        usable &= field.variable or field.shape[2:] == axes
        usable &= not (field.variable and decode in FLOATS)
    if generated:
        usable &= not field.variable and len(field.shape) in (2, 3) and field.shape[2:] in ((), (3,), (4,))
    if not usable:
        any_size = f", or for images of any size {{name: {field.name}, dtype: uint8, length_mean: 1}}"
        one_size = "" if generated or decode in FLOATS else any_size
        raise _unfit(
            field, "which holds an image", f"set {{name: {field.name}, dtype: uint8, shape: {shape}}}{one_size}"
        )


def _unfit(field: ArraySpec, reason: str, hint: str) -> ConfigError:
    rows = "variable " if field.variable else ""
    return ConfigError(
        f"dataset.fields: {field.name} is {rows}{field.dtype.name}{list(field.shape)}, but it is a member "
        f"*.{field.name}, {reason}",
        hint=hint,
    )
