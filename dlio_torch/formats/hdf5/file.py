"""Opening and checking HDF5 files, for all formats that are based on HDF5."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.mpi_file import Ranks
from dlio_torch.formats.hdf5.element_type import is_numpy_type
from dlio_torch.formats.hdf5.guard import check_array, check_link

# HDF5's own defaults before release 2.0, which the applications ran with; set explicitly because
# the default has since grown.
_SLOTS = ((8 << 20, 8191), (0, 521))  # least size of a chunk cache, and the slots that HDF5 combines with it by default
CHUNK_W0 = 0.75
_PART = re.compile(rb"NCSA(fami|mult)")  # marks of the drivers family and multi in a superblock
_HEAD_BYTES = 4096
METADATA_CACHE_LIMITS = (1024, 128 << 20)
"""Sizes that HDF5 accepts for its metadata cache, in bytes (H5C__MIN_MAX_CACHE_SIZE and H5C__MAX_MAX_CACHE_SIZE)."""

# Which of these h5py raises depends on the part of a damaged file that the library stumbles over.
DAMAGE = (OSError, RuntimeError, LookupError, ValueError, TypeError, OverflowError)


def chunk_slots(cache_bytes: int) -> int:
    """Slots of a chunk cache (rdcc_nslots): those of HDF5's own cache of 1 MiB, or of 8 MiB since release 2.0."""
    return next(slots for least, slots in _SLOTS if cache_bytes >= least)


def library_cache_bytes() -> int:
    """Chunk cache of an array in a file that is opened without options, in bytes."""
    return int(h5py.h5p.create(h5py.h5p.FILE_ACCESS).get_cache()[2])


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
        slots = chunk_slots(chunk_cache_bytes)
        file = h5py.File(path, "r", rdcc_nbytes=chunk_cache_bytes, rdcc_nslots=slots, rdcc_w0=CHUNK_W0, **access)
    except DAMAGE as error:
        raise _in_use(path, str(error)) or open_error(path, _refused(path) or error) from error
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


def _in_use(path: Path, error: str) -> DataError | None:
    """The one-line error for a file that is open for writing, or a part of a larger file; ``None``: it is neither."""
    if "unable to lock file" in error:
        return DataError(
            f"{path} cannot be locked: another process has it open for writing, or the file system has no locks",
            hint="close it there; or set the environment variable HDF5_USE_FILE_LOCKING=FALSE, if nothing writes it",
        )
    if "already open for write" in error or "already open for SWMR" in error:
        return DataError(
            f"{path} is marked as open for writing: a program writes it now, or ended without closing it",
            hint=f"close it there; if none does, remove the mark by: h5clear -s {path}",
        )
    if "driver should be used" in error or _is_part(path):
        return DataError(
            f"{path} is one of several files that together are one HDF5 file (driver family, multi or split)",
            hint="join them by h5repart or h5repack into one file",
        )
    return None


def _is_part(path: Path) -> bool:
    """Whether a file, or the first one of a series of names, says that it is a part of a larger file."""
    names = {path.name, *(f"{path.name[: n.start()]}{0:0{len(n[0])}d}{path.name[n.end() :]}" for n in _numbers(path))}
    for name in names:
        with suppress(OSError), path.with_name(name).open("rb") as file:
            if _PART.search(file.read(_HEAD_BYTES)):
                return True
    return False


def _numbers(path: Path) -> Iterator[re.Match[str]]:
    return re.finditer(r"\d+", path.name)


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
    access.set_chunk_cache(chunk_slots(cache_bytes), cache_bytes, CHUNK_W0)
    return h5py.Dataset(h5py.h5d.open(file.id, name.encode(), access))


def require(
    file: h5py.File, name: str, path: Path, dtype: np.dtype[Any], row_shape: tuple[int, ...] = (), *, hint: str
) -> h5py.Dataset:
    """The array ``name`` of an open file, whose elements are those of ``dtype``; numbers may have foreign byte order.

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
    if item.dtype != dtype and (item.dtype.kind not in "iuf" or item.dtype.newbyteorder("=") != dtype):
        raise DataError(f"{path}: array {name} holds {item.dtype}, but the configuration expects {dtype}", hint=hint)
    if not is_numpy_type(item):
        raise DataError(
            f"{path}: array {name} has elements of a type that NumPy has not, which h5py converts to {dtype}",
            hint=f"store the array as {dtype}",
        )
    if item.shape[1:] != row_shape:
        wanted = ", ".join(["rows", *map(str, row_shape)])
        raise DataError(
            f"{path}: array {name} has shape {list(item.shape)}, but the configuration expects [{wanted}]", hint=hint
        )
    return item


def reopen(file: h5py.File, name: str) -> h5py.h5d.DatasetID | None:
    """An array that :func:`require` accepted before, in the same file opened again, by ``H5Oopen`` as ``file[name]``.

    Returns:
        ``None``: there is no such array any more, or the way to it has links that :func:`require` must look at.
    """
    parts = name.encode().split(b"/")
    try:
        for end in range(1, len(parts) + 1):
            if file.id.links.get_info(b"/".join(parts[:end])).type != h5py.h5l.TYPE_HARD:
                return None
        array = h5py.h5o.open(file.id, name.encode())
    except DAMAGE:
        return None
    return array if isinstance(array, h5py.h5d.DatasetID) else None


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
