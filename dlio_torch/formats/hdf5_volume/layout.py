"""Layout of patches in volumes: the parts of chunks around each listed coordinate.

A patch is cut into runs along its last axis, at the borders of chunks: what is contiguous both in a chunk and in the
patch.  All runs of all patches of a group are found at once; a chunk that several patches touch is decoded once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path

import h5py
import numpy as np

from dlio_torch.errors import DataError
from dlio_torch.formats.core.layout import ArrayLayout, Chunks, Copies, Extents, Ints
from dlio_torch.formats.core.layout_chunks import ChunkTable
from dlio_torch.formats.hdf5.layout import stored
from dlio_torch.formats.hdf5_volume.coordinates import CENTER, CoordinateList

_CENTER_BYTES = CENTER.shape[0] * CENTER.dtype.itemsize


class Centers(ArrayLayout):
    """Thread-safe access to the coordinates of a list, which is read only as far as they are needed.

    Args:
        path: of the list.
        coordinates: the list; closed when nobody refers to this object.
    """

    in_memory = True

    def __init__(self, path: Path, coordinates: CoordinateList) -> None:
        self.path = path
        self._coordinates = coordinates

    def __del__(self) -> None:
        self._coordinates.close()

    def coordinates(self, rows: Ints) -> Ints:
        """Coordinates of the samples at ``rows``; int64 of ``(rows, 3)``.

        Raises:
            DataError: the list does not hold them, or is damaged.
        """
        return np.array([self._coordinates[row] for row in rows.tolist()], np.int64).reshape(-1, *CENTER.shape)

    def sizes(self, rows: Ints) -> Ints:
        return np.full(len(rows), _CENTER_BYTES, np.int64)

    def plan(self, rows: Ints, into: Ints) -> Copies:
        sources = np.array([self._coordinates.address(row) for row in rows.tolist()], np.int64)
        return Copies(sources, self.sizes(rows), into)


class Patches(ArrayLayout):
    """Layout of the patches of one volume.

    Args:
        volume: open; three axes.
        path: its file.
        patch: shape of a patch.
        centers: what the patches lie around, by sample.
    """

    def __init__(self, volume: h5py.Dataset, path: Path, patch: Sequence[int], centers: Centers) -> None:
        self.path = path
        self._patch = tuple(patch)
        self._centers = centers
        self._shape: tuple[int, ...] = volume.shape
        self._itemsize = volume.dtype.itemsize
        storage = stored(volume, path)
        self._stored = storage if isinstance(storage, ChunkTable) else None
        self._first = 0 if isinstance(storage, ChunkTable) else storage
        # A volume that is not in chunks is one large one, of which only what is needed is read.
        self._chunk = storage.chunk if isinstance(storage, ChunkTable) else self._shape

    def sizes(self, rows: Ints) -> Ints:
        return np.full(len(rows), math.prod(self._patch) * self._itemsize, np.int64)

    def plan(self, rows: Ints, into: Ints) -> Extents | Chunks:
        chunk, source, lengths, to = self._runs(self._starts(rows), into)
        if self._stored is None:
            order = np.argsort(source, kind="stable")
            return Extents(self._first + source[order], lengths[order], to[order])
        order = np.argsort(chunk, kind="stable")
        needed, position = np.unique(chunk[order], return_inverse=True)
        table = self._stored
        if len(needed) and int(table.offsets[needed].min()) < 0:
            raise DataError(
                f"{self.path}: {table.name} has unwritten chunks, which loader.engine=decoupled cannot read",
                hint="set loader.engine=dataloader, which reads the fill value of unwritten chunks",
            )
        return Chunks(
            table.offsets[needed], table.sizes[needed], table.skipped[needed], math.prod(self._chunk) * self._itemsize,
            table.filters, self._itemsize, position, source[order], lengths[order], to[order],
        )  # fmt: skip

    def _starts(self, rows: Ints) -> Ints:
        """First voxel of each patch: ``(rows, 3)``."""
        centers = self._centers.coordinates(rows)
        starts: Ints = centers - np.array(self._patch) // 2
        wrong = ((starts < 0) | (starts > np.array(self._shape) - np.array(self._patch))).any(axis=1)
        if wrong.any():
            bad = int(wrong.argmax())
            raise DataError(
                f"{self._centers.path}: the patch around coordinate number {int(rows[bad])}, "
                f"{tuple(centers[bad].tolist())}, is not inside the volume",
                hint="correct dataset.volume.patch, or the list of coordinates",
            )
        return starts

    def _runs(self, starts: Ints, into: Ints) -> tuple[Ints, Ints, Ints, Ints]:
        """Chunk, first byte in the chunk, length in bytes and first byte in memory of each run of the patches."""
        grid = [-(-length // edge) for length, edge in zip(self._shape, self._chunk, strict=True)]
        (planes, rows, columns), (deep, high, wide) = self._patch, self._chunk
        z, y = (starts[:, axis, None] + np.arange(self._patch[axis]) for axis in (0, 1))
        # The last axis, from border to border.
        first = starts[:, 2, None]
        borders = first // wide + np.arange((columns - 1) // wide + 2)
        begin = np.clip(borders * wide, first, first + columns)
        length = np.clip((borders + 1) * wide, first, first + columns) - begin

        def spread(of_z: Ints, of_y: Ints, of_x: Ints) -> Ints:
            """Adds the contributions of the three axes for each run."""
            sums: Ints = of_z[:, :, None, None] + of_y[:, None, :, None] + of_x[:, None, None, :]
            return sums

        chunk = spread(z // deep * (grid[1] * grid[2]), y // high * grid[2], borders)
        source = spread(z % deep * (high * wide), y % high * wide, begin % wide)
        plane, row = (np.arange(count, dtype=np.int64)[None, :] for count in (planes, rows))
        to = spread(plane * (rows * columns), row * columns, begin - first)
        lengths = np.broadcast_to(length[:, None, None, :], chunk.shape)
        there = lengths > 0
        size = self._itemsize
        begins = np.broadcast_to(into[:, None, None, None], chunk.shape)
        return chunk[there], source[there] * size, lengths[there] * size, to[there] * size + begins[there]
