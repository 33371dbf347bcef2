"""Options of ``access``, ``loader``, ``cache`` and ``storage``: how the data are read, and from where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from dlio_torch.config.extensions import ENGINES
from dlio_torch.config.opt import LARGEST_CALL, MOST_THREADS, opt


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
    interleave: int = opt(1, "files that a stream reads in turn, one record from each", minimum=1, maximum=MOST_THREADS)
    interleave_buffer: int = opt(
        0,
        "records that a thread of each interleaved file keeps ready, as TensorFlow's parallel_interleave does; 0: one "
        "thread reads all files",
        minimum=0,
    )
    interleave_prefetch: int = opt(
        0, "with interleave_buffer: further files that are begun before their turn", minimum=0, maximum=MOST_THREADS
    )
    shuffle_pool: int = opt(0, "samples of a stream among which the next one is drawn; filled first", minimum=0)
    repeat: bool = opt(False, "a stream starts over when its files are used up, as often as the steps need")
    hold_steps: int = opt(1, "steps that a batch is used for before the next one is fetched", minimum=1, maximum=1e9)
    lane_rows: int = opt(128, "rows of each lane in a batch of pattern=lanes", minimum=1)
    lane_random_steps: int = opt(
        0,
        "steps, from the first one on, in which a lane cuts a new sample at a random row; later ones keep all rows",
        minimum=0,
    )
    lane_probe: bool = opt(False, "lanes read sample 0 once more before the first batch, for its shape")
    io: Literal["posix", "independent", "collective"] = opt(
        "posix",
        "the format's own calls, MPI-IO of each rank for itself, or MPI-IO calls that all ranks make together; by "
        "unit=sample a call for each sample, by unit=block one for all samples of a step in a file",
    )
    mpi_hints: list[str] = opt(
        [], "hints for MPI-IO, as [romio_cb_read=enable, cb_nodes=2]; the MPI takes or leaves them"
    )


if TYPE_CHECKING:
    EngineName = str
else:
    EngineName = Literal[tuple(ENGINES)]


@dataclass(frozen=True)
class LoaderConfig:
    """How batches are fetched."""

    engine: EngineName = opt(
        "dataloader",
        "torch DataLoader, torchdata StatefulDataLoader, torchdata.nodes, or decoupled: threads that read by the "
        "samples' places into reused memory, without the format's own library calls; workers share it "
        "(pattern=samples and stream)",
    )
    style: Literal["map", "pipe"] = opt("map", "pattern=samples: through the map-style Dataset or the DataPipe")
    num_workers: int = opt(
        0, "worker processes of a rank; 0: read in the rank's own process", minimum=0, maximum=MOST_THREADS
    )
    prefetch_factor: int | None = opt(
        None, "batches that each worker reads ahead; null: torch's default", minimum=1, maximum=MOST_THREADS
    )
    persistent_workers: bool = opt(False, "keep workers between epochs")
    pin_memory: bool = opt(False, "copy batches to page-locked memory")
    in_order: bool = opt(True, "deliver batches in the sampler's order")
    multiprocessing_context: Literal["fork", "forkserver", "spawn"] | None = opt(
        None, "how workers start; null: the platform's default"
    )
    read_threads: int = opt(
        0,
        "threads of the rank's process, with engine=decoupled of each worker, that read batches ahead; 0: read when "
        "asked, with engine=decoupled 2 threads",
        minimum=0,
        maximum=MOST_THREADS,
    )
    prefetch_batches: int = opt(
        1, "batches that the reader threads keep ahead of the trainer", minimum=1, maximum=MOST_THREADS
    )
    prefetch_bytes: int = opt(
        16777216,
        "engine=decoupled: bytes of batches that are read ahead, at least one batch; workers share them evenly",
        unit="B",
        minimum=1,
    )
    transfer_size: int = opt(
        1048576,
        "engine=decoupled: most bytes of a read request; neighbours in a file are joined",
        unit="B",
        minimum=1,
        maximum=LARGEST_CALL,
    )
    max_open_files: int = opt(64, "files that each reading thread keeps open", minimum=1)
    in_memory: bool = opt(False, "read the whole share of the rank into memory before training")
    timeout_s: float = opt(
        300.0, "longest wait for a batch before the run fails, whoever reads it; 0: for ever", unit="s", minimum=0
    )
    replay: Literal["none", "reads", "samples", "batches"] = opt(
        "none",
        "leave out a cost of training batches, to learn what it is: answer read calls from memory, take finished "
        "samples from memory, hand over finished batches again and again",
    )
    replay_batches: int = opt(64, "most batches that replay=samples and batches keep of each rank", minimum=1)
    replay_bytes: int = opt(268435456, "most memory of the batches that are kept, at least one", unit="B", minimum=1)

    @property
    def prefetched(self) -> int:
        """Batches that each worker reads ahead: 2 where nothing is set, as in torch."""
        return self.prefetch_factor or 2


@dataclass(frozen=True)
class CacheConfig:
    """What lies in the page cache when the training begins."""

    state: Literal["cold", "warm", "as_is"] = opt(
        "as_is", "evict the data before the run, read them all once before it, or leave the page cache alone"
    )
    every_epoch: bool = opt(False, "do that (as_is: look) before each epoch, not only the first; outside of all times")


@dataclass(frozen=True)
class StorageConfig:
    """What the storage below the data gives at the most, which a run is compared with."""

    limits: Literal["off", "stored", "measure", "remeasure"] = opt(
        "stored",
        "compare with no limit, with one measured here within a day, with one measured after the run if there is none "
        "of that day, or with a new one",
    )
    limits_s: float = opt(0.5, "longest time of one measurement; a few are made", unit="s", minimum=0.05)
    limits_bytes: int = opt(
        268435456, "size of the file that is written beside the data and read", unit="B", minimum=4194304
    )


@dataclass(frozen=True)
class StageConfig:
    """A copy of the data on storage of the node, made before the training reads."""

    dir: str | None = opt(
        None,
        "folder of node-local storage that gets a copy of what is read, $VARIABLES in it; null: read where it lies",
    )
    per: Literal["node", "rank"] = opt("node", "with stage.dir: one copy for all ranks of a node, or one for each rank")
    every_epoch: bool = opt(
        False,
        "with stage.dir: before each epoch copy what it reads and remove the rest; else before the first what all read",
    )
    keep: bool = opt(
        False,
        "with stage.dir: leave the copy, which nothing removes then, and use one that is complete and unchanged",
    )
    num_workers: int = opt(2, "files that each rank copies at once", minimum=1, maximum=MOST_THREADS)
