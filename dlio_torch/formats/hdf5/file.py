"""What the HDF5-based formats share: opening a file and reading hyperslabs into memory.

Reads go through h5py's low-level calls, which are ``H5Dread`` with a file space and a memory space:
the same library calls as the application's, without h5py's high-level selection machinery.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.format import open_error
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
    """Open for reading; no page buffer.

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
        how: dict[str, Any] = {"driver": "core", "backing_store": False} if driver == "core" else {}
        if ranks is not None:
            how = {"driver": "mpio", "comm": ranks.comm, "info": ranks.info}
        file = h5py.File(path, "r", rdcc_nbytes=chunk_cache_bytes, rdcc_nslots=CHUNK_SLOTS, rdcc_w0=CHUNK_W0, **how)
    except DAMAGE as error:
        raise open_error(path, _refused(path) or error) from error
    if metadata_cache_bytes:
        with reading(file, path):
            set_metadata_cache(file, metadata_cache_bytes)
    return file


def set_metadata_cache(file: h5py.File, size_bytes: int) -> None:
    """Give the cache of B-tree nodes and headers of an open file a fixed size."""
    config = file.id.get_mdc_config()
    config.set_initial_size = True
    config.initial_size = config.min_size = config.max_size = size_bytes
    config.incr_mode = config.flash_incr_mode = config.decr_mode = 0  # neither grow nor shrink
    file.id.set_mdc_config(config)


def _refused(path: Path) -> OSError | None:
    """Why the system does not open a file; the core driver keeps that to itself."""
    try:
        path.open("rb").close()
    except OSError as error:
        return error
    return None


