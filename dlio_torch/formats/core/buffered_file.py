"""Buffered file access and parsing of NumPy headers, with the same calls as ``numpy.load``.

``open()`` takes its buffer from the file's ``st_blksize``: 4 KiB on ext4, 4 MiB on Lustre.  With the buffer
of another file system the same library code makes the system calls that it makes there.
"""

from __future__ import annotations

import io
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.environment.private_names import file_block_size
from dlio_torch.errors import DataError, DlioError
from dlio_torch.formats.core.direct_file import DirectRaw
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.library_lock import library_lock

PARSING = library_lock()
"""NumPy parses a header as Python; in Python 3.11 two threads that do so at once disturb each other (SystemError)."""
HEADER_PARSERS = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
"""Versions of the NPY header that are read, each with NumPy's parser of it; called under :data:`PARSING`."""


def open_buffered(path: Path, buffer_bytes: int, *, direct: bool = False) -> io.BufferedReader:
    """Opens a file as ``open(path, "rb")`` does, with a buffer of ``buffer_bytes``; 0: block size of the file system.

    Args:
        path: the file.
        buffer_bytes: size of the buffer.
        direct: fill it past the page cache.

    Raises:
        DataError: the file system does not permit direct reads.
        OSError: the file cannot be opened.
    """
    raw: io.FileIO | DirectRaw = DirectRaw(path) if direct else io.FileIO(path)
    try:
        # Not open()'s own choice: it changed with Python 3.14. Opening the file gave the block size, by one fstat.
        size = buffer_bytes or _block_size(raw)
        return io.BufferedReader(raw, size if size > 1 else io.DEFAULT_BUFFER_SIZE)
    except BaseException:
        raw.close()
        raise


def _block_size(raw: io.FileIO | DirectRaw) -> int:
    """Block size of the file system, without a further call where Python has asked for it."""
    known = file_block_size(raw) if isinstance(raw, io.FileIO) else 0
    return known or os.fstat(raw.fileno()).st_blksize


@contextmanager
def refusing(path: Path) -> Iterator[None]:
    """Turn errors of Python's and NumPy's readers for a damaged file into a DataError.

    Raises:
        DataError: one line that names the file.
    """
    try:
        yield
    except DlioError:
        raise
    except ValueError as error:
        if "pickle" not in str(error):
            raise open_error(path, error) from error
        raise DataError(
            f"{path} holds pickled objects, which dlio_torch never loads, or is not a NumPy file",
            hint="store plain arrays in the file",
        ) from error
    except Exception as error:
        # zipfile, zlib, struct, tokenize...: which one depends on the byte that is damaged.
        raise open_error(path, error) from error


def load(file: io.BufferedReader) -> Any:
    """Loads an open file by ``numpy.load``; raises for pickled objects."""
    return np.load(file, allow_pickle=False)


def load_direct(file: io.BufferedReader, path: Path) -> npt.NDArray[Any]:
    """Loads a single-array file that was opened for direct reads, as ``numpy.load`` does.

    The C library's buffer, which NumPy reads the elements through, is not aligned: the file is read in one call
    instead, unless Python's buffer has all of it.

    Raises:
        DataError: pickled objects, or a damaged file.
        ValueError: no header of NumPy's.
    """
    raw = file.raw
    assert isinstance(raw, DirectRaw)
    size = os.fstat(raw.fileno()).st_size
    header = read_header(file, size, path, "the array")
    if raw.tell() < size:
        content = raw.whole()
    else:
        file.seek(0)
        content = memoryview(file.read(size))
    flat = np.frombuffer(content, header.dtype, math.prod(header.shape), header.bytes)
    return flat.reshape(header.shape, order="F" if header.fortran_order else "C")


@dataclass(frozen=True)
class Header:
    """The header of a ``.npy`` file, before its elements.

    Attributes:
        shape: of the array.
        fortran_order: the first axis changes fastest.
        dtype: of the elements.
        bytes: length of magic, version and header.
    """

    shape: tuple[int, ...]
    fortran_order: bool
    dtype: np.dtype[np.generic]
    bytes: int


def read_header(file: IO[bytes], size: int, path: Path, name: str) -> Header:
    """Reads the header at the position of ``file`` and checks its size against the bytes in the file.

    Args:
        file: positioned at the magic.
        size: bytes from there to the end of the array.
        path: for the error.
        name: of the array, for the error.

    Raises:
        DataError: pickled objects, or more or fewer bytes than the header says.
        ValueError: no header of NumPy's.
    """
    start = file.tell()
    version = np.lib.format.read_magic(file)
    if version not in HEADER_PARSERS:
        raise DataError(
            f"{path}: array {name} has an unsupported NPY header version {version}",
            hint="store the array with version 1.0 or 2.0 of the NPY format",
        )
    with PARSING:
        shape, fortran_order, dtype = HEADER_PARSERS[version](file)
    header = Header(shape, fortran_order, dtype, file.tell() - start)
    if dtype.hasobject:
        raise DataError(
            f"{path}: array {name} holds pickled objects, which dlio_torch never loads",
            hint="store plain arrays in the file",
        )
    promised = header.bytes + math.prod(shape) * dtype.itemsize
    if any(length < 0 for length in shape) or promised != size:
        raise DataError(
            f"{path}: array {name} has {size} bytes, but its header ({dtype}{list(shape)}) requires {promised}",
            hint="the file is damaged or incomplete; generate or fetch the file again",
        )
    return header


def companion_path(path: Path, suffix: str, other: str) -> Path:
    """Path of the companion file of ``path``: the same name with ``other`` in place of ``suffix``.

    The additions of a temporary name (``.NAME_x.npy.123.part``) are left out: a file that is
    written beside another gets its final name first.
    """
    stem, separator, rest = path.name.rpartition(suffix)
    if not separator:
        return path.with_name(path.name + other)
    return path.with_name((stem.removeprefix(".") if rest else stem) + other)
