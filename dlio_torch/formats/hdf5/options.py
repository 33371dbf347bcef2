"""Options of generic HDF5 files: ``dataset.hdf5``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class Hdf5Config:
    """How arrays lie in a generic HDF5 file."""

    chunk_bytes: int = opt(0, "size of a chunk before compression; 0: contiguous", unit="B", minimum=0)
    compression: Literal["none", "gzip", "lzf"] = opt("none", "filter of chunked arrays")
    compression_level: int = opt(4, "gzip level, 0 to 9", minimum=0)
    compressibility: float = opt(
        0.0, "share of the payload that is constant: 0 random, 1 all zero", minimum=0, maximum=1
    )
    chunk_cache_bytes: int = opt(1048576, "HDF5 chunk cache of each open array (rdcc_nbytes)", unit="B", minimum=0)
    driver: Literal["sec2", "core"] = opt("sec2", "HDF5 driver: POSIX calls as needed, or the whole file at the open")
    open_arrays: Literal["with_file", "each_read"] = opt(
        "with_file",
        'arrays are opened with the file and stay open (a = f["a"]; a[i]), or each just before it is read (f["a"][i]), '
        "which empties its chunk cache",
    )
