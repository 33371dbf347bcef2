"""HDF5 files that ranks open collectively through h5py's driver ``mpio``, by which the library uses MPI-IO.

A collective read is what h5py's ``with dataset.collective`` makes: ``H5Dread`` with a transfer property list that
says so, on all ranks, with an empty selection on those that want nothing.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import h5py
import numpy as np

import dlio_torch
from dlio_torch.errors import MissingPackageError
from dlio_torch.formats.core.batch import ArraySpec, BatchBuffer
from dlio_torch.formats.core.layout import Ints
from dlio_torch.formats.core.mpi_file import Ranks, SharedFile
from dlio_torch.formats.core.stacking import check_range
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.hdf5.reader import Hdf5Reader


def check_parallel() -> None:
    """Check that h5py was built with a parallel HDF5.

    Raises:
        MissingPackageError: it was not; says how to get one.
    """
    if not h5py.get_config().mpi:
        script = Path(dlio_torch.__file__).parent / "dist" / "install_parallel_h5py.sh"
        raise MissingPackageError(
            "access.io other than posix needs h5py with parallel HDF5, but the installed h5py was built without MPI",
            hint=f"install h5py with MPI by: bash {script} --python {sys.executable}, or set access.io=posix",
        )


class Hdf5Shared(SharedFile):
    """HDF5 file with its arrays, opened collectively.

    Args:
        path: the file.
        specs: its arrays, as they are stored.
        select: of each array the indices along the first axis of a sample that are read; empty: all.
        options: how the library reads.
        ranks: who opens it.

    Raises:
        DataError: the file cannot be opened, or has another layout.
    """

    def __init__(
        self,
        path: Path,
        specs: list[ArraySpec],
        select: dict[str, tuple[int, ...]],
        options: Hdf5Config,
        ranks: Ranks,
    ) -> None:
        self._reader = Hdf5Reader(path, specs, select, options, ranks)
        self._path = path
        self._specs = specs
        self.num_samples = self._reader.rows
        self._transfer: Any = None
        if ranks.collective:
            self._transfer = h5py.h5p.create(h5py.h5p.DATASET_XFER)
            self._transfer.set_dxpl_mpio(h5py.h5fd.MPIO_COLLECTIVE)

    def read(self, rows: Ints, positions: Ints, buffer: BatchBuffer) -> int:
        """See ``SharedFile.read``."""
        distinct, source = np.unique(rows, return_inverse=True)
        if len(distinct):
            check_range(self._path, self.num_samples, int(distinct[0]), int(distinct[-1] - distinct[0] + 1))
        requested, ones = 0, np.ones(len(distinct), np.int64)
        for spec in self._specs:
            array, extents = self._reader.slabs(spec.name)
            if extents is None:
                content = array.read_runs(distinct, ones, self._transfer)
                buffer.fixed[spec.name][positions] = content[source]
                requested += content.nbytes
                continue
            table = extents.read_runs(distinct, ones, self._transfer)
            firsts, counts = table["first"].astype(np.int64), table["N"].astype(np.int64)
            content = array.read_runs(firsts, counts, self._transfer)
            requested += table.nbytes + content.nbytes
            ends = np.cumsum(counts)
            for position, which in zip(positions.tolist(), source.tolist(), strict=True):
                buffer.put(spec.name, position, content[ends[which] - counts[which] : ends[which]])
        return requested

    def close(self) -> None:
        """See ``SharedFile.close``."""
        self._reader.close()
