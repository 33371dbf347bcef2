"""Options of compressed volumes: ``dataset.volume``."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.config.opt import MOST_DEFLATE, opt


@dataclass(frozen=True)
class VolumeArrayConfig:
    """One volume of format hdf5_volume, in a file of its own."""

    name: str = opt("raw", "name of the array, and part of the file name")
    dtype: str = opt("uint8", "element type, a NumPy integer type")
    chunk: list[int] = opt([33, 33, 65], "chunk shape, in voxels")
    stored_share: float = opt(1.0, "compressed size of a chunk / its size in memory", minimum=0)
    stored_share_stdev: float = opt(0.0, "standard deviation of stored_share among the chunks", minimum=0)


@dataclass(frozen=True)
class VolumeConfig:
    """Volumes out of which patches are read at listed coordinates."""

    shape: list[int] = opt([520, 520, 520], "shape of a volume, in voxels")
    patch: list[int] = opt([49, 49, 49], "shape of a patch, in voxels")
    arrays: list[VolumeArrayConfig] = opt([], "volumes, in the order of reading")
    compression_level: int = opt(4, "deflate level of every volume", minimum=0, maximum=MOST_DEFLATE)
    chunk_cache_bytes: int = opt(1048576, "HDF5 chunk cache of each open array (rdcc_nbytes)", unit="B", minimum=0)
