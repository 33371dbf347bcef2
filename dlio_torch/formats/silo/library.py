"""Bindings of LLNL's Silo library through ctypes: plain arrays that are written and read in slices.

The prototypes are those of ``silo.h`` 4.11.  The library is a package of the system, Debian's is ``libsiloh5-0``.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import functools
import math
import mmap
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError, MissingPackageError
from dlio_torch.formats.core.file_errors import check_rows, open_error, os_errors
from dlio_torch.formats.core.library_lock import library_lock
from dlio_torch.formats.hdf5.guard import SIGNATURE

LOCK = library_lock()
"""Lock for every library call, since the library keeps its state, such as the current error, in global variables."""

_HDF5_DRIVER = 7  # DB_HDF5X with default options
_UNKNOWN, _CLOBBER, _LOCAL, _READ, _QUIET = 5, 0, 0, 1, 1
_TYPES = {"i1": 21, "i2": 17, "i4": 16, "i8": 22, "f4": 19, "f8": 20}  # DB_CHAR to DB_DOUBLE
_SAME = {22: (22, 18)}  # DB_LONG is of 8 bytes, too
_MAX_AXES = 32
_MAX_LENGTH = (1 << 31) - 1  # lengths are C's int
# HDF5's message of the time an object was changed: type 18, 8 bytes, flags, version 1, seconds.
_CHANGED = re.compile(rb"\x12\x00\x08\x00.\x00\x00\x00\x01\x00\x00\x00(.{4})", re.DOTALL)

_POINTER, _INT, _TEXT = ctypes.c_void_p, ctypes.c_int, ctypes.c_char_p
_PROTOTYPES: dict[str, tuple[Any, list[Any]]] = {
    "DBShowErrors": (None, [_INT, _POINTER]),
    "DBErrString": (_TEXT, []),
    "DBCreateReal": (_POINTER, [_TEXT, _INT, _INT, _TEXT, _INT]),
    "DBOpenReal": (_POINTER, [_TEXT, _INT, _INT]),
    "DBClose": (_INT, [_POINTER]),
    "DBWriteSlice": (
        _INT,
        [_POINTER, _TEXT, _POINTER, _INT, _POINTER, _POINTER, _POINTER, _POINTER, _INT],
    ),
    "DBReadVarSlice": (_INT, [_POINTER, _TEXT, _POINTER, _POINTER, _POINTER, _INT, _POINTER]),
    "DBInqVarExists": (_INT, [_POINTER, _TEXT]),
    "DBGetVarDims": (_INT, [_POINTER, _TEXT, _INT, _POINTER]),
    "DBGetVarType": (_INT, [_POINTER, _TEXT]),
}


@functools.cache
def library() -> ctypes.CDLL:
    """Loads the library and turns off its own error messages.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        # Debian's is not linked to the C++ library that its filters need.
        ctypes.CDLL("libstdc++.so.6", mode=ctypes.RTLD_GLOBAL)
        loaded = ctypes.CDLL(ctypes.util.find_library("siloh5") or "libsiloh5.so.0")
    except OSError as error:
        raise MissingPackageError(
            f"dataset.format=silo needs the library libsiloh5, which cannot be loaded ({error})",
            hint="install the system package: apt-get install libsiloh5-0",
        ) from error
    for name, (result, arguments) in _PROTOTYPES.items():
        function = getattr(loaded, name)
        function.restype, function.argtypes = result, arguments
    loaded.DBShowErrors(_QUIET, None)
    return loaded


def stored_type(dtype: np.dtype[Any]) -> str:
    """The stored type of the same size, because Silo has neither unsigned integers nor half-precision floats."""
    return f"f{dtype.itemsize}" if dtype.kind == "f" and dtype.itemsize > 2 else f"i{dtype.itemsize}"


def check_complete(path: Path) -> None:
    """Raise unless an HDF5 file is as long as its superblock states; the library itself checks PDB files.

    Raises:
        DataError: missing, no file, or cut; the library would give zeros.
    """
    with os_errors(path), path.open("rb") as file:
        head = file.read(48)
        size = file.seek(0, 2)
    if not head.startswith(SIGNATURE):
        return
    # Of a version that is not known the library has to tell.
    with suppress(KeyError):
        end = max(48, *struct.unpack_from("<Q", head.ljust(48, b"\0"), {0: 40, 2: 28, 3: 28}[(head + b"\0")[8]]))
        if size < end:
            raise DataError(
                f"{path} is incomplete: it has {size} of {end} bytes", hint="generate or fetch the file again"
            )


