"""Options of Zarr stores: ``dataset.zarr``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import MOST_THREADS, opt

MOST_ZSTD = 22
"""Highest compression level of Zstandard."""


@dataclass(frozen=True)
class ZarrConfig:
    """How arrays lie in a Zarr store, and how zarr-python reads them."""

    chunk_bytes: int = opt(1048576, "size of a chunk before compression", unit="B", minimum=1)
    shard_bytes: int = opt(
        0, "size of a shard, a file of several chunks, before compression; 0: each chunk is a file", unit="B", minimum=0
    )
    compression: Literal["none", "zstd", "blosc", "gzip"] = opt(
        "none", "codec of chunks; blosc: with LZ4 and shuffled bytes"
    )
    compression_level: int = opt(
        1, "level of the codec: 0 to 22 for zstd, 0 to 9 for blosc and gzip", minimum=0, maximum=MOST_ZSTD
    )
    compressibility: float = opt(
        0.0, "share of the content that is constant; 0: all random; 1: all zero", minimum=0, maximum=1
    )
    reopen: Literal["none", "array", "file"] = opt(
        "none",
        'none: the store and its arrays are opened once (a = group["a"]; a[i]); array: each array is opened for each '
        'read (group["a"][i]), which reads its metadata again; file: so is the store (zarr.open_group(path)["a"][i])',
    )
    root: Literal["group", "array"] = opt(
        "group", "group: a store of named arrays; array: a store that is one array (zarr.open_array), the only field"
    )
    concurrency: int = opt(
        10, "chunks of a read that are read at a time (zarr.config async.concurrency)", minimum=1, maximum=MOST_THREADS
    )
    max_workers: int = opt(
        0,
        "threads of a process that read and decode chunks (zarr.config threading.max_workers); 0: the library chooses",
        minimum=0,
        maximum=MOST_THREADS,
    )
