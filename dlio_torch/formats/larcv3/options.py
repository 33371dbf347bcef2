"""Options of larcv3 files: ``dataset.larcv3``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import MOST_CHUNK_ROWS, opt


@dataclass(frozen=True)
class ProducerConfig:
    """One sparse2d group of a larcv3 file."""

    name: str = opt("sparse2d_sbndwire", "producer; the HDF5 group is Data/<name>_group")
    values: Literal["charge", "label"] = opt("charge", "voxel values: random floats, or three classes in runs")
    stored_chunk_mean: int = opt(6641, "published mean size of a stored voxel chunk", unit="B", minimum=1)
    stored_chunk_stdev: float = opt(124.0, "published spread of the size of a stored voxel chunk", unit="B", minimum=0)
    stored_chunk_quantiles: list[float] = opt(
        [],
        "published sizes at 0.005, 0.02, 0.05, 0.1, 0.2, ... 0.9, 0.95, 0.98, 0.995; empty: normal by mean and stdev",
        unit="B",
    )


@dataclass(frozen=True)
class Larcv3Config:
    """The layout that larcv3 gives a file of sparse 2-D images."""

    producers: list[ProducerConfig] = opt([], "groups that are read, in the order of reading")
    images: int = opt(3, "images (projections) of an event", minimum=1)
    image_shape: list[int] = opt([2048, 1280], "pixels of an image")
    voxels_mean: float = opt(19046.0, "mean non-empty voxels of an image", minimum=1)
    voxels_stdev: float = opt(7242.0, "standard deviation of the voxels of an image", minimum=0)
    image_shares: list[float] = opt(
        [], "parts of an event's voxels in its images, which then grow together; empty: equal and independent"
    )
    extents_chunk: int = opt(10, "rows of a chunk of 'extents'", minimum=1, maximum=MOST_CHUNK_ROWS)
    table_chunk: int = opt(
        100,
        "rows of a chunk of 'voxel_extents', 'image_meta' and 'Events/event_id'",
        minimum=1,
        maximum=MOST_CHUNK_ROWS,
    )
    voxels_chunk: int = opt(1000, "rows of a chunk of 'voxels'", minimum=1, maximum=MOST_CHUNK_ROWS)
    compression_level: int = opt(1, "deflate level of every array", minimum=0)
    chunk_cache_bytes: int = opt(1048576, "HDF5 chunk cache of each open array (rdcc_nbytes)", unit="B", minimum=0)
    table_cache_chunks: int = opt(
        0, "chunks of each small table that the library keeps; 0: as many as fit into chunk_cache_bytes", minimum=0
    )
    metadata_cache_bytes: int = opt(
        0, "HDF5 metadata cache of the file (B-tree nodes); 0: the library's, 2 MiB and growing", unit="B", minimum=0
    )
    cold_events: int = opt(
        0, "events before metadata_cache_bytes holds; until then hardly any index node stays in memory", minimum=0
    )
    unread_bytes: int = opt(0, "bytes an event of groups that are in the file and not read", unit="B", minimum=0)
    merge_events: int = opt(
        300, "events whose voxels lie together, table by table, as the tool that merges files leaves them", minimum=1
    )
    opens: int = opt(2, "times a rank opens the file: once to count events, once to read", minimum=1)