class SiloFile:
    """Open Silo file.

    Args:
        path: the file.
        create: write a new one, by the HDF5 driver; else read one, by the driver that it was written with.

    Raises:
        DataError: the library refuses it.
    """

    def __init__(self, path: Path, *, create: bool = False) -> None:
        self.path = path
        self._library = library()
        if not create:
            check_complete(path)
        with LOCK:
            name = str(path).encode()
            if create:
                self._file = self._library.DBCreateReal(name, _CLOBBER, _LOCAL, b"", _HDF5_DRIVER)
            else:
                self._file = self._library.DBOpenReal(name, _UNKNOWN, _READ)
            why = self._why()
        if not self._file:
            raise open_error(path, RuntimeError(f"Silo: {why}"))

    def _why(self) -> str:
        return (self._library.DBErrString() or b"").decode(errors="replace")

    def write(self, name: str, first: int, rows: int, content: npt.NDArray[Any]) -> None:
        """Write rows from row ``first`` on to an array with ``rows`` rows in total.

        Raises:
            RuntimeError: the library could not.
        """
        stored = np.ascontiguousarray(content).view(stored_type(content.dtype))
        stored = stored.reshape(len(stored), *_packed(stored.shape[1:]))
        offset = _ints([first, *(0 for _ in stored.shape[1:])])
        total, part, ones = _ints([rows, *stored.shape[1:]]), _ints(stored.shape), _ints([1] * stored.ndim)
        kind = _TYPES[stored_type(content.dtype)]
        with LOCK:
            done = self._library.DBWriteSlice(
                self._file, name.encode(), stored.ctypes.data, kind, offset, part, ones, total, stored.ndim
            )
            why = self._why()
        if done != 0:
            raise RuntimeError(f"Silo: {name}: {why}")

    def array(self, name: str, dtype: np.dtype[Any], row_shape: tuple[int, ...]) -> SiloArray:
        """Returns the array ``name`` for reading, after checking type and shape.

        Raises:
            DataError: it is missing, or of another type or shape.
        """
        dims = (ctypes.c_int * _MAX_AXES)()
        with LOCK:
            there = self._library.DBInqVarExists(self._file, name.encode())
            axes = self._library.DBGetVarDims(self._file, name.encode(), _MAX_AXES, dims) if there else -1
            kind = self._library.DBGetVarType(self._file, name.encode()) if axes > 0 else -1
        if axes <= 0:
            raise DataError(f"{self.path} has no array {name!r}", hint="correct dataset.fields")
        shape = tuple(dims[:axes])
        wanted = _TYPES[stored_type(dtype)]
        if kind not in _SAME.get(wanted, (wanted,)):
            raise DataError(
                f"{self.path}: array {name} has Silo type number {kind}, expected {wanted} for {dtype}",
                hint="correct dataset.fields",
            )
        if shape[1:] != _packed(row_shape):
            shown = ", ".join(["n", *map(str, _packed(row_shape))])
            raise DataError(
                f"{self.path}: array {name} has shape {list(shape)}, but the configuration expects [{shown}]",
                hint="correct dataset.fields",
            )
        return SiloArray(self, name, shape[0], row_shape, dtype)

    def read_into(self, name: str, first: int, out: npt.NDArray[Any]) -> None:
        """Read ``len(out)`` rows from row ``first`` on; ``out`` is contiguous.

        Raises:
            DataError: the library could not.
        """
        shape = (len(out), *_packed(out.shape[1:]))
        offset, part, ones = _ints([first, *(0 for _ in shape[1:])]), _ints(shape), _ints([1] * len(shape))
        with LOCK:
            done = self._library.DBReadVarSlice(
                self._file, name.encode(), offset, part, ones, len(shape), out.ctypes.data
            )
            why = self._why()
        if done != 0:
            raise DataError(
                f"{self.path}: rows {first} to {first + len(out) - 1} of {name} cannot be read: {why}",
                hint="the file is damaged; generate or fetch the file again",
            )

    def close(self) -> None:
        """Close the file; further calls do nothing."""
        file, self._file = self._file, None
        if file:
            with LOCK:
                self._library.DBClose(file)


class SiloArray:
    """Array that is read by ranges of rows along its first axis, with one library call per range.

    Attributes:
        count: rows.
        name: its path in the file.
        stored_shape: its shape there.
    """

    def __init__(self, file: SiloFile, name: str, count: int, row_shape: tuple[int, ...], dtype: np.dtype[Any]) -> None:
        self.count = count
        self.name = name
        self.stored_shape = (count, *_packed(row_shape))
        self._file = file
        self._row_shape = row_shape
        self._dtype = dtype

    def read_into(self, first: int, out: npt.NDArray[Any]) -> None:
        """Read rows from row ``first`` on into contiguous memory.

        Raises:
            DataError: there are fewer, or they are damaged.
        """
        check_rows(self._file.path, self.name, self.count, first, len(out))
        if len(out):
            self._file.read_into(self.name, first, out)

    def read(self, first: int, count: int) -> npt.NDArray[Any]:
        """Reads rows into a new array; raises as :meth:`read_into` does."""
        sound = first >= 0 and 0 <= count <= self.count
        out = np.empty((count if sound else 1, *self._row_shape), self._dtype)
        self.read_into(first if sound else self.count, out)
        return out


def _packed(row_shape: tuple[int, ...]) -> tuple[int, ...]:
    """Stored shape of a row; the last axes are merged because Silo's slices have at most three axes."""
    return row_shape if len(row_shape) <= 2 else (row_shape[0], math.prod(row_shape[1:]))


def too_long(rows: int, shape: Sequence[int]) -> bool:
    """Whether an array has more elements than a C ``int``, Silo's type of lengths, can count."""
    return rows * math.prod(shape) > _MAX_LENGTH


def make_repeatable(path: Path) -> None:
    """Remove timestamps from an HDF5 file, so that equal content gives equal bytes."""
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0) as content:
        if content[:8] != SIGNATURE:
            return
        with h5py.File(path) as read:
            data = sorted(_data(read))
        place = 0
        for start, end in [*data, (len(content), len(content))]:
            for timestamp in list(_CHANGED.finditer(content, place, start)):
                content[timestamp.start(1) : timestamp.end(1)] = bytes(4)
            place = max(place, end)


def _data(file: h5py.File) -> list[tuple[int, int]]:
    """Extents of the arrays' elements, whose bytes must not be mistaken for timestamps."""
    extents: list[tuple[int, int]] = []

    def note(_: str, item: Any) -> None:
        if isinstance(item, h5py.Dataset) and item.id.get_offset() is not None:
            extents.append((item.id.get_offset(), item.id.get_offset() + item.id.get_storage_size()))

    file.visititems(note)
    return extents


def _ints(values: Sequence[int]) -> Any:
    return (ctypes.c_int * len(values))(*values)
