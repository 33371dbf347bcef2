"""Reads of row ranges of an HDF5 array into memory.

Reads go through h5py's low-level calls, which are ``H5Dread`` with a file space and a memory space:
the same library calls as the application's, without h5py's high-level selection machinery.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.file_errors import check_rows
from dlio_torch.formats.hdf5.file import DAMAGE


class Slab:
    """Open HDF5 array, read by ranges of rows along its first axis.

    Args:
        dataset: the open HDF5 dataset, from :func:`require`.
        path: its file, for messages.
        select: indices along the second axis that are read, growing; empty: all.
    """

    def __init__(self, dataset: h5py.Dataset, path: Path, select: Sequence[int] = ()) -> None:
        self.dtype: np.dtype[Any] = dataset.dtype.newbyteorder("=")
        # Elements in foreign byte order are read as they are stored and turned afterwards, as by astype().
        self._foreign: np.dtype[Any] | None = None if dataset.dtype.isnative else dataset.dtype
        self.rows: int = dataset.shape[0]
        stored = dataset.shape[1:]
        self.row_shape: tuple[int, ...] = (len(select), *stored[1:]) if select else stored
        # Runs of neighbouring indices, each one block of the selection.
        self._parts = [(start, length, stored[1:]) for start, length in _runs(select)]
        self._path = path
        self._name: str = dataset.name
        self._id: Any = dataset.id
        self._space = dataset.id.get_space()
        # The stored type as memory type: the library moves bytes and converts nothing.
        self._type = dataset.id.get_type().copy()
        self._properties = dataset.id.get_create_plist()
        self._tail = (0,) * len(self.row_shape)
        self._select(1)

    def detached(self) -> Slab:
        """A copy that keeps no file open and only serves :meth:`reopened`."""
        detached = copy.copy(self)
        detached._id = None
        return detached

    def reopened(self, array: h5py.h5d.DatasetID) -> Slab | None:
        """The slab of this array in a file that was opened again; ``None``: its header is another one.

        It costs a small part of a new slab and its checks, which matters to files that are opened for each sample.
        """
        space = array.get_space()
        is_same = (
            space.get_simple_extent_dims() == self._space.get_simple_extent_dims()
            and array.get_type() == self._type
            and array.get_create_plist().equal(self._properties)
        )
        if not is_same:
            return None
        slab = copy.copy(self)
        slab._id, slab._space = array, space
        return slab

    def _select(self, count: int) -> None:
        """Memory dataspace of ``count`` rows, cached because creating one costs as much as a small read."""
        self._shape = (count, *self.row_shape)
        self._memory = h5py.h5s.create_simple(self._shape)

    def check(self, first: int, count: int) -> None:
        """Raise unless the array has rows ``first`` to ``first + count - 1``.

        Raises:
            DataError: it has fewer.
        """
        check_rows(self._path, self._name, self.rows, first, count)

    def read_into(self, first: int, out: npt.NDArray[np.generic]) -> None:
        """Reads ``len(out)`` rows from row ``first`` on into ``out`` by one ``H5Dread``.

        Args:
            first: first row.
            out: C-contiguous, of this array's dtype (in native byte order) and row shape: the library writes to its
                address.

        Raises:
            DataError: the array has fewer rows, or its bytes are damaged.
        """
        count = len(out)
        self.check(first, count)
        try:
            if count != self._shape[0]:
                self._select(count)
            self._choose(first, count)
            self._transfer(self._memory, out)
        except DAMAGE as error:
            raise DataError(
                f"{self._path}: rows {first} to {first + count - 1} of {self._name} cannot be read: {error}",
                hint="the file is damaged; generate or fetch the file again",
            ) from error

    def read_box(self, starts: Sequence[int], out: npt.NDArray[np.generic]) -> None:
        """Reads a box of elements into ``out`` by one ``H5Dread``.

        Args:
            starts: first element along each axis.
            out: C-contiguous, of this array's dtype in native byte order; its shape is that of the box.

        Raises:
            DataError: the box is not inside of the array, or its bytes are damaged.
        """
        try:
            self._space.select_hyperslab(tuple(starts), out.shape)
            self._transfer(h5py.h5s.create_simple(out.shape), out)
        except DAMAGE as error:
            raise DataError(
                f"{self._path}: the box of {list(out.shape)} at {list(starts)} of {self._name} cannot be read: {error}",
                hint="the file is damaged; generate or fetch the file again",
            ) from error

    def _transfer(
        self, memory: h5py.h5s.SpaceID, out: npt.NDArray[np.generic], transfer: h5py.h5p.PropDXID | None = None
    ) -> None:
        """Calls ``H5Dread`` for the selected elements."""
        if self._foreign is None:
            self._id.read(memory, self._space, out, self._type, transfer)
            return
        stored = np.empty(out.shape, self._foreign)
        self._id.read(memory, self._space, stored, self._type, transfer)
        out[...] = stored

    def read_runs(
        self, firsts: npt.NDArray[np.int64], counts: npt.NDArray[np.int64], transfer: h5py.h5p.PropDXID | None
    ) -> npt.NDArray[Any]:
        """Reads several non-overlapping runs of rows, or no row, by one ``H5Dread``.

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
                raise DataError(
                    f"{self._path}: samples of {self._name} overlap in the file, so that one MPI-IO call cannot read "
                    "them",
                    hint="set access.io=posix",
                )
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
            self._transfer(memory, out, transfer)
        except DAMAGE as error:
            raise DataError(
                f"{self._path}: rows of {self._name} cannot be read by MPI-IO: {error}",
                hint="the file is damaged; generate or fetch the file again",
            ) from error
        return out

    def _add(self, first: int, count: int) -> None:
        """Add the selected part of some rows to the file selection."""
        for start, length, rest in self._parts:
            begin = (first, start, *(0 for _ in rest))
            self._space.select_hyperslab(begin, (count, length, *rest), op=h5py.h5s.SELECT_OR)
        if not self._parts:
            self._space.select_hyperslab((first, *self._tail), (count, *self.row_shape), op=h5py.h5s.SELECT_OR)

    def _choose(self, first: int, count: int) -> None:
        """Set the file selection to the selected part of some rows."""
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
                hint="replace the file if it is damaged, or use a machine with more memory",
            ) from error

    def read(self, first: int, count: int) -> npt.NDArray[Any]:
        """Reads ``count`` rows from row ``first`` on into a new array; raises as :meth:`read_into` does."""
        self.check(first, count)
        out = self.empty(count)
        self.read_into(first, out)
        return out


def _runs(select: Sequence[int]) -> Iterator[tuple[int, int]]:
    """First index and length of each run of consecutive indices."""
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
