"""Encoding of generated members, and decoding by the calls of WebDataset's ``decode``."""

from __future__ import annotations

import functools
import io
import json
import math
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.libraries import import_library
from dlio_torch.formats.webdataset.members import SampleMember

if TYPE_CHECKING:
    from webdataset.autodecode import Decoder

CLASSES = 1000
"""Exclusive upper limit of generated integers, which are 0 to 999 like the labels of ImageNet."""

_TILE = 16  # pixels of equal colour along each axis, before the noise
_LETTERS = 26
_JSON = ('{"text": "', '"}')


@functools.cache
def decoder(images: str) -> Decoder:
    """WebDataset's decoder, as ``.decode(images)`` makes it; ``basic``: without images.

    Raises:
        MissingPackageError: webdataset or, for images, Pillow is not installed.
    """
    library = webdataset()
    if images in ("none", "basic"):
        return library.autodecode.Decoder([])
    need = f"dataset.webdataset.decode={images} needs Pillow"
    import_library("PIL", need, "image", otherwise="set dataset.webdataset.decode=basic")
    return library.autodecode.Decoder([library.autodecode.ImageHandler(images)])


def webdataset() -> Any:
    """The library ``webdataset``.

    Raises:
        MissingPackageError: it is not installed.
    """
    return import_library("webdataset", "dataset.format=webdataset needs webdataset", "webdataset")


def array_of(member: SampleMember, key: str, stored: bytes, images: str, sample: str) -> npt.NDArray[np.generic]:
    """The array that a member becomes.

    Args:
        member: describes it.
        key: its extension in this sample.
        stored: its bytes.
        images: as ``dataset.webdataset.decode``.
        sample: file and key of the sample, for messages.

    Raises:
        DataError: it cannot be decoded, or is not as described.
    """
    if not member.decoded:
        return _stored(member, stored, sample)
    try:
        try:
            value = _decoded(member, key, stored, images)
        except SystemError:  # of Python's parser, before 3.11.8, where two threads parse heads of arrays at once
            value = _decoded(member, key, stored, images)
    except Exception as error:  # Pillow, NumPy and int() raise errors of many kinds
        text = " ".join(str(error).split()) or type(error).__name__
        raise DataError(
            f"{sample}: member {key} cannot be decoded: {text}",
            hint="the member is damaged or of another kind; set dataset.webdataset.decode=none to read stored bytes",
        ) from error
    return _as_specified(member, value, f"{sample}: member {key}")


def _decoded(member: SampleMember, key: str, stored: bytes, images: str) -> npt.NDArray[Any]:
    """The value that WebDataset gives, as an array that may be written to, which Pillow's are not."""
    value = decoder(images).decode1(key, stored)
    return np.require(value, member.spec.dtype if member.kind == "integer" else None, "W")


def rows_fit(spec: ArraySpec, shape: tuple[int, ...]) -> bool:
    """Whether an array of ``shape`` is rows as ``spec`` describes them; one of single elements is flattened."""
    return not spec.shape or (len(shape) > 0 and shape[1:] == spec.shape)


def _as_specified(member: SampleMember, array: npt.NDArray[Any], name: str) -> npt.NDArray[np.generic]:
    spec = member.spec
    if spec.variable and array.dtype == spec.dtype and (member.kind != "npy" or rows_fit(spec, array.shape)):
        size = math.prod(spec.shape)
        if size and array.size % size == 0:
            return array.reshape(-1, *spec.shape)
    elif array.dtype == spec.dtype and array.shape == spec.shape:
        return array
    rows = "any number of rows of " if spec.variable else ""
    raise DataError(
        f"{name} is {array.dtype}{list(array.shape)}, but dataset.fields expect {rows}{spec.dtype}{list(spec.shape)}",
        hint="correct dataset.fields; members of any size are read with length_mean, or as stored bytes with "
        "dataset.webdataset.decode=none",
    )


def _stored(member: SampleMember, stored: bytes, sample: str) -> npt.NDArray[np.generic]:
    """Stored bytes as elements of the member's type."""
    spec, row = member.spec, member.row_bytes
    if len(stored) % row if spec.variable else len(stored) != row:
        rows = "a multiple of " if spec.variable else ""
        raise DataError(
            f"{sample}: member {spec.name} has {len(stored)} bytes, but dataset.fields expect {rows}{row}",
            hint=f"correct dataset.fields; {{name: {spec.name}, dtype: uint8, length_mean: {max(1, len(stored))}}} "
            "reads any number of bytes",
        )
    # A copy that may be written to, since the trainer owns its batch.
    return (
        np.frombuffer(bytearray(stored), spec.dtype).reshape(-1, *spec.shape)
        if spec.variable
        else np.frombuffer(bytearray(stored), spec.dtype).reshape(spec.shape)
    )


# --- generation ---


def encoded(member: SampleMember, values: npt.NDArray[Any], quality: int) -> bytes:
    """Content of a generated member.

    Args:
        member: describes it.
        values: its array; random bytes for a text.
        quality: of a JPEG image.
    """
    if member.kind == "image":
        return _image(values, member.keys[0].rpartition(".")[2], quality)
    if member.kind == "integer":
        return b"%d" % int(values)
    if member.kind == "npy":
        file = io.BytesIO()
        np.lib.format.write_array(file, values, allow_pickle=False)
        return file.getvalue()
    return values.tobytes()


def as_text(extension: str, values: npt.NDArray[np.uint8]) -> npt.NDArray[np.uint8]:
    """Random bytes as text of equal length: letters, or a JSON document with them."""
    letters = (values % _LETTERS + ord("a")).astype(np.uint8)
    if extension in ("json", "jsn"):
        begin, end = _JSON
        inside = len(letters) - len(begin) - len(end)
        text = begin + letters[: max(0, inside)].tobytes().decode() + end if inside >= 0 else "1" * len(letters)
        json.loads(text)
        return np.frombuffer(text.encode(), np.uint8)
    return letters


def pixels(seed: int, sample: int, stream: int, shape: tuple[int, ...], noise: int) -> npt.NDArray[np.uint8]:
    """Pixels of a generated image: tiles of random colours under noise of so many values."""
    generator = payload.rng(seed, sample, stream)
    tiles = [-(-length // _TILE) for length in shape[:2]]
    coarse = generator.integers(0, 256 - noise, (*tiles, *shape[2:]), np.uint8)
    smooth = coarse.repeat(_TILE, 0)[: shape[0]].repeat(_TILE, 1)[:, : shape[1]]
    return np.asarray(smooth + generator.integers(0, noise, shape, np.uint8), np.uint8)


def _image(values: npt.NDArray[Any], extension: str, quality: int) -> bytes:
    from PIL import Image

    Image.init()
    codec = Image.EXTENSION[f".{extension}"]
    options = {"quality": quality} if codec == "JPEG" else {}
    image = Image.fromarray(values)
    file = io.BytesIO()
    (image.convert("RGB") if codec == "JPEG" and image.mode == "RGBA" else image).save(file, codec, **options)
    return file.getvalue()
