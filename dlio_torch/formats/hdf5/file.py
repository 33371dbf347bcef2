"""Opening and checking HDF5 files, for all formats that are based on HDF5."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.mpi_file import Ranks
from dlio_torch.formats.hdf5.guard import check_array, check_link

# HDF5's own defaults before release 2.0, which the applications ran with; set explicitly because
# the default has since grown.
CHUNK_SLOTS = 521
CHUNK_W0 = 0.75
METADATA_CACHE_LIMITS = (1024, 128 << 20)
"""Sizes that HDF5 accepts for its metadata cache, in bytes (H5C__MIN_MAX_CACHE_SIZE and H5C__MAX_MAX_CACHE_SIZE)."""

# Which of these h5py raises depends on the part of a damaged file that the library stumbles over.
DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError)


def open_file(
    path: Path,
    chunk_cache_bytes: int,
    metadata_cache_bytes: int = 0,
    driver: Literal["sec2", "core"] = "sec2",
    ranks: Ranks | None = None,
) -> h5py.File:
    """Open an HDF5 file for reading, without a page buffer.

    Args:
        path: the file.
        chunk_cache_bytes: chunk cache of each array.
        metadata_cache_bytes: fixed size of the cache of B-tree nodes and headers; 0: the library's own.
        driver: ``sec2`` makes POSIX calls as they are needed, ``core`` reads the whole file now.
        ranks: those that open it together, for MPI-IO instead.

    Raises:
        DataError: missing, not readable, incomplete, or no HDF5 file.
    """
    try:
        access: dict[str, Any] = {"driver": "core", "backing_store": False} if driver == "core" else {}
        if ranks is not None:
            access = {"driver": "mpio", "comm": ranks.comm, "info": ranks.info}
        file = h5py.File(path, "r", rdcc_nbytes=chunk_cache_bytes, rdcc_nslots=CHUNK_SLOTS, rdcc_w0=CHUNK_W0, **access)
    except DAMAGE as error:
        raise open_error(path, _refused(path) or error) from error
    if metadata_cache_bytes:
        with reading(file, path):
            set_metadata_cache(file, metadata_cache_bytes)
    return file


def set_metadata_cache(file: h5py.File, size_bytes: int) -> None:
    """Set a fixed size for the metadata cache (B-tree nodes and headers) of an open file."""
    config = file.id.get_mdc_config()
    config.set_initial_size = True
    config.initial_size = config.min_size = config.max_size = size_bytes
    config.incr_mode = config.flash_incr_mode = config.decr_mode = 0  # neither grow nor shrink
    file.id.set_mdc_config(config)


def _refused(path: Path) -> OSError | None:
    """The system's error when it opens a file, which HDF5's core driver does not report."""
    try:
        path.open("rb").close()
    except OSError as error:
        return error
    return None


@contextmanager
def reading(file: h5py.File, path: Path) -> Iterator[None]:
    """Turn errors of the body into one-line errors for the file, and close the file on any error.

    Raises:
        DataError: what was raised inside, or in place of what h5py raises for a damaged file.
    """
    try:
        yield
    except DAMAGE as error:
        file.close()
        raise open_error(path, error) from error
    except BaseException:
        file.close()
        raise


def open_with_cache(file: h5py.File, name: str, cache_bytes: int) -> h5py.Dataset:
    """Open an array with its own chunk cache."""
    access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
    access.set_chunk_cache(CHUNK_SLOTS, cache_bytes, CHUNK_W0)
    return h5py.Dataset(h5py.h5d.open(file.id, name.encode(), access))


def require(
    file: h5py.File, name: str, path: Path, dtype: np.dtype[Any], row_shape: tuple[int, ...] = (), *, hint: str
) -> h5py.Dataset:
    """The array ``name`` of an open file, whose elements fit into memory of ``dtype``.

    Args:
        file: the open file.
        name: path of the array in it.
        path: path of the file, for messages.
        dtype: element type that it must have.
        row_shape: shape that one row must have.
        hint: what to do if the type or the shape is another.

    Raises:
        DataError: it is missing (names what is there), or of another type or shape.
    """
    item = _find(file, name, path)
    if not item.shape:
        raise DataError(f"{path}: array {name} is a scalar, not an array of rows", hint=hint)
    if item.dtype != dtype:
        raise DataError(f"{path}: array {name} holds {item.dtype}, but the configuration expects {dtype}", hint=hint)
    if item.shape[1:] != row_shape:
        wanted = ", ".join(["rows", *map(str, row_shape)])
        raise DataError(
            f"{path}: array {name} has shape {list(item.shape)}, but the configuration expects [{wanted}]", hint=hint
        )
    return item


def _find(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    parent: h5py.Group = file
    for part in name.split("/"):
        # Membership asks the group's index alone: a member that is listed but cannot be opened is damage,
        # and h5py's KeyError for it goes on to reading().
        if not isinstance(parent, h5py.Group) or part not in parent:
            raise DataError(
                f"{path} has no array {name!r} ({_content(parent)})",
                hint="correct the names in the dataset options, or replace the file",
            )
        check_link(parent, part, path)
        parent = parent[part]
    if not isinstance(parent, h5py.Dataset):
        raise DataError(
            f"{path} has no array {name!r} ({_content(parent)})",
            hint="correct the names in the dataset options, or replace the file",
        )
    check_array(parent, path)
    return parent


def _content(item: Any) -> str:
    if not isinstance(item, h5py.Group):
        return f"{item.name} is not a group"
    return f"group {item.name} contains: {', '.join(list(item)[:8]) or 'nothing'}"
