"""Reading generic HDF5 files: see :mod:`dlio_torch.formats.hdf5.format` for their layout."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.format import Reader
from dlio_torch.formats.core.layout import ArrayPlaces
from dlio_torch.formats.core.mpi_file import Ranks
from dlio_torch.formats.core.ragged import EXTENTS_SUFFIX, read_pieces
from dlio_torch.formats.hdf5.file import Slab, open_file, reading, require
from dlio_torch.formats.hdf5.layout import places_of
from dlio_torch.formats.hdf5.options import Hdf5Config

EXTENTS = np.dtype({"names": ["first", "N"], "formats": ["<u8", "<u4"], "offsets": [0, 8], "itemsize": 16})
_OTHER_EXTENTS = "extents are {first u8, N u4} in 16 bytes; correct dataset.fields"


class Hdf5Reader(Reader):
    """An open file, its arrays open.

    Args:
        path: the file.
        specs: its arrays, as they are stored.
        select: of each array the indices along the first axis of a sample that are read; empty: all.
        options: how the library reads.
        ranks: those that open it together, for MPI-IO.

    Raises:
        DataError: the file has another layout.
    """

    num_samples: int

    def __init__(
        self,
        path: Path,
        specs: list[ArraySpec],
        select: dict[str, tuple[int, ...]],
        options: Hdf5Config,
        ranks: Ranks | None = None,
    ) -> None:
        self._file = open_file(path, options.chunk_cache_bytes, driver=options.driver, ranks=ranks)
        self._path = path
        self._specs = specs
        self._select = select
        self._arrays: dict[str, Slab] = {}
        self._extents: dict[str, Slab] = {}
        with reading(self._file, path):
            for spec in specs:
                array = require(self._file, spec.name, path, spec.dtype, spec.shape, hint="correct dataset.fields")
                self._arrays[spec.name] = Slab(array, path, select[spec.name])
                if spec.variable:
                    extents = require(self._file, spec.name + EXTENTS_SUFFIX, path, EXTENTS, hint=_OTHER_EXTENTS)
                    self._extents[spec.name] = Slab(extents, path)
            self.num_samples = self._count()

    def _count(self) -> int:
        counts = {name: self._extents.get(name, array).rows for name, array in self._arrays.items()}
        if len(set(counts.values())) > 1:
            raise DataError(
                f"{self._path}: arrays disagree on the number of samples: "
                + ", ".join(f"{name} has {count}" for name, count in counts.items()),
                hint="the file is damaged, or dataset.fields names arrays that do not belong together",
            )
        return next(iter(counts.values()))

    def describe(self) -> dict[str, Any]:
        """Chunks and filter of each array; checks as well that the last extents lie within their array."""
        details: dict[str, Any] = {}
        with reading(self._file, self._path):
            for name, array in self._arrays.items():
                if name in self._extents and self.num_samples:
                    last = self._extents[name].read(self.num_samples - 1, 1)[0]
                    array.check(int(last["first"]), int(last["N"]))
                stored = self._file[name]
                details[name] = {"chunks": stored.chunks, "compression": stored.compression}
        return details

    def slabs(self, name: str) -> tuple[Slab, Slab | None]:
        """An array, and its table of extents where its samples are of variable length."""
        return self._arrays[name], self._extents.get(name)

    def places(self) -> dict[str, ArrayPlaces]:
        """Where the samples of each array lie; reads all extents."""
        found: dict[str, ArrayPlaces] = {}
        with reading(self._file, self._path):
            for spec in self._specs:
                extents = None
                if spec.variable:
                    table = self._extents[spec.name].read(0, self.num_samples)
                    extents = table["first"].astype(np.int64), table["N"].astype(np.int64)
                found[spec.name] = places_of(self._file[spec.name], self._path, extents, self._select[spec.name])
        return found

    def read(self, first: int, count: int, buffer: BatchBuffer, at: int) -> None:
        for spec in self._specs:
            if spec.variable:
                self._read_variable(spec.name, first, count, buffer, at)
            else:
                self._arrays[spec.name].read_into(first, buffer.fixed[spec.name][at : at + count])

    def _read_variable(self, name: str, first: int, count: int, buffer: BatchBuffer, at: int) -> None:
        """The extents of all samples in one call, and then their rows in one call."""
        extents = self._extents[name].read(first, count)
        starts, lengths = extents["first"].tolist(), extents["N"].tolist()
        read_pieces(self._arrays[name].read, starts, lengths, buffer, at, name=name, first=first, path=self._path)

    def __enter__(self) -> Hdf5Reader:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
