"""NetCDF files through the netCDF4 library: creating, opening, element types and reading rows.

All calls of the library go through :data:`LOCK`: netCDF-C is not made for threads, and netCDF4 gives the
interpreter free while it is inside, as applications that read with threads have to know, too.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from dlio_torch.errors import ConfigError, DataError, DlioError
from dlio_torch.formats.core.file_errors import check_rows, open_error
from dlio_torch.formats.core.libraries import import_library
from dlio_torch.formats.core.library_lock import library_lock
from dlio_torch.formats.hdf5.guard import ANY_FILTER, SLACK_BYTES, check_size
from dlio_torch.formats.netcdf.classic_header import read_classic_header
from dlio_torch.syserrors import is_damage

if TYPE_CHECKING:
    import netCDF4

LOCK = library_lock()

MODELS: dict[str, Any] = {
    "netcdf4": "NETCDF4",
    "classic": "NETCDF3_CLASSIC",
    "64bit_offset": "NETCDF3_64BIT_OFFSET",
    "64bit_data": "NETCDF3_64BIT_DATA",
}
"""``dataset.netcdf.variant`` -> the library's name of the variant."""

_NATIVE = ("int8", "int16", "int32", "float32", "float64")
_MORE = (*_NATIVE, "uint8", "uint16", "uint32", "int64", "uint64")
_TYPES = {"netcdf4": _MORE, "classic": _NATIVE, "64bit_offset": _NATIVE, "64bit_data": _MORE}
_DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, OverflowError, MemoryError)
_HINT = "correct dataset.fields"


@dataclass(frozen=True)
class Element:
    """Stored type of elements, and the conversion for types that the netCDF variant lacks.

    Attributes:
        dtype: of the stored elements; of the same size.
        attributes: of the variable, that say what they are.
    """

    dtype: np.dtype[Any]
    attributes: Mapping[str, str]


def need_netcdf4(name: str) -> None:
    """Raise unless the package netCDF4 is installed.

    Raises:
        MissingPackageError: it is not; names the extra.
    """
    import_library("netCDF4", f"dataset.format={name} needs netCDF4", "netcdf")


def element_of(dtype: np.dtype[Any], variant: str, name: str) -> Element:
    """Chooses how the elements of a field are stored.

    Unsigned integers are stored as signed ones with ``_Unsigned``, the convention of the classic variants, and
    truth values as bytes with ``dtype="bool"``, that of xarray.

    Raises:
        ConfigError: there is no way.
    """
    types = _TYPES[variant]
    if dtype.name in types:
        return Element(dtype, {})
    if dtype.kind == "b":
        return Element(np.dtype(np.int8), {"dtype": "bool"})
    signed = np.dtype(f"i{dtype.itemsize}")
    if dtype.kind == "u" and signed.name in types:
        return Element(signed, {"_Unsigned": "true"})
    if dtype.name in _MORE:
        raise ConfigError(
            f"dataset.fields: {name}: dtype={dtype} cannot be used with dataset.netcdf.variant={variant}, which has "
            "no 8-byte integers",
            hint="set dataset.netcdf.variant=64bit_data or netcdf4, or another dtype of the field",
        )
    raise ConfigError(f"dataset.fields: {name}: netCDF has no type for {dtype}", hint=f"use one of {', '.join(_MORE)}")


@contextmanager
def creating(path: Path, variant: str) -> Iterator[netCDF4.Dataset]:
    """Creates a new file, which is closed after the body."""
    import netCDF4

    with LOCK, netCDF4.Dataset(path, "w", format=MODELS[variant]) as file:
        file.set_fill_off()  # everything is written, and once
        yield file


def create(
    file: netCDF4.Dataset, name: str, element: Element, dimensions: tuple[str, ...], **options: Any
) -> netCDF4.Variable[Any]:
    """Creates a variable to which elements are written in their stored form."""
    variable = file.createVariable(name, element.dtype, dimensions, fill_value=False, **options)
    variable.set_auto_maskandscale(False)
    variable.setncatts(dict(element.attributes))
    return variable


