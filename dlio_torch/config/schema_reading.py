"""Options of ``access``, ``loader``, ``cache``, ``storage`` and ``stage``: how the data are read, and from where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dlio_torch.config.extensions import ENGINES
from dlio_torch.config.opt import LARGEST_CALL, MOST_IN_FLIGHT, MOST_THREADS, opt


@dataclass(frozen=True)
class AccessConfig:
    """The samples that each rank reads, and their order."""

    pattern: Literal["samples", "stream", "lanes"] = opt(
        "samples",
        "samples: batches of sample indices, each sample read at its position in the file; stream: files read"
        " from start to end; lanes: each lane of a batch cuts pieces of equal length from variable-length "
        "samples",
    )
    order: Literal["sequential", "shuffled", "random_blocks", "strided"] = opt(
        "sequential",
        "sequential: by index; shuffled: a permutation given by seed and epoch; random_blocks: each step "
        "reads consecutive samples from a random start; strided: every stride-th sample, then the same from "
        "the next start",
    )
    partition: Literal["batches", "slices", "files", "none"] = opt(
        "batches",
        "division of the samples among ranks; batches: consecutive parts of each global batch; slices: one "
        "contiguous range of samples; files: whole files; none: every rank reads all samples",
    )
    stride: int = opt(1, "with order=strided: distance between consecutive reads, in samples", minimum=1)
    tail: Literal["drop", "pad", "keep"] = opt(
        "drop",
        "incomplete last batch; drop: it is skipped; pad: samples from the start of the order fill it; keep: it is "
        "delivered, smaller than the others, as by a DataLoader with drop_last=False",
    )
    unit: Literal["sample", "block", "file"] = opt(
        "sample",
        "samples per library call; sample: one; block: a run of consecutive samples; file: a whole file, kept"
        " in memory until its samples are used",
    )
    block_samples: int = opt(
        0,
        "with pattern=stream and unit=block: consecutive samples of a file, such as a row group, that are dealt to "
        "ranks and workers, shuffled, and read like a file of their own, each with an open of the file",
        minimum=0,
    )
    shard: Literal["before_shuffle", "after_shuffle"] = opt(
        "before_shuffle",
        "distribution of a stream's files to ranks; before_shuffle: once; after_shuffle: again after the "
        "shuffle of each epoch",
    )
    interleave: int = opt(1, "files that a stream reads in turn, one record from each", minimum=1, maximum=MOST_THREADS)
    interleave_buffer: int = opt(
        0,
        "records that a reader thread per interleaved file keeps ready, as TensorFlow's parallel_interleave "
        "does; 0: one thread reads all files",
        minimum=0,
    )
    interleave_prefetch: int = opt(
        0,
        "with interleave_buffer: number of upcoming files that threads read in advance; 0: none",
        minimum=0,
        maximum=MOST_THREADS,
    )
    shuffle_pool: int = opt(
        0,
        "samples in the shuffle pool of a stream, which is filled first; each next sample is drawn from it at"
        " random; 0: no pool",
        minimum=0,
    )
    repeat: bool = opt(
        False, "read the files of a stream again from the start when all have been read, until all steps are done"
    )
    hold_steps: int = opt(
        1,
        "number of consecutive steps that use the same batch before the next batch is fetched",
        minimum=1,
        maximum=1e9,
    )
    lane_rows: int = opt(128, "with pattern=lanes: number of consecutive rows of each lane in a batch", minimum=1)
    lane_random_steps: int = opt(
        0,
        "with pattern=lanes: number of first steps in which a lane enters a new sample at a random row; in later "
        "steps a lane skips only rows that do not fill a whole step",
        minimum=0,
    )
    lane_probe: bool = opt(
        False, "with pattern=lanes: read sample 0 once more before the first batch, to learn its shape"
    )
    io: Literal["posix", "independent", "collective"] = opt(
        "posix",
        "posix: the calls of the format's library; independent: MPI-IO, each rank by itself; collective: MPI-"
        "IO calls that all ranks make together; with MPI-IO, unit=sample makes one call per sample, "
        "unit=block one call per step and file",
    )
    mpi_hints: list[str] = opt(
        [], "hints for MPI-IO, for example [romio_cb_read=enable, cb_nodes=2]; the MPI library may ignore them"
    )


if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[tuple(ENGINES)]


@dataclass(frozen=True)
class LoaderConfig:
    """Loading of batches: engine, workers, prefetching."""

    engine: EngineName = opt(
        "dataloader",
        "dataloader: torch's DataLoader; stateful: torchdata's StatefulDataLoader; nodes: torchdata.nodes; "
        "decoupled: reader threads, in workers if there are any, that read extents of the files into reused "
        "memory without the format's library",
    )
    style: Literal["map", "pipe"] = opt(
        "map", "torch class of the data set with pattern=samples; map: map-style Dataset; pipe: DataPipe"
    )
    num_workers: int = opt(
        0, "worker processes of each rank; 0: the rank's own process reads", minimum=0, maximum=MOST_THREADS
    )
    prefetch_factor: int | None = opt(
        None, "batches that each worker prefetches; null: torch's default, 2", minimum=1, maximum=MOST_THREADS
    )
    persistent_workers: bool = opt(False, "keep workers alive between epochs")
    pin_memory: bool = opt(False, "copy batches to page-locked (pinned) memory")
    prefetch_to_device: int = opt(
        0,
        "with train.device=cuda: number of training batches that are copied to the GPU ahead of their step, on a CUDA "
        "stream of their own; with pin_memory the copies overlap with compute; 0: each batch is copied in its step",
        minimum=0,
        maximum=MOST_THREADS,
    )
    in_order: bool = opt(
        True, "deliver batches in the order of the sampler; false: in the order in which workers finish them"
    )
    multiprocessing_context: Literal["fork", "forkserver", "spawn"] | None = opt(
        None, "start method of worker processes; null: the platform's default"
    )
    affinity: Literal["none", "numa", "cores"] = opt(
        "none",
        "CPUs of worker processes, or of reader threads without workers; none: all that the rank may use; numa: those "
        "of the NUMA node of the rank's GPU (train.device=cuda), or of the node that the local rank chooses; cores: "
        "CPUs of its own for each, and the remaining ones for the trainer",
    )
    read_threads: int = opt(
        0,
        "threads that prefetch batches, in the rank's process or, with engine=decoupled, in each worker; 0: "
        "each batch is read when the trainer requests it; with engine=decoupled, 0 means 2 threads",
        minimum=0,
        maximum=MOST_THREADS,
    )
    prefetch_batches: int = opt(1, "batches that the reader threads prefetch", minimum=1, maximum=MOST_THREADS)
    prefetch_bytes: int = opt(
        0,
        "engine=decoupled: size of the prefetch window of a rank, at least one batch; workers share it evenly; 0: "
        "three quarters of the processor's last-level cache, at least 16 MiB and 2 batches of each worker, or 24 MiB "
        "if the system does not show the cache",
        unit="B",
        minimum=0,
    )
    transfer_size: int = opt(
        1048576,
        "engine=decoupled: largest read request; adjacent extents of a file are merged into one request",
        unit="B",
        minimum=1,
        maximum=LARGEST_CALL,
    )
    io: Literal["threads", "io_uring"] = opt(
        "threads",
        "engine=decoupled: system calls that read; threads: each reader thread makes one read call at a time; "
        "io_uring: each reader thread has up to queue_depth requests in flight, or reads as with threads where the "
        "system refuses io_uring",
    )
    queue_depth: int = opt(
        32,
        "with io=io_uring: maximum number of requests that each reader thread has in flight",
        minimum=1,
        maximum=MOST_IN_FLIGHT,
    )
    read_to: Literal["host", "device"] = opt(
        "host",
        "engine=decoupled: memory to which samples are read; host: main memory; device: the GPU's memory, past main "
        "memory, by NVIDIA's cuFile (GPUDirect Storage); for formats whose samples are stored as they are used",
    )
    max_open_files: int = opt(64, "files that each reading thread keeps open", minimum=1)
    opened_by: Literal["workers", "main"] = opt(
        "workers",
        "process that opens files which are mapped into memory; workers: each worker when it needs a file; main: the "
        "rank's process before it starts workers, which inherit the mappings, as of numpy.memmap in __init__ of a "
        "Dataset, or of a Hugging Face data set",
    )
    in_memory: bool = opt(False, "read all samples of the rank into memory before training")
    timeout_s: float = opt(300.0, "maximum wait for a batch before the run fails; 0: no limit", unit="s", minimum=0)
    probe_files: Literal["none", "first", "all"] = opt(
        "none",
        "files of each split that the rank's process opens and closes once before training, as programs do to learn "
        "the shape of the samples (first) or their number (all)",
    )
    replay: Literal["none", "reads", "samples", "batches"] = opt(
        "none",
        "leave out one cost of loading training batches, to measure that cost; none: nothing is left out; reads: "
        "read calls are answered from memory; samples: finished samples are taken from memory; batches: the same "
        "finished batches are delivered repeatedly",
    )
    replay_batches: int = opt(
        64, "with replay=samples or batches: maximum number of batches that each rank keeps in memory", minimum=1
    )
    replay_bytes: int = opt(
        268435456,
        "with replay=samples or batches: maximum memory for the kept batches; at least one batch is kept",
        unit="B",
        minimum=1,
    )
    limit: Literal["off", "stored", "measure", "remeasure"] = opt(
        "stored",
        "accelerator utilisation that the loader allows if reads cost nothing, with which a run is compared; off: "
        "none; stored: that of a run with replay=reads and the same options within the last day, if there is one; "
        "measure: the stored one, or else that of a further run, which starts after this one; remeasure: that of a "
        "further run",
    )
    limit_steps: int = opt(
        500,
        "with limit=measure or remeasure: maximum number of measured steps of the further run, which otherwise has "
        "the steps of this run",
        minimum=1,
        maximum=1e9,
    )

    @property
    def prefetched(self) -> int:
        """Number of batches that each worker prefetches; 2 by default, as in torch."""
        return self.prefetch_factor or 2


CacheGoal = Literal["cold", "warm", "as_is"]
"""State of the page cache when training begins."""


@dataclass(frozen=True)
class CacheConfig:
    """State of the page cache when training begins."""

    state: Literal["auto", "cold", "warm", "as_is"] = opt(
        "auto",
        "page cache before training; cold: the data are evicted; warm: all data are read once; as_is: nothing is "
        "changed; auto: cold for generated data, as_is for existing data (dataset.path), for staged copies, and with "
        "dataset.direct_io",
    )
    every_epoch: bool = opt(
        False,
        "prepare the page cache before each epoch, not only before the first (state=as_is: only measure the "
        "cached data); no measured time includes the preparation",
    )


@dataclass(frozen=True)
class StorageConfig:
    """Limits of the storage below the data, with which a run is compared."""

    limits: Literal["off", "stored", "measure", "remeasure"] = opt(
        "stored",
        "storage limit with which a run is compared; off: none; stored: a limit measured on this machine within "
        "the last day, if there is one; measure: the stored limit, or else a limit measured after the run; "
        "remeasure: a limit measured after the run",
    )
    limits_s: float = opt(0.5, "maximum time of each of the measurements of the storage", unit="s", minimum=0.05)
    limits_bytes: int = opt(
        268435456, "size of the test file that is written next to the data and read", unit="B", minimum=4194304
    )


@dataclass(frozen=True)
class StageConfig:
    """Staging: a copy of the data on node-local storage, made before the ranks read."""

    dir: str | None = opt(
        None,
        "folder on node-local storage for a copy of the data that the ranks read, with $VARIABLES expanded; "
        "null: no staging",
    )
    per: Literal["node", "rank"] = opt("node", "with stage.dir: one copy per node, or one copy per rank")
    every_epoch: bool = opt(
        False,
        "with stage.dir: before each epoch, copy the files that it reads and remove all others; false: copy "
        "the files of all epochs before the first",
    )
    keep: bool = opt(
        False,
        "with stage.dir: keep the copy after the run, and reuse an existing copy that is complete and unchanged",
    )
    num_workers: int = opt(2, "files that each rank copies at the same time", minimum=1, maximum=MOST_THREADS)
