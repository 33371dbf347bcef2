"""Options of netCDF files: ``dataset.netcdf``, with or without the CF conventions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class NetcdfConfig:
    """How arrays lie in a netCDF file, with or without the CF conventions."""

    variant: Literal["netcdf4", "classic", "64bit_offset", "64bit_data"] = opt(
        "netcdf4", "netCDF-4, which is HDF5 inside, or a classic one: CDF-1, CDF-2, CDF-5"
    )
    unlimited: bool = opt(
        False, "samples along an unlimited dimension; in classic variants the arrays of a sample then lie together"
    )
    chunk_bytes: int = opt(
        0,
        "size of a chunk of netcdf4 before compression; 0: contiguous; one sample if unlimited or compressed",
        unit="B",
        minimum=0,
    )
    compression: Literal["none", "zlib"] = opt("none", "filter of netcdf4's chunks")
    compression_level: int = opt(4, "zlib level, 0 to 9", minimum=0)
    shuffle: bool = opt(True, "gather equal bytes of neighbouring elements before they are compressed")
    compressibility: float = opt(
        0.0, "share of the payload that is constant: 0 random, 1 all zero", minimum=0, maximum=1
    )
    chunk_cache_bytes: int = opt(
        0, "chunk cache of each open array of netcdf4; 0: the library's own, 64 MiB", unit="B", minimum=0
    )
