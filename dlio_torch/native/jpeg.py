"""Reading of JPEG files and decoding to RGB by ``decode_jpeg.c``, which calls libturbojpeg."""

from __future__ import annotations

import ctypes
import os
from dataclasses import dataclass
from enum import IntEnum
from pathlib import Path

import numpy as np

from dlio_torch import native
from dlio_torch.native.memory import address_of


class Sampling(IntEnum):
    """Sampling of the colours of a plain JPEG image: baseline, 8 bits, grey or YCbCr."""

    NOT_PLAIN = -1
    YCBCR_444 = 0
    YCBCR_422 = 1
    YCBCR_420 = 2
    GREY = 3


@dataclass(frozen=True)
class JpegHeader:
    """Header of a JPEG image.

    Attributes:
        sampling: of its colours; ``NOT_PLAIN``: another kind of image or file, whose size is not known.
        height: in pixels.
        width: in pixels.
    """

    sampling: Sampling
    height: int
    width: int


class JpegFile:
    """Bytes of a file that was read, in memory of their own.

    Args:
        library: frees the memory.
        header: of the image.
        address: of the bytes.
        length: number of the bytes.

    Attributes:
        header: as given.
        address: as given; valid as long as this object.
        length: as given.
    """

    def __init__(self, library: ctypes.CDLL, header: JpegHeader, address: int, length: int) -> None:
        self._free = library.dlio_free_jpeg
        self.header, self.address, self.length = header, address, length

    def __del__(self) -> None:
        self._free(self.address)

    def stored(self) -> bytes:
        """A copy of the bytes."""
        return ctypes.string_at(self.address, self.length)


class NativeJpeg:
    """Thread-safe reader and decoder of plain JPEG images, which runs without the interpreter lock.

    Attributes:
        implementation: the C file and the library that do the work, for reports.

    Raises:
        NativeUnavailable: there is no C library and none could be compiled, or libturbojpeg is not installed.
    """

    def __init__(self) -> None:
        library, file = native.open_library("decode_jpeg")
        integer, pointer = ctypes.c_int64, ctypes.c_void_p
        library.dlio_has_jpeg_library.restype = integer
        if not library.dlio_has_jpeg_library():
            raise native.NativeUnavailable("libturbojpeg is not installed")
        self.implementation = f"decode_jpeg.c, {file.origin}, by libturbojpeg"
        self._library = library
        library.dlio_free_jpeg.restype, library.dlio_free_jpeg.argtypes = None, [pointer]
        self._header = library.dlio_jpeg_header
        self._header.restype, self._header.argtypes = None, [pointer, integer, pointer]
        self._read = library.dlio_read_jpeg
        self._read.restype, self._read.argtypes = integer, [ctypes.c_char_p, integer, pointer]
        self._decode = library.dlio_decode_jpeg
        self._decode.restype, self._decode.argtypes = integer, [pointer, integer, pointer, integer, integer]

    def header(self, address: int, length: int) -> JpegHeader:
        """The header of an image in memory."""
        numbers = np.zeros(3, np.int64)
        self._header(address, length, address_of(numbers))
        return _header_of(numbers.tolist())

    def read(self, path: Path, expected: float | None) -> JpegFile:
        """Reads a whole file, by one call if it is not much larger than expected.

        Args:
            path: the file.
            expected: bytes of a file, in the mean; ``None``: the size of this file, at the cost of one more call.

        Raises:
            OSError: it cannot be read.
        """
        numbers = np.zeros(5, np.int64)
        problem = self._read(os.fsencode(path), int(expected or 0), address_of(numbers))
        if problem:
            raise OSError(problem, os.strerror(problem), str(path))
        *header, address, length = numbers.tolist()
        return JpegFile(self._library, _header_of(header), address, length)

    def decode(self, address: int, length: int, header: JpegHeader, to: int) -> bool:
        """Decode an image in memory.

        Args:
            address: of its bytes.
            length: number of its bytes.
            header: of the image, which is plain.
            to: address of uint8 pixels of ``(height, width, 3)``.

        Returns:
            Whether it is sound; if not, the pixels are undefined.
        """
        return bool(self._decode(address, length, to, header.height, header.width) == 0)


def _header_of(numbers: list[int]) -> JpegHeader:
    return JpegHeader(Sampling(numbers[0]), numbers[1], numbers[2])
