"""Every option: its name, type, default, unit and one line of documentation.

The dotted path of a field (``loader.num_workers``) is its name everywhere: in YAML, on the command
line, in ``config.yaml`` of a run, as a CSV column and as the axis of a sweep.  A test asserts that
every option is documented and is read somewhere outside ``config/``.

Units are metadata.  A field of unit ``B`` accepts ``262144`` or ``"256KiB"``; of unit ``s`` it
accepts ``0.5`` or ``"500ms"``.  Below ``config/`` the rest of the package sees these frozen
dataclasses only.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Literal


def opt(default: Any, doc: str, *, unit: str | None = None, minimum: float | None = None) -> Any:
    """One option: its default, one line of documentation, unit (``B``, ``s``) and least value."""
    metadata = {"doc": doc, "unit": unit, "min": minimum}
    if isinstance(default, (list, dict)):
        made = default
        return field(default_factory=lambda: type(made)(made), metadata=metadata)
    if isinstance(default, type):
        return field(default_factory=default, metadata=metadata)
    return field(default=default, metadata=metadata)


# --- dataset -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class FieldConfig:
    """One array of a sample (an HDF5 dataset; its name may hold slashes for groups)."""

    name: str = opt("data", "path of the array inside the file, for example 'climate/data'")
    dtype: str = opt("float32", "element type, a NumPy name")
    shape: list[int] = opt([], "shape of one sample (or of one row of a variable-length sample)")
    length_mean: float = opt(0.0, "mean rows of a variable-length sample; 0: fixed length", minimum=0)
    length_stdev: float = opt(0.0, "standard deviation of the rows of a variable-length sample", minimum=0)
    select: list[int] = opt([], "indices along the first axis of a sample that are read; empty: all")
    chunk: list[int] | None = opt(None, "chunk shape of the stored array, rows first; null: dataset.hdf5.chunk_bytes")


@dataclass(frozen=True)
class Hdf5Config:
    """How arrays lie in a generic HDF5 file."""

    chunk_bytes: int = opt(0, "size of a chunk before compression; 0: contiguous", unit="B", minimum=0)
    compression: Literal["none", "gzip", "lzf"] = opt("none", "filter of chunked arrays")
    compression_level: int = opt(4, "gzip level, 0 to 9", minimum=0)
    compressibility: float = opt(0.0, "share of the payload that is constant: 0 random, 1 all zero", minimum=0)
    chunk_cache_bytes: int = opt(1048576, "HDF5 chunk cache of each open array (rdcc_nbytes)", unit="B", minimum=0)
    driver: Literal["sec2", "core"] = opt("sec2", "HDF5 driver: POSIX calls as needed, or the whole file at the open")


@dataclass(frozen=True)
class ProducerConfig:
    """One sparse2d group of a larcv3 file."""

    name: str = opt("sparse2d_sbndwire", "producer; the HDF5 group is Data/<name>_group")
    values: Literal["charge", "label"] = opt("charge", "voxel values: random floats, or three classes in runs")
    stored_chunk_mean: int = opt(6641, "published mean size of a stored voxel chunk", unit="B", minimum=1)
    stored_chunk_stdev: float = opt(124.0, "published spread of the size of a stored voxel chunk", unit="B", minimum=0)


@dataclass(frozen=True)
class Larcv3Config:
    """The layout that larcv3 gives a file of sparse 2-D images."""

    producers: list[ProducerConfig] = opt([], "groups that are read, in the order of reading")
    images: int = opt(3, "images (projections) of an event", minimum=1)
    image_shape: list[int] = opt([2048, 1280], "pixels of an image")
    voxels_mean: float = opt(19046.0, "mean non-empty voxels of an image", minimum=1)
    voxels_stdev: float = opt(7242.0, "standard deviation of the voxels of an image", minimum=0)
    extents_chunk: int = opt(10, "rows of a chunk of 'extents'", minimum=1)
    table_chunk: int = opt(100, "rows of a chunk of 'voxel_extents', 'image_meta' and 'Events/event_id'", minimum=1)
    voxels_chunk: int = opt(1000, "rows of a chunk of 'voxels'", minimum=1)
    compression_level: int = opt(1, "deflate level of every array", minimum=0)
    chunk_cache_bytes: int = opt(1048576, "HDF5 chunk cache of each open array (rdcc_nbytes)", unit="B", minimum=0)
    table_cache_chunks: int = opt(
        0, "chunks of each small table that the library keeps; 0: as many as fit into chunk_cache_bytes", minimum=0
    )
    metadata_cache_bytes: int = opt(
        0, "HDF5 metadata cache of the file (B-tree nodes); 0: the library's, 2 MiB and growing", unit="B", minimum=0
    )
    merge_events: int = opt(
        260, "events whose voxels lie together, table by table, as the tool that merges files leaves them", minimum=1
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

    transfer_size: int = opt(262144, "size of one read call, TensorFlow's buffer_size", unit="B", minimum=1)
    compression: Literal["none", "gzip"] = opt("none", "compression of the whole file")
    compression_level: int = opt(6, "gzip level, 0 to 9", minimum=0)
    compressibility: float = opt(0.0, "share of the payload that is constant: 0 random, 1 all zero", minimum=0)
    verify_crc: bool = opt(True, "check the checksums of each record, as TensorFlow does")
    float_lists: list[str] = opt([], "fields that are stored as lists of floats, not as bytes of their memory")
    index: bool = opt(False, "keep an index beside each file and read it at the open: for random access")


@dataclass(frozen=True)
class CsvConfig:
    """Text tables."""

    value_chars: float = opt(
        8.0, "mean characters of a decimal number, separator left out; 8.25: every fourth has 9", minimum=3
    )
    read_bytes: int = opt(262144, "size of one read call, the parser's buffer", unit="B", minimum=1)
    chunk_rows: int = opt(0, "rows parsed at a time; 0: the whole file", minimum=0)


@dataclass(frozen=True)
class NpzConfig:
    """NumPy's zip archives and single-array files, read through Python's own file layers."""

    buffer_bytes: int = opt(
        0, "buffer of a file: 4 MiB on Lustre, 4 KiB on ext4; 0: the file system's st_blksize", unit="B", minimum=0
    )
    compressed: bool = opt(False, "deflate the members of an archive, as numpy.savez_compressed does")
    compressibility: float = opt(0.0, "share of an archive's payload that is constant: 0 random, 1 all zero", minimum=0)
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
    compressibility: float = opt(0.0, "share of the payload that is constant: 0 random, 1 all zero", minimum=0)
    compression: Literal["none", "snappy", "gzip", "zstd"] = opt("snappy", "codec of the column chunks")


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
    hdf5: Hdf5Config = opt(Hdf5Config, "options of format hdf5")
    larcv3: Larcv3Config = opt(Larcv3Config, "options of format larcv3")
    volume: VolumeConfig = opt(VolumeConfig, "options of format hdf5_volume")
    tfrecord: TfrecordConfig = opt(TfrecordConfig, "options of format tfrecord")
    csv: CsvConfig = opt(CsvConfig, "options of format csv")
    npz: NpzConfig = opt(NpzConfig, "options of formats npz and npy")
    image: ImageConfig = opt(ImageConfig, "options of formats jpeg and png")
    binary: BinaryConfig = opt(BinaryConfig, "options of format indexed_binary")
    parquet: ParquetConfig = opt(ParquetConfig, "options of format parquet")


@dataclass(frozen=True)
class GenerateConfig:
    """How synthetic data are written."""

    num_workers: int = opt(0, "threads that make payloads on each rank; 0: one per core", minimum=0)
    overwrite: bool = opt(False, "write finished files again")
    fsync: bool = opt(True, "flush each file to the device before it gets its final name")


# --- access --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class AccessConfig:
    """Which samples, in which order, by which rank."""

    pattern: Literal["samples", "stream", "lanes"] = opt(
        "samples",
        "batches of sample numbers, read where they lie; files read from start to end; variable-length lanes",
    )
    order: Literal["sequential", "shuffled", "random_blocks", "strided"] = opt(
        "sequential",
        "order of samples: by index, permuted by seed and epoch, random start then consecutive, every stride-th",
    )
    partition: Literal["batches", "slices", "files", "none"] = opt(
        "batches",
        "share of a rank: consecutive parts of each global batch, one contiguous slice, whole files, everything",
    )
    stride: int = opt(1, "distance of consecutive reads of order=strided, in samples", minimum=1)
    tail: Literal["drop", "pad"] = opt("drop", "incomplete last batch: drop it, or fill it from the start of the order")
    unit: Literal["sample", "block", "file"] = opt(
        "sample", "one library call per sample, per run of consecutive samples, or per file (kept until used up)"
    )
    shard: Literal["before_shuffle", "after_shuffle"] = opt(
        "before_shuffle", "a stream's files are dealt to ranks once, or anew after each epoch's shuffle"
    )
    interleave: int = opt(1, "files that a stream reads in turn, one record from each", minimum=1)
    shuffle_pool: int = opt(0, "samples of a stream among which the next one is drawn; filled first", minimum=0)
    repeat: bool = opt(False, "a stream starts over when its files are used up, as often as the steps need")
    hold_steps: int = opt(1, "steps that a batch is used for before the next one is fetched", minimum=1)
    lane_rows: int = opt(128, "rows of each lane in a batch of pattern=lanes", minimum=1)


# --- loader --------------------------------------------------------------------------------------


@dataclass(frozen=True)
class LoaderConfig:
    """How batches are fetched."""

    engine: Literal["dataloader", "stateful", "nodes"] = opt(
        "dataloader", "torch DataLoader, torchdata StatefulDataLoader, or torchdata.nodes"
    )
    style: Literal["map", "pipe"] = opt("map", "pattern=samples: through the map-style Dataset or the DataPipe")
    num_workers: int = opt(0, "worker processes of a rank; 0: read in the rank's own process", minimum=0)
    prefetch_factor: int | None = opt(None, "batches that each worker reads ahead; null: torch's default", minimum=1)
    persistent_workers: bool = opt(False, "keep workers between epochs")
    pin_memory: bool = opt(False, "copy batches to page-locked memory")
    in_order: bool = opt(True, "deliver batches in the sampler's order")
    multiprocessing_context: Literal["fork", "forkserver", "spawn"] | None = opt(
        None, "how workers start; null: the platform's default"
    )
    read_threads: int = opt(0, "threads of the rank's process that read batches ahead; 0: read when asked", minimum=0)
    prefetch_batches: int = opt(1, "batches that the reader threads keep ahead of the trainer", minimum=1)
    max_open_files: int = opt(64, "files that each reading thread keeps open", minimum=1)
    in_memory: bool = opt(False, "read the whole share of the rank into memory before training")
    timeout_s: float = opt(300.0, "longest wait for a batch before the run fails; 0: for ever", unit="s", minimum=0)


# --- compute -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ComputeConfig:
    """What stands for the model."""

    mode: Literal["sleep", "spin", "cuda", "none"] = opt("sleep", "how the step time is spent")
    step_s: float = opt(0.0, "mean compute time of a training step", unit="s", minimum=0)
    stdev_s: float = opt(0.0, "standard deviation of the step time", unit="s", minimum=0)
    distribution: Literal["constant", "normal", "lognormal", "uniform", "gamma", "exponential"] = opt(
        "constant", "distribution of the step time"
    )
    threads: int = opt(1, "threads that are busy during a step of mode=spin", minimum=1)
    eval_step_s: float = opt(0.0, "mean compute time of an evaluation step", unit="s", minimum=0)
    preprocess_s: float = opt(0.0, "CPU time spent on each sample where it is read", unit="s", minimum=0)


# --- train ---------------------------------------------------------------------------------------


@dataclass(frozen=True)
class TrainConfig:
    """The loop."""

    epochs: int = opt(1, "passes over the data", minimum=1)
    steps: int = opt(0, "steps of an epoch; 0: as many as the data give", minimum=0)
    batch_size: int = opt(1, "samples of a batch", minimum=1)
    batch_scope: Literal["rank", "global"] = opt("rank", "batch_size counts the samples of one rank, or of all ranks")
    warmup_steps: int = opt(1, "first steps that are left out of the figures", minimum=0)
    allreduce_bytes: int = opt(0, "gradient that ranks reduce in each step; 0: none", unit="B", minimum=0)
    eval_every_epochs: int = opt(0, "evaluate after every n-th epoch; 0: never", minimum=0)
    eval_every_steps: int = opt(0, "evaluate after every n-th step; 0: never", minimum=0)
    eval_ranks: Literal["all", "first"] = opt("all", "which ranks evaluate")
    eval_steps: int = opt(0, "steps of an evaluation; 0: as many as the data give", minimum=0)
    eval_batch_size: int = opt(0, "samples of an evaluation batch of a rank; 0: as in training", minimum=0)
    min_au: float = opt(0.0, "least accelerator utilisation (0 to 1); below it the exit code is 4", minimum=0)


# --- checkpoint ----------------------------------------------------------------------------------


@dataclass(frozen=True)
class CheckpointFileConfig:
    """One file of a checkpoint."""

    name: str = opt("model", "file name; '{step}' is replaced by the step")
    bytes: int = opt(0, "size of the file", unit="B", minimum=0)
    write_bytes: int = opt(0, "size of one write call; 0: the whole file at once", unit="B", minimum=0)


@dataclass(frozen=True)
class CheckpointConfig:
    """What is saved, when, by whom."""

    kind: Literal["none", "files", "torch"] = opt("none", "nothing, files of given sizes, or torch.save of a state")
    every_steps: int = opt(0, "save after every n-th step; 0: not by step", minimum=0)
    every_epochs: int = opt(0, "save after every n-th epoch; 0: not by epoch", minimum=0)
    files: list[CheckpointFileConfig] = opt([], "files of kind=files, in the order of writing")
    state_bytes: int = opt(0, "size of the state of kind=torch", unit="B", minimum=0)
    ranks: Literal["first", "all"] = opt("first", "which ranks save")
    fsync: bool = opt(False, "flush each file to the device before the next step")
    keep: int = opt(1, "newest checkpoints that are kept; 0: all", minimum=0)
    restore: bool = opt(False, "the saving ranks read a checkpoint of this size before the first step")
    restore_read_bytes: int = opt(0, "size of one read call of a restore; 0: a whole file at once", unit="B", minimum=0)


# --- dist, trace, output, system, scale -----------------------------------------------------------


@dataclass(frozen=True)
class DistConfig:
    """How ranks talk."""

    backend: Literal["auto", "single", "torch", "horovod"] = opt(
        "auto", "communicator; auto: whatever launcher started this process"
    )
    timeout_s: float = opt(300.0, "longest wait for the other ranks", unit="s", minimum=1)


@dataclass(frozen=True)
class TraceConfig:
    """What is recorded beside the step times."""

    spans: bool = opt(True, "record named intervals of every process and thread")
    profiler: bool = opt(False, "write torch.profiler output for TensorBoard's profiler plugin")
    profiler_steps: int = opt(8, "steps that torch.profiler records after the warm-up", minimum=1)


@dataclass(frozen=True)
class OutputConfig:
    """Where results go."""

    root: str = opt("runs", "folder below which run directories lie")
    dir: str | None = opt(None, "this very run directory instead of <root>/<recipe>/<time>")
    progress: bool = opt(True, "show progress on rank 0")


@dataclass(frozen=True)
class SystemConfig:
    """The system on which the published numbers were taken; a run is compared with it."""

    name: str = opt("unknown", "name of the system")
    world_size: int = opt(1, "ranks of the published run", minimum=1)
    ranks_per_node: int = opt(1, "ranks of one node in the published run", minimum=1)


@dataclass(frozen=True)
class ScaleConfig:
    """How much of the published amount is done; the shape of the I/O stays."""

    name: str = opt("laptop", "which scale this is")
    max_samples: int = opt(0, "upper limit of the training samples; 0: as published", minimum=0)
    max_files: int = opt(0, "upper limit of the training files; 0: as published", minimum=0)
    max_samples_per_file: int = opt(0, "upper limit of the samples of a file; 0: as published", minimum=0)
    max_volume_edge: int = opt(0, "upper limit of the edges of a volume; 0: as published", minimum=0)
    max_shuffle_pool: int = opt(0, "upper limit of the shuffle pool; 0: as published", minimum=0)
    max_samples_eval: int = opt(0, "upper limit of the evaluation samples; 0: as published", minimum=0)
    max_steps: int = opt(0, "upper limit of the steps of an epoch; 0: as published", minimum=0)
    max_epochs: int = opt(0, "upper limit of the epochs; 0: as published", minimum=0)
    compute: float = opt(1.0, "factor on every emulated compute and preprocess time", minimum=0)
    checkpoint: float = opt(1.0, "factor on the interval between checkpoints", minimum=0)
    checkpoint_size: float = opt(1.0, "factor on the size of a checkpoint; its write calls keep their size", minimum=0)
    allreduce: float = opt(1.0, "factor on the gradient that ranks reduce", minimum=0)
    first_touch: bool = opt(
        False, "shrink the library's caches with the data, so that reads find as little there as in the published run"
    )
    keep_rank_batch: bool = opt(
        False, "give each rank the batch that it has in the published run, whatever the number of ranks now"
    )


@dataclass(frozen=True)
class ExpectConfig:
    """One published figure of the application."""

    metric: str = opt("", "name of a figure of summary.json, dotted, or one of the trace's")
    value: float = opt(0.0, "the published value")
    tolerance: float = opt(0.1, "relative difference that still counts as alike", minimum=0)
    source: str = opt("", "where the value was published")


@dataclass(frozen=True)
class Config:
    """A complete experiment."""

    recipe: str = opt("", "recipe name, or path of a recipe file")
    accelerator: str = opt("", "variant of the recipe, a name in its 'accelerators:'; empty: as the recipe stands")
    description: str = opt("", "what the recipe emulates, in one line")
    seed: int = opt(1, "seed of data, order and compute times", minimum=0)
    verify: bool = opt(False, "check every sample's content and how often it came")
    dataset: DatasetConfig = opt(DatasetConfig, "what is read")
    generate: GenerateConfig = opt(GenerateConfig, "how synthetic data are written")
    access: AccessConfig = opt(AccessConfig, "which samples, in which order, by which rank")
    loader: LoaderConfig = opt(LoaderConfig, "how batches are fetched")
    compute: ComputeConfig = opt(ComputeConfig, "what stands for the model")
    train: TrainConfig = opt(TrainConfig, "the loop")
    checkpoint: CheckpointConfig = opt(CheckpointConfig, "what is saved, when, by whom")
    dist: DistConfig = opt(DistConfig, "how ranks talk")
    trace: TraceConfig = opt(TraceConfig, "what is recorded beside the step times")
    output: OutputConfig = opt(OutputConfig, "where results go")
    system: SystemConfig = opt(SystemConfig, "the system of the published numbers")
    scale: ScaleConfig = opt(ScaleConfig, "how much of the published amount is done")
    expect: list[ExpectConfig] = opt([], "published signature that a run is compared with")
