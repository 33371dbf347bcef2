"""Reader of patches: takes a coordinate from the list and reads the hyperslab around it from each open volume.

The threads of a process share the open list and the open volumes, as in keceli/ffn (train_hvd.py, define_data_input)
and google/ffn (train.py): the main thread opens each volume once, one TFRecordReader gives the coordinates to whichever
thread asks, and ``tf.train.shuffle_batch`` runs ``batch_size // 2`` threads, at least one, that read patches.
TensorFlow's reader and h5py have one lock each, so that one thread at a time is in a call.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.hdf5.file import DAMAGE
from dlio_torch.formats.hdf5_volume.coordinates import CENTER, CoordinateList
from dlio_torch.formats.hdf5_volume.options import VolumeConfig

Box = tuple[slice, ...]


def box_around(center: Sequence[int], patch: Sequence[int]) -> Box:
    """The box that the patch around a coordinate covers in a volume."""
    starts = [c - edge // 2 for c, edge in zip(center, patch, strict=True)]
    return tuple(slice(start, start + edge) for start, edge in zip(starts, patch, strict=True))


class Volume:
    """One open volume, usable by any number of threads.

    Args:
        dataset: the open HDF5 dataset.
        path: its file, for messages.
        patch: shape of what is read.
    """

    def __init__(self, dataset: h5py.Dataset, path: Path, patch: Sequence[int]) -> None:
        self.name: str = dataset.name.removeprefix("/")
        self.shape: tuple[int, ...] = dataset.shape
        self._id = dataset.id
        self._path = path
        self._patch = tuple(patch)
        self._space = dataset.id.get_space()
        self._memory = h5py.h5s.create_simple(self._patch)
        # The stored type as memory type: the library moves bytes and converts nothing.
        self._type = dataset.id.get_type()
        self._lock = threading.Lock()

    def read_into(self, box: Box, out: npt.NDArray[np.generic]) -> None:
        """Reads a patch into ``out`` by one ``H5Dread``; ``out`` is C-contiguous and of the volume's type.

        Raises:
            DataError: the bytes are damaged.
        """
        starts = tuple(part.start for part in box)
        try:
            with self._lock:
                self._space.select_hyperslab(starts, self._patch)
                self._id.read(self._memory, self._space, out, self._type)
        except DAMAGE as error:
            raise DataError(
                f"{self._path}: the patch at {starts} of {self.name} cannot be read: {error}",
                hint="the file is damaged; generate or fetch the file again",
            ) from error


class VolumeReader(Reader):
    """Reader of an open coordinate list and its open volumes, in the order of reading.

    Args:
        path: of the list.
        options: of the volumes.
        coordinates: the open list.
        volumes: what patches are read from.
        opened: closes the list and the volumes' files, at the latest when nobody refers to the reader.
    """

    num_samples = None  # only reading the list to its end would tell

    def __init__(
        self,
        path: Path,
        options: VolumeConfig,
        coordinates: CoordinateList,
        volumes: Sequence[Volume],
        opened: ExitStack,
    ) -> None:
        self._path, self._options = path, options
        self._coordinates, self._volumes = coordinates, volumes
        self._close = weakref.finalize(self, opened.close)

    def read(self, first: int, count: int, buffer: BatchBuffer, position: int) -> None:
        for i in range(count):
            center = self._coordinates[first + i]
            box = box_around(center, self._options.patch)
            if any(p.start < 0 or p.stop > edge for p, edge in zip(box, self._options.shape, strict=True)):
                raise DataError(
                    f"{self._path}: the patch around coordinate number {first + i}, {center}, is not inside the volume",
                    hint="correct dataset.volume.patch, or the list of coordinates",
                )
            buffer.fixed[CENTER.name][position + i] = center
            for volume in self._volumes:
                volume.read_into(box, buffer.fixed[volume.name][position + i])

    def close(self) -> None:
        self._close()
