"""Options of larcv3 files: ``dataset.larcv3``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import MOST_CHUNK_ROWS, MOST_DEFLATE, opt


@dataclass(frozen=True)
class ProducerConfig:
    """One sparse2d group of a larcv3 file."""

    name: str = opt("sparse2d_sbndwire", "producer name; its HDF5 group is Data/<name>_group")
    values: Literal["charge", "label"] = opt(
        "charge", "voxel values; charge: random floats; label: three classes in runs"
    )
    stored_chunk_mean: int = opt(6641, "published mean size of a compressed voxel chunk", unit="B", minimum=1)
    stored_chunk_stdev: float = opt(
        124.0, "published standard deviation of the size of a compressed voxel chunk", unit="B", minimum=0
    )
    stored_chunk_quantiles: list[float] = opt(
        [],
        "published sizes of a compressed voxel chunk at the quantiles 0.005, 0.02, 0.05, 0.1, 0.2, ... 0.9, "
        "0.95, 0.98, 0.995; empty: a normal distribution with mean and stdev",
        unit="B",
    )


@dataclass(frozen=True)
class Larcv3Config:
    """The layout that larcv3 gives a file of sparse 2-D images."""

    producers: list[ProducerConfig] = opt([], "groups that are read, in the order of reading")
    images: int = opt(3, "images (projections) of an event", minimum=1)
    image_shape: list[int] = opt([2048, 1280], "shape of an image, in pixels")
    voxels_mean: float = opt(19046.0, "mean number of non-empty voxels of an image", minimum=1)
    voxels_stdev: float = opt(7242.0, "standard deviation of the number of non-empty voxels of an image", minimum=0)
    image_shares: list[float] = opt(
        [],
        "share of each image in an event's voxels, whose numbers then vary together; empty: equal shares, "
        "independent numbers",
    )
    extents_chunk: int = opt(10, "rows of a chunk of table 'extents'", minimum=1, maximum=MOST_CHUNK_ROWS)
    table_chunk: int = opt(
        100,
        "rows of a chunk of tables 'voxel_extents', 'image_meta' and 'Events/event_id'",
        minimum=1,
        maximum=MOST_CHUNK_ROWS,
    )
    voxels_chunk: int = opt(1000, "rows of a chunk of table 'voxels'", minimum=1, maximum=MOST_CHUNK_ROWS)
    compression_level: int = opt(1, "deflate level of every array", minimum=0, maximum=MOST_DEFLATE)
    chunk_cache_bytes: int = opt(1048576, "HDF5 chunk cache of each open array (rdcc_nbytes)", unit="B", minimum=0)
    table_cache_chunks: int = opt(
        0, "chunks of each small table in its HDF5 chunk cache; 0: as many as fit into chunk_cache_bytes", minimum=0
    )
    metadata_cache_bytes: int = opt(
        0, "HDF5 metadata cache of the file (B-tree nodes); 0: HDF5's default, 2 MiB and growing", unit="B", minimum=0
    )
    cold_events: int = opt(
        0,
        "number of first events that are read with a metadata cache of hardly any nodes, before it gets "
        "metadata_cache_bytes",
        minimum=0,
    )
    unread_bytes: int = opt(0, "bytes per event of groups that are in the file but not read", unit="B", minimum=0)
    merge_events: int = opt(
        300,
        "events whose voxels are stored together, table by table, as the tool that merges files leaves them",
        minimum=1,
    )
    opens: int = opt(
        2, "number of times that a rank opens the file; 1: to read; 2: also before, to count events", minimum=1
    )
