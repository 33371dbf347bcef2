"""Options of ``dist``, ``trace`` and ``output``; of ``system``, ``scale`` and ``expect``, the published run."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from dlio_torch.config.opt import opt


@dataclass(frozen=True)
class HorovodConfig:
    """Horovod's settings; null: what its variable HOROVOD_... says, else its default."""

    fusion_threshold_bytes: int | None = opt(
        None, "most bytes of tensors that are reduced together, 0: each on its own; Horovod's default: 128 MiB",
        unit="B", minimum=0,
    )  # fmt: skip
    cycle_time_s: float | None = opt(
        None, "time between two looks at which tensors are ready; Horovod's default: 1 ms", unit="s", minimum=0
    )
    cache_capacity: int | None = opt(
        None, "tensors whose negotiation is remembered, 0: none; Horovod's default: 1024", minimum=0
    )
    groups: int | None = opt(
        None, "fixed groups of the gradient's tensors, each reduced when it is complete; null: whatever is ready",
        minimum=1,
    )  # fmt: skip
    commit_steps: int = opt(
        10, "steps after which an elastic run (horovodrun --min-np) commits where it is, and looks for new hosts",
        minimum=1,
    )  # fmt: skip
    compression: Literal["none", "fp16"] = opt("none", "element type in which the gradient travels; none: float32")


@dataclass(frozen=True)
class DistConfig:
    """How ranks talk."""

    backend: Literal["auto", "single", "torch", "horovod", "mpi"] = opt(
        "auto",
        "communicator; auto: that of the launcher of this process, under mpirun Horovod with MPI, else mpi4py",
    )
    timeout_s: float = opt(300.0, "longest wait for the other ranks", unit="s", minimum=1)
    horovod: HorovodConfig = opt(HorovodConfig, "how Horovod reduces the gradient")


@dataclass(frozen=True)
class TraceConfig:
    """What is recorded beside the step times."""

    spans: bool = opt(True, "record named intervals of every process and thread")
    limit_bytes: int = opt(
        1073741824,
        "most bytes of events that a rank and its workers record together; then spans and calls end, steps and "
        "counters go on",
        unit="B", minimum=65536,
    )  # fmt: skip
    limit_files: int = opt(
        2048, "most files of events of a rank and its workers, two for each process and kind of events", minimum=8
    )
    posix: bool = opt(False, "record every I/O call of the training on the files of posix_paths")
    posix_paths: list[str] = opt(
        [], "folders, files or patterns whose calls are recorded; empty: the data set and the checkpoints"
    )
    posix_limit_bytes: int = opt(
        4294967296,
        "most bytes of recorded calls that a process may write (48 each), within limit_bytes",
        unit="B",
        minimum=65536,
    )
    profiler: bool = opt(False, "write torch.profiler output for TensorBoard's profiler plugin")
    horovod: bool = opt(
        False, "record Horovod's timeline on rank 0, where its writer keeps a core busy, and add it to the trace"
    )
    profiler_steps: int = opt(8, "steps that torch.profiler records after the warm-up", minimum=1)


@dataclass(frozen=True)
class OutputConfig:
    """Where results go."""

    root: str = opt("runs", "folder below which run directories lie")
    dir: str | None = opt(None, "this very run directory instead of <root>/<recipe>/<time>")
    progress: bool = opt(True, "show progress on rank 0")
    patience_s: float = opt(
        60.0,
        "wait for a batch, a checkpoint, a copy or a file to be written after which a line on the console says what is "
        "waited for, and again after twice as long; the run goes on; 0: no such lines",
        unit="s",
        minimum=0,
    )


@dataclass(frozen=True)
class SystemConfig:
    """The system on which the published numbers were taken, which a run is compared with; what `predict` simulates."""

    name: str = opt("unknown", "name of the system")
    world_size: int = opt(1, "ranks of the published run", minimum=1)
    ranks_per_node: int = opt(1, "ranks of one node in the published run", minimum=1)
    read_bytes_per_s: float = opt(
        0.0, "most that all storage targets together deliver in a second; 0: not described", unit="B", minimum=0
    )
    write_bytes_per_s: float = opt(
        0.0, "most that they take in a second; 0: as much as they deliver", unit="B", minimum=0
    )
    targets: int = opt(1, "storage targets (OSTs, NSD servers) that share this evenly", minimum=1)
    target_requests_per_s: float = opt(0.0, "most requests that one target answers in a second; 0: no limit", minimum=0)
    stripe_bytes: int = opt(1048576, "consecutive bytes of a file on one target", unit="B", minimum=4096)
    stripe_count: int = opt(0, "targets over which a file is spread; 0: all", minimum=0)
    request_latency_s: float = opt(0.0, "time of a request to an idle server, beside the transfer", unit="s", minimum=0)
    metadata_ops_per_s: float = opt(
        0.0, "most files that all metadata servers together open in a second; 0: no limit", minimum=0
    )
    metadata_servers: int = opt(1, "metadata servers that share this evenly", minimum=1)
    client_bytes_per_s: float = opt(
        0.0, "most that one node reads from, or writes to, the storage in a second; 0: no limit", unit="B", minimum=0
    )
    cores_per_node: int = opt(0, "cores of a node on which its ranks make batches; 0: as many as they want", minimum=0)
    network_bytes_per_s: float = opt(
        0.0, "rate at which a rank exchanges gradients; 0: they cost nothing but the wait for the last rank",
        unit="B", minimum=0,
    )  # fmt: skip
    network_latency_s: float = opt(0.0, "time of a message between ranks, beside the transfer", unit="s", minimum=0)
    guessed: list[str] = opt([], "options of this group whose values are guesses, not published figures")


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
