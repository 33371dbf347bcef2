"""Opening of Zarr stores by zarr-python, with errors of one line."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from dlio_torch.errors import DataError, DlioError, MissingPackageError
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.libraries import import_library
from dlio_torch.formats.zarr.facts import METADATA, settings
from dlio_torch.formats.zarr.options import ZarrConfig

if TYPE_CHECKING:
    import zarr

# Which of these zarr-python and its codecs raise depends on the part of a damaged store that they stumble over.
DAMAGE = (
    OSError, EOFError, RuntimeError, LookupError, ValueError, TypeError, AttributeError, ArithmeticError,
    AssertionError, MemoryError, NotImplementedError, zlib.error,
)  # fmt: skip
_OLDEST = 3
_ZIP = b"PK\x03\x04"


def need_zarr() -> None:
    """Check that zarr-python 3 is installed.

    Raises:
        MissingPackageError: it is not.
    """
    zarr = import_library("zarr", "dataset.format=zarr needs zarr", "zarr")
    if int(zarr.__version__.split(".")[0]) < _OLDEST:
        raise MissingPackageError(
            f"dataset.format=zarr needs zarr {_OLDEST} or newer, but zarr {zarr.__version__} is installed",
            hint="pip install 'dlio-torch[zarr]'",
        )


@contextmanager
def reading(path: Path) -> Iterator[None]:
    """Turn errors of zarr-python into one-line errors that name the store.

    Raises:
        DataError: what was raised inside, or in place of what zarr-python raises for a damaged store.
    """
    try:
        yield
    except DlioError:
        raise
    except DAMAGE as error:
        raise _refusal(path, error) from error


def _refusal(path: Path, error: Exception) -> DataError:
    """The one-line error for a store that could not be opened or read."""
    if path.is_file():
        with open(path, "rb") as file:
            zipped = file.read(len(_ZIP)) == _ZIP
        return DataError(
            f"{path} is {'a zip store' if zipped else 'a file'}; dataset.format=zarr reads stores that are folders",
            hint="unpack the zip store into a folder" if zipped else "correct dataset.path or dataset.format",
        )
    if path.is_dir() and not any((path / name).is_file() for name in METADATA):
        return DataError(
            f"{path} is not a Zarr store: it has none of {', '.join(METADATA)}", hint="correct dataset.path"
        )
    if path.is_dir() and isinstance(error, FileNotFoundError):
        error = ValueError(str(error))
    text = " ".join(str(error).split())
    return open_error(path, error if isinstance(error, OSError) and error.errno else ValueError(text or repr(error)))


def open_group(path: Path, options: ZarrConfig) -> zarr.Group:
    """Opens a store that is a group, as by ``zarr.open_group(path, mode="r")``."""
    import zarr

    _use(options)
    return zarr.open_group(str(path), mode="r")


def open_array(path: Path, options: ZarrConfig) -> zarr.Array[Any]:
    """Opens a store that is an array, as by ``zarr.open_array(path, mode="r")``."""
    import zarr

    _use(options)
    return zarr.open_array(str(path), mode="r")


def _use(options: ZarrConfig) -> None:
    """Set what zarr-python shall use, unless it does: a lock that is held at a fork would never be free again."""
    import zarr

    wanted = settings(options)
    if any(zarr.config.get(key) != value for key, value in wanted.items()):
        zarr.config.set(wanted)


def member(group: zarr.Group, name: str, path: Path) -> zarr.Array[Any]:
    """Opens an array of a group.

    Raises:
        DataError: it is missing (names what is there), or a group.
    """
    import zarr

    try:
        array = group[name]
    except KeyError as error:
        raise DataError(
            f"{path} has no array {name!r} (it has {', '.join(_names(path)) or 'none'})",
            hint="correct the names in dataset.fields, or replace the store",
        ) from error
    if not isinstance(array, zarr.Array):
        raise DataError(
            f"{path}: {name} is a group, not an array", hint="name an array of the group, for example group/array"
        )
    return array


def check_array(
    array: zarr.Array[Any], name: str, path: Path, dtype: np.dtype[Any], row_shape: Sequence[int]
) -> zarr.Array[Any]:
    """Returns the array after checking the type of its elements and the shape of a row.

    Raises:
        DataError: it is of another type or shape.
    """
    stored = np.dtype(array.dtype)
    if native(stored) != dtype or array.shape[1:] != tuple(row_shape) or not array.shape:
        wanted = ", ".join(["rows", *map(str, row_shape)])
        raise DataError(
            f"{path}: array {name} is {stored}{list(array.shape)}, but dataset.fields expect {dtype}[{wanted}]",
            hint="correct dataset.fields",
        )
    return array


def native(dtype: np.dtype[Any]) -> np.dtype[Any]:
    """The element type in this machine's byte order."""
    return dtype if dtype.isnative else dtype.newbyteorder("=")  # strings of variable length have no order


def _names(path: Path) -> list[str]:
    """Names of some arrays at the top of a store."""
    folders = sorted(inner for inner in path.iterdir() if inner.is_dir())
    return [folder.name for folder in folders if any((folder / name).is_file() for name in METADATA)][:8]
