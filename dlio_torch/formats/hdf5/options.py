"""Options of generic HDF5 files: ``dataset.hdf5``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import MOST_DEFLATE, opt


@dataclass(frozen=True)
class Hdf5Config:
    """How arrays lie in a generic HDF5 file."""

    chunk_bytes: int = opt(0, "size of a chunk before compression; 0: contiguous, without chunks", unit="B", minimum=0)
    compression: Literal["none", "gzip", "lzf"] = opt("none", "compression filter of chunked arrays")
    compression_level: int = opt(4, "gzip level, 0 to 9", minimum=0, maximum=MOST_DEFLATE)
    compressibility: float = opt(
        0.0, "share of the content that is constant; 0: all random; 1: all zero", minimum=0, maximum=1
    )
    compressibility_stdev: float = opt(
        0.0,
        "with format=hdf5_crops: standard deviation of compressibility among the layers of chunks of an array",
        minimum=0,
        maximum=1,
    )
    chunk_cache_bytes: int = opt(1048576, "HDF5 chunk cache of each open array (rdcc_nbytes)", unit="B", minimum=0)
    driver: Literal["sec2", "core"] = opt(
        "sec2", "HDF5 file driver; sec2: POSIX reads on demand; core: the whole file is read when it is opened"
    )
    reopen: Literal["none", "array", "file"] = opt(
        "none",
        'none: files and arrays stay open (a = f["a"]; a[i]); array: each array is opened for each read (f["a"][i]), '
        "which empties its chunk cache; file: the file is opened for each sample, or run of samples that is read at "
        'once (with h5py.File(path) as f: f["a"][i])',
    )
    crop: list[int] = opt(
        [],
        "with format=hdf5_crops: shape of a sample, which is read at a random place of each whole array; one length "
        "for each axis of the arrays",
    )
