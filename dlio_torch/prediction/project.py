"""Predicts figures at any number of ranks, from a measured run's workload and the description of a system.

Definitions, in the long run of an epoch without its begin::

    samples_per_s   samples of the batches of all ranks / time
    ideal_share     samples_per_s / (ranks x samples_per_s of one rank of this table's smallest number)
    io_share        share of a rank's time in which it waits for a batch or for a checkpoint
    au              requested compute time / time
    begin_s         from the first open to the end of the last producer's opening (and of loading into memory)
    epoch_s         begin_s + steps of an epoch x time of a step; None: less than one batch for each rank
    limited_by      what to change first: "compute" where ranks compute 90 % of the time, else the kind of server
                    that is busy 80 % of the time, else the largest of compute, "the slowest rank",
                    "checkpoints" and "making batches" (more producers would help, or less work for them)
"""

from __future__ import annotations

import importlib.util
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from dlio_torch.config.schema_run import SystemConfig
from dlio_torch.errors import ConfigError, MissingPackageError
from dlio_torch.prediction.cluster import Cluster
from dlio_torch.prediction.predicted_saves import PredictedSave, predicted_save
from dlio_torch.prediction.rank_workload import RankWorkload

if TYPE_CHECKING:
    from dlio_torch.prediction.simulate import RankDemand, Steady

_COMPUTES, _BUSY = 0.9, 0.8
_HEADER = 1.0  # reads of opening a file, where they were not recorded
MOST_RANKS = 65536
"""Number of ranks above which a simulation of each rank would take minutes."""


@dataclass(frozen=True)
class Row:
    """Predicted figures at one number of ranks, see the module's text; None: not known, or not applicable."""

    ranks: int
    nodes: int
    samples_per_s: float
    ideal_share: float
    step_s: float
    io_share: float
    compute_share: float
    reduce_share: float
    au: float | None
    begin_s: float
    epoch_s: float | None
    checkpoint_s: float | None
    checkpoint: PredictedSave | None
    limited_by: str
    busy: dict[str, float]
    batches: int


@dataclass(frozen=True)
class Question:
    """Parameters of a prediction.

    Attributes:
        ranks: numbers of ranks, any order.
        cached: share of the bytes that page caches of the nodes deliver.
        files: of the data set; None: as in the run.
        samples: of an epoch; None: as in the run.
        seed: of what is drawn.
    """

    ranks: Sequence[int]
    cached: float = 0.0
    files: int | None = None
    samples: int | None = None
    seed: int = 1


def project(workload: RankWorkload, system: SystemConfig, question: Question) -> list[Row]:
    """Predicts figures at each number of ranks, smallest first.

    Args:
        workload: of the measured run.
        system: what its ranks are to run on.
        question: how many ranks, and what else is to be as it is not in the run.

    Raises:
        ConfigError: the system is not described, or the run's batch cannot be cut over so many ranks.
        MissingPackageError: SimPy is not installed.
    """
    require_simulator()
    workload = described(workload, question)
    _check(workload, system, question)
    rows: list[Row] = []
    for ranks in sorted(set(question.ranks)):
        row = _row(workload, system, question, ranks)
        first = rows[0] if rows else row
        share = row.samples_per_s / ranks / (first.samples_per_s / first.ranks)
        rows.append(replace(row, ideal_share=share))
    return rows


def described(workload: RankWorkload, question: Question) -> RankWorkload:
    """The workload with the requested size of the data set."""
    files, samples = question.files or workload.files, question.samples or workload.epoch_samples
    return replace(workload, files=files, epoch_samples=samples)


def file_bytes(workload: RankWorkload) -> float:
    """Size of a file of the data set, bytes; 0: not known."""
    return workload.stored_bytes * workload.epoch_samples / workload.files


def checked(workload: RankWorkload, seed: int) -> float:
    """Simulated / measured throughput of the run itself, less 1: with its own storage, and a core for each producer;
    the time between its epochs as it was.
    """
    from dlio_torch.prediction.simulate import RankDemand, steady

    require_simulator()
    measured_workload = replace(workload, blocked=workload.slept, locked=0.0)
    system = SystemConfig()
    cluster = Cluster(system, ranks=workload.ranks, files=1, file_bytes=0, request_bytes=0, seed=seed)
    simulated = steady(RankDemand(measured_workload, 1.0, 0.0, 0.0, 0.0, 0.0), cluster, workload.ranks, seed)
    rate = workload.measured["samples_per_s"]
    assert rate, "refused where the workload was made"
    return simulated.batches_per_s * workload.samples * (1 - (workload.measured["between_epochs"] or 0.0)) / rate - 1