@contextmanager
def reading(file: h5py.File, path: Path) -> Iterator[None]:
    """Look into an open file; on any error close it again.

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
    """Open an array with a chunk cache of its own."""
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
        raise DataError(f"{path}: {name} is a single value, not an array of rows", hint=hint)
    if item.dtype != dtype:
        raise DataError(f"{path}: {name} holds {item.dtype}, expected {dtype}", hint=hint)
    if item.shape[1:] != row_shape:
        wanted = ", ".join(["rows", *map(str, row_shape)])
        raise DataError(f"{path}: {name} has shape {list(item.shape)}, expected [{wanted}]", hint=hint)
    return item


def _find(file: h5py.File, name: str, path: Path) -> h5py.Dataset:
    parent: h5py.Group = file
    for part in name.split("/"):
        # Membership asks the group's index alone: a member that is listed but cannot be opened is damage,
        # and h5py's KeyError for it goes on to reading().
        if not isinstance(parent, h5py.Group) or part not in parent:
            raise DataError(f"{path} has no array {name!r} ({_content(parent)})", hint="the layout does not fit")
        check_link(parent, part, path)
        parent = parent[part]
    if not isinstance(parent, h5py.Dataset):
        raise DataError(f"{path} has no array {name!r} ({_content(parent)})", hint="the layout does not fit")
    check_array(parent, path)
    return parent


def _content(item: Any) -> str:
    if not isinstance(item, h5py.Group):
        return f"{item.name} is no group"
    return f"group {item.name} holds: {', '.join(list(item)[:8]) or 'nothing'}"


class Slab:
    """An open array that is read by runs of rows along its first axis.

    Args:
        dataset: the open HDF5 dataset, from :func:`require`.
        path: its file, for messages.
        select: indices along the second axis that are read, growing; empty: all.
    """

    def __init__(self, dataset: h5py.Dataset, path: Path, select: Sequence[int] = ()) -> None:
        self.dtype: np.dtype[Any] = dataset.dtype
        self.rows: int = dataset.shape[0]
        stored = dataset.shape[1:]
        self.row_shape: tuple[int, ...] = (len(select), *stored[1:]) if select else stored
        # Runs of neighbouring indices, each one block of the selection.
        self._parts = [(start, length, stored[1:]) for start, length in _runs(select)]
        self._path = path
        self._name: str = dataset.name
        self._id = dataset.id
        self._space = dataset.id.get_space()
        # The stored type as memory type: the library moves bytes and converts nothing.
        self._type = dataset.id.get_type()
        self._tail = (0,) * len(self.row_shape)
        self._select(1)

    def _select(self, count: int) -> None:
        """Memory space of ``count`` rows, kept for the next read: making one costs as much as a small read."""
        self._shape = (count, *self.row_shape)
        self._memory = h5py.h5s.create_simple(self._shape)

    def check(self, first: int, count: int) -> None:
        """Raise unless the array has rows ``first`` to ``first + count - 1``.

        Raises:
            DataError: it has fewer.
        """
        if first < 0 or count < 0 or first + count > self.rows:
            raise DataError(
                f"{self._path}: {self._name} has {self.rows} rows, rows {first} to {first + count - 1} were asked for",
                hint="the file does not fit its own index; generate or fetch it again",
            )

    def read_into(self, first: int, out: npt.NDArray[np.generic]) -> None:
        """One ``H5Dread`` of ``len(out)`` rows from row ``first`` on into ``out``.

        Args:
            first: first row.
            out: C-contiguous, of this array's dtype and row shape: the library writes to its address.

        Raises:
            DataError: the array has fewer rows, or its bytes are damaged.
        """
        count = len(out)
        self.check(first, count)
        try:
            if count != self._shape[0]:
                self._select(count)
            self._choose(first, count)
            self._id.read(self._memory, self._space, out, self._type)
        except DAMAGE as error:
            raise DataError(
                f"{self._path}: rows {first} to {first + count - 1} of {self._name} cannot be read: {error}",
                hint="the file is damaged; generate or fetch it again",
            ) from error

    def read_runs(
        self, firsts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], transfer: h5py.h5p.PropDXID | None
    ) -> npt.NDArray[Any]:
        """One ``H5Dread`` of several runs of rows, none of which overlap; of no row, too.

        Args:
            firsts: first row of each run, ascending.
            counts: rows of each.
            transfer: how they are read; ``None``: as usual.

        Returns:
            The rows, run after run.

        Raises:
            DataError: the array has fewer rows, or its bytes are damaged.
        """
        kept = counts != 0
        firsts, counts = firsts[kept], counts[kept]
        if len(firsts):
            if bool((firsts[1:] < firsts[:-1] + counts[:-1]).any()) or bool((counts < 0).any()):
                raise DataError(f"{self._path}: {self._name}: samples overlap", hint="set access.io=posix")
            self.check(int(firsts[0]), int(firsts[-1] + counts[-1] - firsts[0]))
        out = self.empty(int(counts.sum()))
        try:
            self._space.select_none()
            begins = np.concatenate([[0], np.flatnonzero(firsts[1:] != firsts[:-1] + counts[:-1]) + 1])
            for low, high in pairwise([*begins.tolist(), len(firsts)] if len(firsts) else []):
                self._add(int(firsts[low]), int(counts[low:high].sum()))
            memory = h5py.h5s.create_simple(out.shape if len(out) else (1, *self.row_shape))
            if not len(out):
                memory.select_none()
            self._id.read(memory, self._space, out, self._type, transfer)
        except DAMAGE as error:
            raise DataError(
                f"{self._path}: rows of {self._name} cannot be read by MPI-IO: {error}",
                hint="the file is damaged; generate or fetch it again",
            ) from error
        return out

    def _add(self, first: int, count: int) -> None:
        """Add rows, of each the wanted part, to the selection in the file."""
        for start, length, rest in self._parts:
            begin = (first, start, *(0 for _ in rest))
            self._space.select_hyperslab(begin, (count, length, *rest), op=h5py.h5s.SELECT_OR)
        if not self._parts:
            self._space.select_hyperslab((first, *self._tail), (count, *self.row_shape), op=h5py.h5s.SELECT_OR)

    def _choose(self, first: int, count: int) -> None:
        """Select the rows in the file, and of each row the wanted part."""
        if not self._parts:
            self._space.select_hyperslab((first, *self._tail), self._shape)
            return
        self._space.select_none()
        self._add(first, count)

    def empty(self, count: int) -> npt.NDArray[Any]:
        """Memory for ``count`` rows.

        Raises:
            DataError: more rows than the array has, or than memory holds: a damaged index says anything.
        """
        self.check(0, count)
        try:
            return np.empty((count, *self.row_shape), self.dtype)
        except (MemoryError, ValueError) as error:
            raise DataError(
                f"{self._path}: {count} rows of {self._name} do not fit into memory: {error}",
                hint="the file is damaged, or samples are too large for this machine",
            ) from error

    def read(self, first: int, count: int) -> npt.NDArray[Any]:
        """``count`` rows from row ``first`` on, in a new array; raises as :meth:`read_into` does."""
        self.check(first, count)
        out = self.empty(count)
        self.read_into(first, out)
        return out


def _runs(select: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First index and length of each run of neighbours."""
    start = previous = None
    for index in select:
        if start is None or previous is None:
            start = index
        elif index != previous + 1:
            yield start, previous - start + 1
            start = index
        previous = index
    if start is not None and previous is not None:
        yield start, previous - start + 1
