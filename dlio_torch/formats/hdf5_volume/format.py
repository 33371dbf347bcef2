"""Format ``hdf5_volume``: patches of compressed 3-D volumes at listed coordinates, as flood-filling networks read.

A file of this format is a list of coordinates, and beside it one HDF5 file for each volume,
``<list>.<array>.h5``, with the array ``<array>``: chunked, deflated.  A sample is the patch around its
coordinate out of each volume: one hyperslab of each.
"""

from __future__ import annotations

import itertools
import math
import zlib
from collections.abc import Mapping
from concurrent.futures import Executor
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any, ClassVar

import h5py
import numpy as np
import numpy.typing as npt

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core import payload
from dlio_torch.formats.core.array_specs import DTYPES
from dlio_torch.formats.core.batch import INDEX, LENGTHS, ArraySpec, Sample
from dlio_torch.formats.core.format import FileInfo, Format
from dlio_torch.formats.core.layout import ArrayLayout, FileLayout
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.hdf5.file import open_file, reading
from dlio_torch.formats.hdf5.guard import check_array, check_link
from dlio_torch.formats.hdf5_volume.coordinates import CENTER, LEVEL, CoordinateList, records
from dlio_torch.formats.hdf5_volume.facts import VOLUME_SUFFIX
from dlio_torch.formats.hdf5_volume.layout import Centers, Patches
from dlio_torch.formats.hdf5_volume.options import VolumeArrayConfig, VolumeConfig
from dlio_torch.formats.hdf5_volume.reader import Box, Volume, VolumeReader, box_around
from dlio_torch.formats.tfrecord.framing import gzipped
from dlio_torch.iotrace.recorder.spans import NULL, Recorder

_COORDINATES = 0xC00  # random stream of the coordinates
_TRIAL_COORDINATES = 256
_BLOCK = 512  # bytes over which the random ones of a chunk are spread evenly


