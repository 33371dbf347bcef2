"""Options of compressed volumes: ``dataset.volume``."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class VolumeArrayConfig:
    """One volume of format hdf5_volume, in a file of its own."""

    name: str = opt("raw", "array, and part of the file's name")
    dtype: str = opt("uint8", "element type, a NumPy integer name")
    chunk: list[int] = opt([33, 33, 65], "chunk shape")
    stored_share: float = opt(1.0, "stored bytes / bytes in memory, of a deflated chunk", minimum=0)
    stored_share_stdev: float = opt(0.0, "standard deviation of stored_share over the chunks", minimum=0)


@dataclass(frozen=True)
class VolumeConfig:
    """Volumes out of which patches are read at listed places."""

    shape: list[int] = opt([520, 520, 520], "voxels of a volume")
    patch: list[int] = opt([49, 49, 49], "voxels of a patch")
    arrays: list[VolumeArrayConfig] = opt([], "volumes, in the order of reading")
    compression_level: int = opt(4, "deflate level of every volume", minimum=0)
    chunk_cache_bytes: int = opt(1048576, "HDF5 chunk cache of each open array (rdcc_nbytes)", unit="B", minimum=0)