class NcFile:
    """Open netCDF file.

    Args:
        path: the file.

    Attributes:
        dataset: the library's object.
        classic_header: of a classic file, where its data lie; else ``None``.

    Raises:
        DataError: missing, damaged, incomplete, or no netCDF file.
    """

    def __init__(self, path: Path) -> None:
        import netCDF4

        self.path = path
        with reading(path):
            self.classic_header = read_classic_header(path)
            self.dataset = netCDF4.Dataset(path, "r")
            self.dataset.set_auto_maskandscale(False)

    def variable(self, name: str) -> Any:
        """Returns the variable ``name``, which may be a path through groups.

        Raises:
            DataError: it is not there; names what is.
        """
        group: Any = self.dataset
        *groups, last = name.split("/")
        for part in groups:
            if part not in group.groups:
                raise DataError(f"{self.path} has no group {part!r}, which the variable {name!r} needs", hint=_HINT)
            group = group.groups[part]
        if last not in group.variables:
            there = ", ".join([*list(group.variables)[:8], *(f"{other}/" for other in list(group.groups)[:8])])
            raise DataError(f"{self.path} has no variable {name!r}; its variables are: {there or 'none'}", hint=_HINT)
        return group.variables[last]

    def rows(self, name: str, dtype: np.dtype[Any], row_shape: tuple[int, ...], cache_bytes: int = 0) -> Rows:
        """Returns the variable ``name`` for reading by rows, after checking type and shape.

        Args:
            name: path of the variable.
            dtype: element type that it must have, or a signed or byte-sized stand-in of it.
            row_shape: shape that one row must have.
            cache_bytes: chunk cache; 0: the library's own.

        Raises:
            DataError: it is missing, or of another type or shape.
        """
        with reading(self.path):
            variable = self.variable(name)
            element_type, shape = variable.dtype, tuple(variable.shape)
            if not isinstance(element_type, np.dtype) or not _fits(element_type.newbyteorder("="), dtype):
                raise DataError(
                    f"{self.path}: variable {name} holds {element_type}, but the configuration expects {dtype}",
                    hint=_HINT,
                )
            if not shape or shape[1:] != row_shape:
                wanted = ", ".join(["n", *map(str, row_shape)])
                raise DataError(
                    f"{self.path}: variable {name} has shape {list(shape)}, but the configuration expects [{wanted}]",
                    hint=_HINT,
                )
            size = math.prod(shape) * element_type.itemsize
            if self.classic_header is None and size > SLACK_BYTES:  # a classic header was compared with the file
                check_size(name, shape, None, element_type.itemsize, self.path.stat().st_size, ANY_FILTER, self.path)
            if cache_bytes and variable.chunking() not in (None, "contiguous"):
                variable.set_var_chunk_cache(size=cache_bytes)
            return Rows(variable, name, dtype, self.path)

    def close(self) -> None:
        """Close the file; its variables must not be used afterwards."""
        with LOCK:
            if self.dataset.isopen():
                self.dataset.close()

    def __del__(self) -> None:
        # One that is collected while open would be closed by netCDF4 itself, beside what other threads call.
        if hasattr(self, "dataset"):
            self.close()


class Rows:
    """Variable that is read by ranges of rows along its first axis, with one library call per range.

    Attributes:
        count: rows.
        variable: the library's object.
        name: path of the variable.
    """

    def __init__(self, variable: Any, name: str, dtype: np.dtype[Any], path: Path) -> None:
        self.count: int = variable.shape[0]
        self.variable = variable
        self.name = name
        self._dtype = dtype
        self._path = path

    def read(self, first: int, count: int) -> npt.NDArray[Any]:
        """Reads ``count`` rows from row ``first`` on into a new array.

        Raises:
            DataError: there are fewer, or they are damaged.
        """
        self.check(first, count)
        with reading(self._path):
            rows = np.ascontiguousarray(self.variable[first : first + count])
        if not rows.dtype.isnative:
            rows = rows.astype(rows.dtype.newbyteorder("="))
        return rows.view(self._dtype)

    def check(self, first: int, count: int) -> None:
        """Raise unless the variable has rows ``first`` to ``first + count - 1``.

        Raises:
            DataError: there are fewer.
        """
        check_rows(self._path, self.name, self.count, first, count)


def _fits(stored: np.dtype[Any], wanted: np.dtype[Any]) -> bool:
    stands_in = wanted.kind in "ub" and stored.kind in "iu" and stored.itemsize == wanted.itemsize
    return stored == wanted or stands_in


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Hold the library's lock and turn its errors into the one-line error for the file.

    Raises:
        DataError: one line that names the file.
    """
    try:
        with LOCK:
            yield
    except DlioError:
        raise
    except _DAMAGE as error:
        known = isinstance(error, FileNotFoundError | PermissionError) or not is_damage(error)
        reason = getattr(error, "strerror", None)  # without the library's own name of the file
        raise open_error(path, error if known or not reason else RuntimeError(reason)) from error