def require_simulator() -> None:
    """Raises MissingPackageError if the simulation library is not installed."""
    if importlib.util.find_spec("simpy") is None:
        raise MissingPackageError(
            "the verb predict needs the package simpy, which is not installed",
            hint="run: pip install 'dlio-torch[scale]'",
        )


def _check(workload: RankWorkload, system: SystemConfig, question: Question) -> None:
    reads = workload.bytes > 0 or workload.load_bytes > 0
    if reads and question.cached < 1 and not system.read_bytes_per_s:
        raise ConfigError(
            f"system.read_bytes_per_s=0 (system {system.name}): the read rate of the storage is not described",
            hint=(
                "add system=theta, or set system.read_bytes_per_s=240GB and other options (`explain system` lists "
                "them), or set cached=1 if all bytes are read from page caches"
            ),
        )
    most = max(question.ranks)
    if workload.global_batch and most > workload.global_batch:
        raise ConfigError(
            f"ranks={most} (command line): more ranks than the {workload.global_batch} samples of a global batch "
            "(train.batch_size)",
            hint=f"set ranks to at most {workload.global_batch}",
        )


def _row(workload: RankWorkload, system: SystemConfig, question: Question, ranks: int) -> Row:
    from dlio_torch.prediction.simulate import steady
    from dlio_torch.prediction.synchronous_phases import begin_s

    demand = _demand(workload, system, question, ranks)

    def cluster() -> Cluster:
        size = demand.size / demand.requests if demand.requests else 0.0
        return Cluster(
            system,
            ranks=ranks,
            files=workload.files,
            file_bytes=file_bytes(workload),
            request_bytes=size,
            seed=question.seed,
        )

    simulated = steady(demand, cluster(), ranks, question.seed)
    header = _HEADER if workload.header_requests is None else workload.header_requests
    begin = begin_s(cluster(), ranks, workload, header, question.cached)
    samples = workload.samples * demand.scale
    batches = workload.epoch_samples // max(1, round(samples * ranks))
    saved = workload.checkpoint
    save = part = None
    if saved is not None and (system.write_bytes_per_s or system.read_bytes_per_s):
        save = predicted_save(saved, system, ranks, question.seed)
        # Steps of an epoch are known where there is at least one.
        interval = saved.every_steps or saved.every_epochs * batches
        part = save.paused_s(interval * simulated.step_s) / interval if interval else None
    step = simulated.step_s + (part or 0.0)
    spent = simulated.step_s / step
    requested = workload.compute_ratio
    return Row(
        ranks=ranks,
        nodes=math.ceil(ranks / system.ranks_per_node),
        samples_per_s=simulated.batches_per_s * spent * samples,
        ideal_share=1.0,
        step_s=step,
        io_share=simulated.wait * spent + (part or 0.0) / step,
        compute_share=simulated.compute * spent,
        reduce_share=simulated.reduce * spent,
        au=None if requested is None else requested * simulated.compute * spent,
        begin_s=begin,
        epoch_s=begin + batches * step if batches else None,
        checkpoint_s=None if save is None else save.seconds,
        checkpoint=save,
        limited_by=_limit(simulated, spent),
        busy=simulated.busy,
        batches=simulated.events,
    )


def _demand(workload: RankWorkload, system: SystemConfig, question: Question, ranks: int) -> RankDemand:
    from dlio_torch.prediction.simulate import RankDemand

    scale = workload.ranks / ranks if workload.global_batch else 1.0
    stored = 1 - question.cached
    size = workload.bytes * scale * stored
    requests = workload.requests * scale * stored
    if workload.in_order and size:
        # Reading ahead joins what follows one another, up to a stripe.
        requests = min(requests, max(1.0, size / system.stripe_bytes))
    return RankDemand(
        workload=workload,
        scale=scale,
        size=size,
        requests=requests,
        opens=workload.opens * scale,
        reduce_s=_reduce_s(workload, system, ranks),
    )


def _reduce_s(workload: RankWorkload, system: SystemConfig, ranks: int) -> float:
    """Seconds of a ring allreduce: each rank sends 2 (n - 1) pieces, each 1/n of the gradient."""
    if ranks == 1 or not system.network_bytes_per_s:
        return 0.0
    moved = 2 * (ranks - 1) / ranks * workload.allreduce_bytes / system.network_bytes_per_s
    return moved + 2 * math.ceil(math.log2(ranks)) * system.network_latency_s


def _limit(simulated: Steady, spent: float) -> str:
    if simulated.compute * spent >= _COMPUTES:
        return "compute"
    name, busy = max(simulated.busy.items(), key=lambda item: item[1])
    if busy >= _BUSY:
        return name
    parts = {
        "compute": simulated.compute * spent,
        "the slowest rank": simulated.reduce * spent,
        "checkpoints": 1 - spent,
        "production of batches": simulated.wait * spent,
    }
    return max(parts, key=lambda part: parts[part])
