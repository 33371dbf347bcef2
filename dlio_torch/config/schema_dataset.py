"""Options of ``dataset``, format by format, and of ``generate``: what is read, and how it is written before."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import LARGEST_CALL, MOST_CHUNK_ROWS, MOST_THREADS, opt


@dataclass(frozen=True)
class FieldConfig:
    """One array of a sample (an HDF5 dataset; its name may hold slashes for groups)."""

    name: str = opt("data", "path of the array inside the file, for example 'climate/data'")
    dtype: str = opt("float32", "element type, a NumPy name")
    shape: list[int] = opt([], "shape of one sample (or of one row of a variable-length sample)")
    length_mean: float = opt(0.0, "mean rows of a variable-length sample; 0: fixed length", minimum=0)
    length_stdev: float = opt(0.0, "standard deviation of the rows of a variable-length sample", minimum=0)
    select: list[int] = opt([], "indices along the first axis of a sample that are read; empty: all")
    chunk: list[int] | None = opt(
        None, "chunk shape of the stored array, rows first; null: by chunk_bytes of the format"
    )


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


@dataclass(frozen=True)
class TfrecordConfig:
    """TensorFlow's record files: framed Example protos."""

    transfer_size: int = opt(
        262144, "size of one read call, TensorFlow's buffer_size", unit="B", minimum=1, maximum=LARGEST_CALL
    )
    compression: Literal["none", "gzip"] = opt("none", "compression of the whole file")
    compression_level: int = opt(6, "gzip level, 0 to 9", minimum=0)
    compressibility: float = opt(
        0.0, "share of the payload that is constant: 0 random, 1 all zero", minimum=0, maximum=1
    )
    verify_crc: bool = opt(True, "check the checksums of each record, as TensorFlow does")
    float_lists: list[str] = opt([], "fields that are stored as lists of floats, not as bytes of their memory")
    index: bool = opt(False, "keep an index beside each file and read it at the open: for random access")


@dataclass(frozen=True)
class CsvConfig:
    """Text tables."""

    value_chars: float = opt(
        8.0, "mean characters of a decimal number, separator left out; 8.25: every fourth has 9", minimum=3
    )
    read_bytes: int = opt(
        262144, "size of one read call, the parser's buffer", unit="B", minimum=1, maximum=LARGEST_CALL
    )
    chunk_rows: int = opt(0, "rows parsed at a time; 0: the whole file", minimum=0)


@dataclass(frozen=True)
class NpzConfig:
    """NumPy's zip archives and single-array files, read through Python's own file layers."""

    buffer_bytes: int = opt(
        0,
        "buffer of a file: 4 MiB on Lustre, 4 KiB on ext4; 0: the file system's st_blksize",
        unit="B",
        minimum=0,
        maximum=LARGEST_CALL,
    )
    compressed: bool = opt(False, "deflate the members of an archive, as numpy.savez_compressed does")
    compressibility: float = opt(
        0.0, "share of an archive's payload that is constant: 0 random, 1 all zero", minimum=0, maximum=1
    )
    sample_axis: Literal["first", "last"] = opt(
        "first", "axis along which the samples of an archive with several are stacked; DLIO stacks along the last"
    )


@dataclass(frozen=True)
class ImageConfig:
    """Folders of JPEG or PNG files, one image a file."""

    quality: int = opt(90, "JPEG quality, 1 to 95", minimum=1)
    file_bytes: int = opt(0, "mean size of a file; 0: as quality and shape give", unit="B", minimum=0)
    file_bytes_stdev: float = opt(0.0, "standard deviation of the size of a file", unit="B", minimum=0)
    decode: bool = opt(True, "decode to pixels where the sample is read; false: deliver the stored bytes")
    buffer_bytes: int = opt(
        0,
        "buffer of the open file, 4 MiB on Lustre, 4 KiB on ext4; 0: the file system's st_blksize",
        unit="B",
        minimum=0,
        maximum=LARGEST_CALL,
    )


@dataclass(frozen=True)
class BinaryConfig:
    """Flat binary records with an index, as Megatron-LM's .bin and .idx."""

    access: Literal["file", "mmap"] = opt("file", "open, seek, read, close for each piece; or map the file")
    index: bool = opt(True, "an .idx beside each .bin; false: the .bin alone, records of equal size")
    document_mean: float = opt(
        0.0, "mean elements of a document; samples are cut from documents end to end; 0: a sample is one", minimum=0
    )
    document_stdev: float = opt(0.0, "standard deviation of the elements of a document", minimum=0)


@dataclass(frozen=True)
class ParquetConfig:
    """Apache Parquet tables."""

    row_group_samples: int = opt(1024, "samples of a row group", minimum=1)
    compressibility: float = opt(
        0.0, "share of the payload that is constant: 0 random, 1 all zero", minimum=0, maximum=1
    )
    compression: Literal["none", "snappy", "gzip", "zstd"] = opt("snappy", "codec of the column chunks")


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


@dataclass(frozen=True)
class Adios2Config:
    """How samples lie in the steps of an ADIOS2 folder."""

    engine: Literal["BP4", "BP5"] = opt("BP5", "engine that writes the folder; reading finds it out")
    samples_per_step: int = opt(16, "samples of a step", minimum=1)


@dataclass(frozen=True)
class DatasetConfig:
    """What is read: format, amount, layout."""

    format: str = opt("hdf5", "file format, a name of `ls formats`")
    path: str | None = opt(None, "existing file or folder to read instead of generated data")
    root: str = opt("data", "folder below which generated data sets lie")
    num_files: int = opt(1, "training files", minimum=1)
    samples_per_file: int = opt(1024, "samples of a training file", minimum=1)
    num_files_eval: int = opt(0, "evaluation files", minimum=0)
    samples_per_file_eval: int = opt(0, "samples of an evaluation file", minimum=0)
    num_subfolders: int = opt(0, "subfolders over which the files are spread; 0: none", minimum=0)
    fields: list[FieldConfig] = opt([], "arrays of a sample, in the order of reading")
    direct_io: bool = opt(
        False, "read past the page cache (O_DIRECT): indexed_binary by file calls, jpeg, npy, npz, png, tfrecord"
    )
    hdf5: Hdf5Config = opt(Hdf5Config, "options of format hdf5")
    larcv3: Larcv3Config = opt(Larcv3Config, "options of format larcv3")
    volume: VolumeConfig = opt(VolumeConfig, "options of format hdf5_volume")
    tfrecord: TfrecordConfig = opt(TfrecordConfig, "options of format tfrecord")
    csv: CsvConfig = opt(CsvConfig, "options of format csv")
    npz: NpzConfig = opt(NpzConfig, "options of formats npz and npy")
    image: ImageConfig = opt(ImageConfig, "options of formats jpeg and png")
    binary: BinaryConfig = opt(BinaryConfig, "options of format indexed_binary")
    parquet: ParquetConfig = opt(ParquetConfig, "options of format parquet")
    adios2: Adios2Config = opt(Adios2Config, "options of format adios2")
    netcdf: NetcdfConfig = opt(NetcdfConfig, "options of formats netcdf and netcdf_cf")


@dataclass(frozen=True)
class GenerateConfig:
    """How synthetic data are written."""

    num_workers: int = opt(
        0,
        "threads that make payloads on each rank, and files under way at once; 0: one per core",
        minimum=0,
        maximum=MOST_THREADS,
    )
    overwrite: bool = opt(False, "write finished files again")
    fsync: bool = opt(True, "flush each file to the device before it gets its final name")
    checksum: bool = opt(
        False, "read all files afterwards, write the SHA-256 of each to dlio_torch.sha256, and print one of them all"
    )