class Hdf5VolumeFormat(Format):
    """Patches of ``dataset.volume.arrays`` around listed coordinates."""

    name: ClassVar[str] = "hdf5_volume"
    suffix: ClassVar[str] = ".tfrecord.gz"
    has_layout: ClassVar[bool] = True
    may_crash: ClassVar[bool] = True
    shared_by_threads: ClassVar[bool] = True

    def __init__(self, config: DatasetConfig, seed: int) -> None:
        self.options: VolumeConfig = config.of(VolumeConfig)
        super().__init__(config, seed)
        self._random_share: dict[str, float] | None = None
        _check(self.options)

    def specs(self) -> list[ArraySpec]:
        patch = tuple(self.options.patch)
        volumes = [ArraySpec(array.name, np.dtype(array.dtype), patch) for array in self.options.arrays]
        return [CENTER, *volumes]

    def layout_options(self) -> dict[str, Any]:
        return {
            "format": self.name,
            "shape": self.options.shape,
            "patch": self.options.patch,
            "compression_level": self.options.compression_level,
            "arrays": [[a.name, a.dtype, a.chunk, a.stored_share, a.stored_share_stdev] for a in self.options.arrays],
        }

    def sample_bytes(self) -> float:
        return float(sum(math.prod(spec.shape) * spec.dtype.itemsize for spec in self.specs()))

    def stored_bytes(self) -> float:
        # Chunks at the edges are stored whole.
        volumes = sum(math.prod(self._grid(a)) * _chunk_bytes(a) * a.stored_share for a in self.options.arrays)
        trial = min(self.config.samples_per_file, _TRIAL_COORDINATES)
        listed = len(zlib.compress(b"".join(map(bytes, records(self.centers(0, trial)))), LEVEL))
        return volumes / self.config.samples_per_file + listed / trial

    # --- content ---------------------------------------------------------------------------------

    def centers(self, first: int, count: int) -> npt.NDArray[np.int64]:
        """Coordinates of samples from ``first`` on, int64 of ``(count, 3)``; each patch lies inside the volume."""
        low = np.array(self.options.patch) // 2
        room = np.array(self.options.shape) - np.array(self.options.patch) + 1
        coordinates = np.empty((count, 3), np.int64)
        for i in range(count):
            words = payload.rng(self.seed, first + i, _COORDINATES).random(3)
            coordinates[i] = low + np.floor(words * room).astype(np.int64)
        return coordinates

    def expected(self, sample: int) -> Sample:
        center = self.centers(sample, 1)[0]
        box = box_around(center.tolist(), self.options.patch)
        arrays: Sample = {CENTER.name: center}
        for number, array in enumerate(self.options.arrays):
            arrays[array.name] = self._region(number, array, box)
        return arrays

    def _grid(self, array: VolumeArrayConfig) -> list[int]:
        """Number of chunks of a volume along each axis."""
        return [-(-length // edge) for length, edge in zip(self.options.shape, array.chunk, strict=True)]

    def _region(self, number: int, array: VolumeArrayConfig, box: Box) -> npt.NDArray[Any]:
        """Content of a box, assembled from the chunks that it touches."""
        out = np.empty([part.stop - part.start for part in box], array.dtype)
        ranges = [range(p.start // edge, -(-p.stop // edge)) for p, edge in zip(box, array.chunk, strict=True)]
        for position in itertools.product(*ranges):
            origin = [index * edge for index, edge in zip(position, array.chunk, strict=True)]
            low = [max(p.start, o) for p, o in zip(box, origin, strict=True)]
            high = [min(p.stop, o + e) for p, o, e in zip(box, origin, array.chunk, strict=True)]
            source = tuple(slice(a - o, b - o) for a, b, o in zip(low, high, origin, strict=True))
            target = tuple(slice(a - p.start, b - p.start) for a, b, p in zip(low, high, box, strict=True))
            out[target] = self._chunk(number, array, position)[source]
        return out

    def _chunk(self, number: int, array: VolumeArrayConfig, position: tuple[int, ...]) -> npt.NDArray[Any]:
        """Content of one chunk."""
        index = int(np.ravel_multi_index(position, self._grid(array)))
        generator = payload.rng(self.seed, index, 1 + number)
        count, share = _chunk_bytes(array), self.parameters()[array.name]
        if array.stored_share and array.stored_share_stdev:
            mean = array.stored_share * count
            drawn = payload.lengths(self.seed, number, index, 1, mean, array.stored_share_stdev * count)[0]
            share = min(1.0, share * drawn / mean)  # what is stored grows with it
        flat = _bytes(generator, count, share)
        return flat.view(array.dtype).reshape(array.chunk)

    def parameters(self) -> dict[str, float]:
        """Share of random bytes in each volume, fitted so that its chunks compress to ``stored_share``."""
        if self._random_share is None:
            level = self.options.compression_level
            self._random_share = {array.name: _fit(array, level) for array in self.options.arrays}
        return self._random_share

    def use_parameters(self, parameters: Mapping[str, float]) -> None:
        if set(parameters) != {array.name for array in self.options.arrays}:
            raise ValueError("the parameters belong to volumes of other names")
        self._random_share = dict(parameters)

    # --- files -----------------------------------------------------------------------------------

    def companions(self) -> tuple[str, ...]:
        """Suffixes of the volumes' files; each is appended to the name of the coordinate list."""
        return tuple(f".{array.name}{VOLUME_SUFFIX}" for array in self.options.arrays)

    def write(self, path: Path, first_sample: int, num_samples: int, pool: Executor) -> None:
        for number, array in enumerate(self.options.arrays):
            self._write_volume(_volume_path(path, array), number, array, pool)
        with path.open("wb") as file:
            centers = (self.centers(first_sample + i, 1)[0] for i in range(num_samples))
            file.writelines(gzipped(records(centers), LEVEL, pool))

    def _write_volume(self, path: Path, number: int, array: VolumeArrayConfig, pool: Executor) -> None:
        shape, chunk, level = tuple(self.options.shape), tuple(array.chunk), self.options.compression_level
        with h5py.File(path, "w", libver="earliest") as file:
            volume = file.create_dataset(
                array.name, shape, array.dtype, chunks=chunk, compression="gzip", compression_opts=level
            )
            grid = [range(length) for length in self._grid(array)]

            def deflated(position: tuple[int, ...]) -> bytes:
                return zlib.compress(self._chunk(number, array, position).tobytes(), level)

            for plane in grid[0]:
                positions = [(plane, *rest) for rest in itertools.product(*grid[1:])]
                for position, data in zip(positions, pool.map(deflated, positions), strict=True):
                    volume.id.write_direct_chunk(tuple(i * e for i, e in zip(position, chunk, strict=True)), data)

    def inspect(self, path: Path) -> FileInfo:
        with closing(CoordinateList(path)) as coordinates:
            count = coordinates.count()
        details: dict[str, Any] = {}
        for array in self.options.arrays:
            volume_path = _volume_path(path, array)
            with self._open(volume_path) as file, reading(file, volume_path):
                volume = self._volume(file, array, volume_path)
                share = volume.id.get_storage_size() / (volume.size * volume.dtype.itemsize)
                details[array.name] = {"chunks": volume.chunks, "stored_share": round(share, 4)}
        return FileInfo(count, details)

    def _open(self, path: Path) -> h5py.File:
        return open_file(path, self.options.chunk_cache_bytes)

    def _volume(self, file: h5py.File, array: VolumeArrayConfig, path: Path) -> h5py.Dataset:
        """Returns the volume of an open file after checking that type and shape match the configuration."""
        if array.name in file:
            check_link(file, array.name, path)
        volume = file.get(array.name)
        is_array = isinstance(volume, h5py.Dataset)
        if not is_array or (volume.shape, volume.dtype) != (tuple(self.options.shape), np.dtype(array.dtype)):
            description = (
                f"{volume.dtype}{list(volume.shape or ())}"
                if is_array
                else f"not an array of this file, which contains: {', '.join(file)}"
            )
            raise DataError(
                f"{path}: {array.name} is {description}, but dataset.volume expects {array.dtype}{self.options.shape}",
                hint="correct dataset.volume",
            )
        check_array(volume, path)
        return volume

    def open(self, path: Path, recorder: Recorder = NULL) -> Reader:
        with ExitStack() as stack:
            coordinates = stack.enter_context(closing(CoordinateList(path)))
            volumes = []
            for array in self.options.arrays:
                volume_path = _volume_path(path, array)
                file = stack.enter_context(self._open(volume_path))
                with reading(file, volume_path):
                    volumes.append(Volume(self._volume(file, array, volume_path), volume_path, self.options.patch))
            return VolumeReader(path, self.options, coordinates, volumes, stack.pop_all())

    def layout(self, path: Path) -> FileLayout:
        centers = Centers(path, CoordinateList(path))
        arrays: dict[str, ArrayLayout] = {CENTER.name: centers}
        for array in self.options.arrays:
            volume_path = _volume_path(path, array)
            with self._open(volume_path) as file, reading(file, volume_path):
                arrays[array.name] = Patches(
                    self._volume(file, array, volume_path), volume_path, self.options.patch, centers
                )
        return FileLayout(None, arrays)  # only reading the list to its end would tell how many


def _check(options: VolumeConfig) -> None:
    """Raise unless volumes of these options can be written.

    Raises:
        ConfigError: names what is wrong.
    """
    shape, patch = options.shape, options.patch
    if not options.arrays:
        raise ConfigError("dataset.volume.arrays is empty", hint="name at least one volume in dataset.volume.arrays")
    if not len(shape) == len(patch) == 3 or any(not 0 < p <= s for p, s in zip(patch, shape, strict=True)):
        raise ConfigError(
            f"dataset.volume.patch={patch} does not fit into dataset.volume.shape={shape}",
            hint="set three edge lengths for each of the two, and no edge of the patch longer than that of the volume",
        )
    taken = {CENTER.name, INDEX}
    for array in options.arrays:
        key = f"dataset.volume.arrays: {array.name}"
        if not array.name or "/" in array.name or array.name in taken or array.name.endswith(LENGTHS):
            raise ConfigError(
                f"dataset.volume.arrays: name={array.name!r} is used twice, or contains characters that a file name "
                "cannot have",
                hint="rename it",
            )
        taken.add(array.name)
        if array.dtype not in DTYPES or np.dtype(array.dtype).kind not in "iu":
            raise ConfigError(
                f"{key}: dtype={array.dtype!r} is not an integer type",
                hint="set an integer type such as uint8 or int64",
            )
        if len(array.chunk) != 3 or any(not 0 < c <= s for c, s in zip(array.chunk, shape, strict=True)):
            raise ConfigError(
                f"{key}: chunk={array.chunk} does not fit into dataset.volume.shape={shape}",
                hint="set three edge lengths, none longer than that of the volume",
            )
        if array.stored_share > 1:
            raise ConfigError(f"{key}: stored_share={array.stored_share} is above 1", hint="set a value from 0 to 1")


def _chunk_bytes(array: VolumeArrayConfig) -> int:
    return math.prod(array.chunk) * np.dtype(array.dtype).itemsize


def _bytes(generator: np.random.Generator, count: int, share: float) -> npt.NDArray[np.uint8]:
    """Bytes of which ``share`` are random and the others zero, evenly distributed over blocks."""
    content = payload.array(generator, (count,), np.dtype(np.uint8)).view(np.uint8)
    # Blocks differ by one random byte, so that any share comes out.
    ends = np.floor(np.arange(-(-count // _BLOCK) + 1) * (_BLOCK * share))
    content[np.arange(count) % _BLOCK >= np.repeat(np.diff(ends), _BLOCK)[:count]] = 0
    return content


def _fit(array: VolumeArrayConfig, level: int) -> float:
    """Finds the share of random bytes at which a chunk compresses to the wanted size."""
    count = _chunk_bytes(array)
    low, high = 0.0, 1.0
    for _ in range(14):
        middle = (low + high) / 2
        size = len(zlib.compress(_bytes(payload.rng(0, 0), count, middle).tobytes(), level))
        low, high = (middle, high) if size < array.stored_share * count else (low, middle)
    return (low + high) / 2


def _volume_path(path: Path, array: VolumeArrayConfig) -> Path:
    return path.with_name(f"{path.name}.{array.name}{VOLUME_SUFFIX}")
