"""Headers inside the members of a shard: of NumPy arrays, of images, and integers."""

from __future__ import annotations

import io
import os
import tarfile
import warnings
from pathlib import Path
from typing import BinaryIO

from dlio_torch.errors import DlioError
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.buffered_file import Header, read_header
from dlio_torch.formats.webdataset.members import kind_of_extension

_FEW = 16  # images and integers of each extension that are looked at
_MANY = 1000  # NumPy headers
_SHOWN = 4
_NPY_HEAD = 128  # bytes of the usual header
_LONG_NPY_HEAD = 16 << 10  # more than NumPy accepts
_IMAGE_HEAD = 64 << 10
_LONGEST_INTEGER = 64


class Payload:
    """Content of the members of one extension, from the headers of the first of them.

    Args:
        extension: of the members.

    Attributes:
        problem: why they cannot be read; empty: they can.
    """

    def __init__(self, extension: str) -> None:
        self.problem = ""
        self._kind = kind_of_extension(extension)
        self._seen = 0
        self._headers: list[Header] = []
        self._images: list[str] = []

    def add(self, shard: BinaryIO, info: tarfile.TarInfo) -> None:
        """Reads the header of one more member of an open, uncompressed shard, unless enough of them were read.

        Raises:
            OSError: it cannot be read.
        """
        if self.problem or self._seen >= (_MANY if self._kind == "npy" else _FEW):
            return
        self._seen += 1
        if self._kind == "npy":
            self._add_array(shard, info)
        elif self._kind == "integer":
            text = _head(shard, info, _LONGEST_INTEGER)
            try:
                int(text)
            except ValueError:
                self.problem = (
                    f"{info.name} holds no integer ({text[:16]!r}); dataset.webdataset.decode=none reads stored bytes"
                )
        elif self._kind == "image":
            self._images.append(_image(_head(shard, info, _IMAGE_HEAD)))

    def _add_array(self, shard: BinaryIO, info: tarfile.TarInfo) -> None:
        try:
            header = npy_header(shard.fileno(), info.offset_data, info.size, Path(shard.name), info.name)
        except DlioError as error:
            self.problem = str(error).partition(": ")[2].partition("\n")[0]
            return
        except Exception:  # NumPy's parser of headers raises errors of many kinds
            self.problem = f"{info.name} is no NumPy array"
            return
        if header.dtype.name not in DTYPES or not header.dtype.isnative:
            self.problem = f"element type {header.dtype} is not one of torch tensors"
            return
        first = self._headers[0] if self._headers else header
        if header.dtype != first.dtype or header.shape[1:] != first.shape[1:] or len(header.shape) != len(first.shape):
            self.problem = (
                f"arrays differ: {first.dtype}{list(first.shape)} and {header.dtype}{list(header.shape)} in {info.name}"
            )
            return
        self._headers.append(header)

    @property
    def array(self) -> tuple[str, tuple[int, ...], float] | None:
        """Dtype, shape of an array or a row, and mean number of rows (0: all have the shape); ``None``: no arrays."""
        if self.problem or not self._headers:
            return None
        first = self._headers[0]
        if all(header.shape == first.shape for header in self._headers) and 0 not in first.shape:
            return first.dtype.name, first.shape, 0.0
        rows = sum(header.shape[0] for header in self._headers) / len(self._headers)
        return first.dtype.name, first.shape[1:], round(max(1.0, rows), 1)

    @property
    def remark(self) -> str:
        """Sizes of the first images; empty: the members are no images."""
        sizes = list(dict.fromkeys(self._images))
        return ", ".join(sizes[:_SHOWN]) + (", ..." if len(sizes) > _SHOWN else "")


def npy_header(descriptor: int, offset: int, size: int, path: Path, name: str) -> Header:
    """Reads the header of a NumPy array in an open, uncompressed shard.

    Args:
        descriptor: of the shard.
        offset: first byte of the member.
        size: bytes of it.
        path: of the shard, for the error.
        name: of the array, for the error.

    Raises:
        DataError: pickled objects, or more or fewer bytes than the header says.
        ValueError: no header of NumPy's.
    """
    head = os.pread(descriptor, min(size, _NPY_HEAD), offset)
    if int.from_bytes(head[8:10], "little") + 10 > len(head):
        head = os.pread(descriptor, min(size, _LONG_NPY_HEAD), offset)
    return read_header(io.BytesIO(head), size, path, name)


def _head(shard: BinaryIO, info: tarfile.TarInfo, most: int) -> bytes:
    """The first ``most`` bytes of a member."""
    return os.pread(shard.fileno(), min(most, info.size), info.offset_data)


def _image(head: bytes) -> str:
    """Size and mode of an image, or why they are not known."""
    try:
        from PIL import Image
    except ImportError:
        return "image of unknown size, because Pillow is not installed"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that an image is large matters to who decodes it
        try:
            with Image.open(io.BytesIO(head)) as image:
                return f"{image.width} x {image.height} {image.mode}"
        except Exception:  # Pillow's parsers raise errors of many kinds
            return "no image that Pillow reads"
