"""Options of ``dist``, ``trace`` and ``output``; of ``system``, ``scale`` and ``expect``, the published run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class HorovodConfig:
    """Settings of Horovod; null: the environment variable HOROVOD_..., or else Horovod's default."""

    fusion_threshold_bytes: int | None = opt(
        None,
        "maximum size of the tensors that are fused into one allreduce; 0: no fusion; null: "
        "HOROVOD_FUSION_THRESHOLD, or else 128 MiB",
        unit="B",
        minimum=0,
    )
    cycle_time_s: float | None = opt(
        None,
        "time between two checks for tensors that are ready; null: HOROVOD_CYCLE_TIME, or else 1 ms",
        unit="s",
        minimum=0,
    )
    cache_capacity: int | None = opt(
        None,
        "number of tensors whose negotiation Horovod caches; 0: no cache; null: HOROVOD_CACHE_CAPACITY, or else 1024",
        minimum=0,
    )
    groups: int | None = opt(
        None,
        "number of fixed groups of gradient tensors, each reduced when all its tensors are ready; null: no "
        "groups, tensors are reduced as they become ready",
        minimum=1,
    )
    commit_steps: int = opt(
        10,
        "steps between two commits of an elastic run (horovodrun --min-np); the run looks for new hosts at each commit",
        minimum=1,
    )
    compression: Literal["none", "fp16"] = opt("none", "element type in which the gradient is sent; none: float32")


@dataclass(frozen=True)
class DistConfig:
    """Communication between ranks."""

    backend: Literal["auto", "single", "torch", "horovod", "mpi"] = opt(
        "auto",
        "communicator; auto: the communicator that fits the launcher that started this process; under mpirun "
        "Horovod with MPI, or else mpi4py",
    )
    timeout_s: float = opt(300.0, "maximum wait for other ranks before the run fails", unit="s", minimum=1)
    horovod: HorovodConfig = opt(HorovodConfig, "settings of Horovod, which reduces the gradient")


@dataclass(frozen=True)
class TraceConfig:
    """Recordings besides the step times."""

    spans: bool = opt(True, "record spans: named time intervals of every process and thread")
    limit_bytes: int = opt(
        1073741824,
        "maximum size of the events that a rank and its workers record together; after that only step times "
        "and counters are recorded, no spans and I/O calls",
        unit="B",
        minimum=65536,
    )
    limit_files: int = opt(
        2048,
        "maximum number of event files of a rank and its workers; each process writes two per kind of events",
        minimum=8,
    )
    posix: bool = opt(False, "record every I/O call of the training on the files of posix_paths")
    posix_paths: list[str] = opt(
        [], "folders, files or patterns whose I/O calls are recorded; empty: the data set and the checkpoints"
    )
    posix_limit_bytes: int = opt(
        4294967296,
        "maximum size of the recorded I/O calls of a process, 48 bytes per call; limit_bytes applies as well",
        unit="B",
        minimum=65536,
    )
    profiler: bool = opt(False, "write for TensorBoard: scalars of each step, and a torch.profiler trace of some steps")
    horovod: bool = opt(
        False, "record Horovod's timeline on rank 0 and add it to the trace; its writer keeps one core of rank 0 busy"
    )
    profiler_steps: int = opt(8, "steps after the warm-up that torch.profiler records", minimum=1)


@dataclass(frozen=True)
class OutputConfig:
    """Run directories and progress messages."""

    root: str = opt("runs", "folder below which run directories lie")
    dir: str | None = opt(
        None,
        "run directory; an earlier run there is kept as <dir>.1 (.2 and so on); null: <root>/<recipe>/<time>",
    )
    progress: bool = opt(True, "show progress on rank 0")
    patience_s: float = opt(
        60.0,
        "a console message reports a wait for a batch, a checkpoint, a copy or the writing of a file that lasts "
        "longer than this time, and again after twice the time; the run continues; 0: no messages",
        unit="s",
        minimum=0,
    )


