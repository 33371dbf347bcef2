"""Options of netCDF files: ``dataset.netcdf``, with or without the CF conventions."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import MOST_DEFLATE, opt


@dataclass(frozen=True)
class NetcdfConfig:
    """How arrays lie in a netCDF file, with or without the CF conventions."""

    variant: Literal["netcdf4", "classic", "64bit_offset", "64bit_data"] = opt(
        "netcdf4", "netcdf4: netCDF-4, which is an HDF5 file; classic, 64bit_offset, 64bit_data: CDF-1, CDF-2, CDF-5"
    )
    unlimited: bool = opt(
        False,
        "store samples along an unlimited dimension; in classic netCDF files (CDF-1, CDF-2, CDF-5) the arrays "
        "of a sample are then adjacent",
    )
    chunk_bytes: int = opt(
        0,
        "netcdf4: size of a chunk before compression; 0: contiguous, or one sample per chunk if unlimited or "
        "compressed",
        unit="B",
        minimum=0,
    )
    compression: Literal["none", "zlib"] = opt("none", "netcdf4: compression filter of the chunks")
    compression_level: int = opt(4, "zlib level, 0 to 9", minimum=0, maximum=MOST_DEFLATE)
    shuffle: bool = opt(True, "apply the shuffle filter before compression, which groups bytes of equal significance")
    compressibility: float = opt(
        0.0, "share of the content that is constant; 0: all random; 1: all zero", minimum=0, maximum=1
    )
    chunk_cache_bytes: int = opt(
        0, "netcdf4: chunk cache of each open array; 0: the library's default, 64 MiB", unit="B", minimum=0
    )
