"""Results of a run's phases; each contains the result of the phase before."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.generation import Generated
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.run_directory.run_dir import RunDir

if TYPE_CHECKING:  # they import torch, which generating data does not need
    from dlio_torch.analysis.collect import RankResult
    from dlio_torch.checkpoint.position import RunIdentity
    from dlio_torch.compute.calibrate import Calibration
    from dlio_torch.data.engines.mpiio.reading_ranks import Meeting
    from dlio_torch.data.order.planning import RankOrder
    from dlio_torch.data.workers.placement import Placement
    from dlio_torch.execution.resume import ResumePoint
    from dlio_torch.storage.cache_state import CacheKeeper


@dataclass(frozen=True)
class PreparedRun:
    """Result of ``prepare``: the data set is located, and the configuration fits the data set.

    Attributes:
        config: the configuration, its steps limited to those that existing data give.
        manifests: files of the data set, by split.
        data_bytes: size of all files; 0 for files that are still to be generated.
        details: content of the first file of existing data; ``None`` for generated data.
    """

    config: Config
    manifests: Mapping[str, Manifest]
    data_bytes: int
    details: Mapping[str, Any] | None


@dataclass(frozen=True)
class PlannedRun:
    """Result of ``plan``: the order of samples is planned, all preflight checks have passed, and no file is written.

    Attributes:
        prepared: the located data set.
        order: the order in which this rank reads samples.
        identity: identity of this order; checkpoints store it, and a run that resumes them must have the same.
        resume: checkpoint of another run after which this one goes on; ``None`` without ``train.resume``.
        mpi_ranks: the ranks that read by MPI-IO; ``None`` for POSIX calls.
        placement: CPUs of this rank's workers, reader threads and trainer.
    """

    prepared: PreparedRun
    order: RankOrder
    identity: RunIdentity
    resume: ResumePoint | None
    mpi_ranks: Meeting | None
    placement: Placement

    @property
    def first_epoch(self) -> int:
        """First epoch of the training, counted from 1."""
        return 1 if self.resume is None else self.resume.begin(self.prepared.config)[0]


@dataclass(frozen=True)
class WrittenRun:
    """Result of ``write``: run directory and data set exist.

    Attributes:
        planned: the planned run.
        directory: the run directory.
        checkpoints: folder of the checkpoints.
        mount: file system of the data, on rank 0; empty elsewhere.
        recorder: records the spans of this rank.
        generated: amount of data that was generated; ``None`` if the run only trains, or the data need no files.
    """

    planned: PlannedRun
    directory: RunDir
    checkpoints: Path
    mount: Mapping[str, Any]
    recorder: Recorder
    generated: Generated | None

    @property
    def data_bytes(self) -> int:
        """Size of all files of the data set."""
        return self.planned.prepared.data_bytes if self.generated is None else self.generated.data_bytes


@dataclass(frozen=True)
class TrainedRun:
    """Result of ``train``: all ranks have trained.

    Attributes:
        written: run directory and data set.
        ranks: results of all ranks on rank 0, ``None`` elsewhere.
        cache: page cache of the data before each epoch; ``None`` for data without files.
        calibration: calibration of the emulated compute.
    """

    written: WrittenRun
    ranks: list[RankResult] | None
    cache: CacheKeeper | None
    calibration: Calibration