@dataclass(frozen=True)
class SystemConfig:
    """The system of the published figures, with which a run is compared; the system that `predict` simulates."""

    name: str = opt("unknown", "name of the system")
    world_size: int = opt(1, "number of ranks of the published run", minimum=1)
    ranks_per_node: int = opt(1, "ranks per node in the published run", minimum=1)
    read_bytes_per_s: float = opt(
        0.0, "peak read rate of all storage targets together; 0: not described", unit="B", minimum=0
    )
    write_bytes_per_s: float = opt(
        0.0, "peak write rate of all storage targets together; 0: same as the read rate", unit="B", minimum=0
    )
    targets: int = opt(1, "number of storage targets (OSTs, NSD servers), which share the peak rates evenly", minimum=1)
    target_requests_per_s: float = opt(
        0.0, "maximum number of requests that one target answers per second; 0: no limit", minimum=0
    )
    stripe_bytes: int = opt(1048576, "stripe size: consecutive bytes of a file on one target", unit="B", minimum=4096)
    stripe_count: int = opt(0, "number of targets over which a file is striped; 0: all", minimum=0)
    request_latency_s: float = opt(
        0.0, "latency of a request to an idle server, without the transfer", unit="s", minimum=0
    )
    metadata_ops_per_s: float = opt(
        0.0, "maximum number of files that all metadata servers together open per second; 0: no limit", minimum=0
    )
    metadata_servers: int = opt(1, "number of metadata servers, which share metadata_ops_per_s evenly", minimum=1)
    client_bytes_per_s: float = opt(0.0, "peak rate between one node and the storage; 0: no limit", unit="B", minimum=0)
    cores_per_node: int = opt(0, "cores of a node on which its ranks load batches; 0: no limit", minimum=0)
    network_bytes_per_s: float = opt(
        0.0,
        "rate at which a rank exchanges gradients; 0: the exchange costs only the wait for the slowest rank",
        unit="B",
        minimum=0,
    )
    network_latency_s: float = opt(0.0, "time of a message between ranks, without the transfer", unit="s", minimum=0)
    guessed: list[str] = opt([], "options of this group whose values are guesses, not published figures")


@dataclass(frozen=True)
class ScaleConfig:
    """Limits that shrink the amount of the published experiment; the pattern of its I/O stays the same."""

    name: str = opt("laptop", "name of this scale")
    max_samples: int = opt(0, "maximum number of training samples; 0: as published", minimum=0)
    max_files: int = opt(0, "maximum number of training files; 0: as published", minimum=0)
    max_samples_per_file: int = opt(0, "maximum number of samples per file; 0: as published", minimum=0)
    max_volume_edge: int = opt(0, "maximum edge length of a volume, in voxels; 0: as published", minimum=0)
    max_shuffle_pool: int = opt(0, "maximum number of samples in the shuffle pool; 0: as published", minimum=0)
    max_samples_eval: int = opt(0, "maximum number of evaluation samples; 0: as published", minimum=0)
    max_steps: int = opt(0, "maximum number of steps per epoch; 0: as published", minimum=0)
    max_epochs: int = opt(0, "maximum number of epochs; 0: as published", minimum=0)
    compute: float = opt(1.0, "factor on all emulated compute and preprocessing times", minimum=0)
    checkpoint: float = opt(1.0, "factor on the number of steps between checkpoints", minimum=0)
    checkpoint_size: float = opt(1.0, "factor on the size of a checkpoint; its write calls keep their size", minimum=0)
    max_state_bytes: int = opt(
        0,
        "maximum size of the described model's state on its largest rank; whole layers are left out until it fits, but "
        "each pipeline stage keeps one; 0: as published",
        unit="B",
        minimum=0,
    )
    max_vocab_size: int = opt(
        0,
        "maximum vocabulary of the described model, whose tables are most of its state if few layers are left; "
        "0: as published",
        minimum=0,
    )
    allreduce: float = opt(1.0, "factor on the size of the gradient that ranks average in each step", minimum=0)
    first_touch: bool = opt(
        False,
        "shrink the caches of the format's library together with the data, so that reads hit these caches no "
        "more often than in the published run",
    )
    keep_rank_batch: bool = opt(False, "keep the batch size per rank of the published run, for any number of ranks")


@dataclass(frozen=True)
class ExpectConfig:
    """One published figure of the application."""

    metric: str = opt("", "dotted name of a figure in summary.json, or name of a figure of the trace")
    value: float = opt(0.0, "published value")
    tolerance: float = opt(0.1, "largest relative difference that still counts as equal", minimum=0)
    source: str = opt("", "publication that states the value")
