"""Reader of format ``hdf5``; see :mod:`dlio_torch.formats.hdf5.format` for the file layout."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.file_errors import open_error
from dlio_torch.formats.core.layout import ArrayLayout
from dlio_torch.formats.core.mpi_file import Ranks
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX, read_pieces
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.hdf5.file import DAMAGE, open_file, reading, reopen, require
from dlio_torch.formats.hdf5.layout import array_layout
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.hdf5.slab import Slab

EXTENTS = np.dtype({"names": ["first", "N"], "formats": ["<u8", "<u4"], "offsets": [0, 8], "itemsize": 16})
_OTHER_EXTENTS = "store extents as {first u8, N u4} in 16 bytes, or correct dataset.fields"


class Hdf5Reader(Reader):
    """Reader of one HDF5 file.

    Its arrays are opened with it and stay open, as by ``a = f["a"]; b = f["b"]; a[i]; b[i]`` (``reopen=none``); or each
    is opened just before it is read and closed afterwards (``reopen=array``), as by ``f["a"][i]; f["b"][i]``.  The
    header of an array is then read after the elements of the array before it, and no chunk stays in the library's
    cache.  With ``reopen=file`` the file is closed as well after each :meth:`read` and opened for the next one, as by
    ``with h5py.File(path) as f: f["a"][i]; f["b"][i]``; the first read uses the file that was opened here.
    The first array is opened with the file in all cases, for the number of samples (``f["a"].shape[0]``).

    Attributes:
        rows: samples along the first axis of its arrays.

    Args:
        path: the file.
        specs: its arrays, as they are stored.
        select: by array the indices along the first axis of a sample that are read; none or empty: all.
        options: how the library reads.
        ranks: those that open it together, for MPI-IO.

    Raises:
        DataError: here or from :meth:`read`: the file has another layout.
    """

    num_samples: int | None

    def __init__(
        self,
        path: Path,
        specs: list[ArraySpec],
        select: dict[str, tuple[int, ...]],
        options: Hdf5Config,
        ranks: Ranks | None = None,
    ) -> None:
        self._open = partial(open_file, path, options.chunk_cache_bytes, driver=options.driver, ranks=ranks)
        self._file = self._open()
        self._is_open = True
        self._closes_file = options.reopen == "file"
        self._path = path
        self._specs = {spec.name: spec for spec in specs}
        self._select = select
        self._kept: dict[str, Slab] | None = {} if options.reopen == "none" else None
        self._checked: dict[str, Slab] = {}  # arrays that were accepted when they were first opened
        first = specs[0]
        with reading(self._file, path):
            self.rows = self.num_samples = (self._table(first.name) if first.variable else self._array(first.name)).rows
            for spec in specs if self._kept is not None else ():
                self.slabs(spec.name)

    def _array(self, name: str) -> Slab:
        """Returns an array, which is opened at the first call."""
        if (again := self._opened_before(name)) is not None:
            return again
        spec = self._specs[name]
        array = self._require(name, spec.dtype, spec.shape, "correct dataset.fields")
        slab = Slab(array, self._path, self._select.get(name, ()))
        if not spec.variable:
            self._check_count(name, slab)
        return self._keep(name, slab)

    def _table(self, name: str) -> Slab:
        """Returns the table of extents of a variable-length array, which is opened at the first call."""
        table = name + EXTENTS_SUFFIX
        if (again := self._opened_before(table)) is not None:
            return again
        slab = Slab(self._require(table, EXTENTS, (), _OTHER_EXTENTS), self._path)
        self._check_count(name, slab)
        return self._keep(table, slab)

    def _opened_before(self, name: str) -> Slab | None:
        """Returns an array that is open, or opens one again that was accepted before and is the same."""
        if self._kept is not None:
            return self._kept.get(name)
        checked = self._checked.get(name)
        array = None if checked is None else reopen(self._file, name)
        return None if checked is None or array is None else checked.reopened(array)

    def _keep(self, name: str, slab: Slab) -> Slab:
        if self._kept is not None:
            self._kept[name] = slab
        else:
            self._checked[name] = slab.detached()
        return slab

    def _require(self, name: str, dtype: np.dtype[Any], shape: tuple[int, ...], hint: str) -> h5py.Dataset:
        try:
            return require(self._file, name, self._path, dtype, shape, hint=hint)
        except DAMAGE as error:
            raise open_error(self._path, error) from error

    def _check_count(self, name: str, counted: Slab) -> None:
        """Raise unless an array has as many samples as the first array."""
        count = getattr(self, "rows", counted.rows)
        if counted.rows != count:
            raise DataError(
                f"{self._path}: the arrays hold different numbers of samples: {next(iter(self._specs))} has {count}, "
                f"{name} has {counted.rows}",
                hint="replace the damaged file, or name arrays with equal numbers of samples in dataset.fields",
            )

    def describe(self) -> dict[str, Any]:
        """Chunks and filter of each array; also checks that the last extents lie within their array."""
        details: dict[str, Any] = {}
        with reading(self._file, self._path):
            for name in self._specs:
                array, extents = self.slabs(name)
                if extents is not None and self.rows:
                    last = extents.read(self.rows - 1, 1)[0]
                    array.check(int(last["first"]), int(last["N"]))
                stored = self._file[name]
                details[name] = {"chunks": stored.chunks, "compression": stored.compression}
        return details

    def slabs(self, name: str) -> tuple[Slab, Slab | None]:
        """Returns an array and, for variable-length samples, its table of extents."""
        table = self._table(name) if self._specs[name].variable else None
        return self._array(name), table

    def layouts(self) -> dict[str, ArrayLayout]:
        """The layout of each array; reads all extents."""
        layouts: dict[str, ArrayLayout] = {}
        with reading(self._file, self._path):
            for name in self._specs:
                _, table = self.slabs(name)
                extents = None
                if table is not None:
                    rows = table.read(0, self.rows)
                    extents = rows["first"].astype(np.int64), rows["N"].astype(np.int64)
                layouts[name] = array_layout(self._file[name], self._path, extents, self._select.get(name, ()))
        return layouts

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        if not self._is_open:
            self._file, self._is_open = self._open(), True
        try:
            self._read_arrays(first, count, buffer, position)
        finally:
            if self._closes_file:
                self.close()

    def _read_arrays(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        for name, spec in self._specs.items():
            if spec.variable:
                self._read_variable(name, first, count, buffer, position)
            else:
                self._array(name).read_into(first, buffer.fixed[name][position : position + count])

    def read_column(self, name: str, column: int) -> npt.NDArray[Any]:
        """Reads one index of the second axis for all rows by one call; shape ``(rows, 1, ...)``.

        Raises:
            DataError: the file has another layout, or its bytes are damaged.
        """
        spec = self._specs[name]
        array = self._require(name, spec.dtype, spec.shape, "correct dataset.once")
        return Slab(array, self._path, (column,)).read(0, self.rows)

    def _read_variable(self, name: str, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        """Reads the extents of all samples in one call and then their rows in one call."""
        extents = self._table(name).read(first, count)
        starts, lengths = extents["first"].tolist(), extents["N"].tolist()
        read_pieces(self._array(name).read, starts, lengths, buffer, position, name=name, first=first, path=self._path)

    def __enter__(self) -> Hdf5Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._is_open = False
        self._file.close()
