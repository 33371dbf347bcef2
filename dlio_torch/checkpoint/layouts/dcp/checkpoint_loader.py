"""Loads of checkpoints by ``torch.distributed.checkpoint``, by as many ranks as saved them or by others."""

from __future__ import annotations

import contextlib
import logging
import pickle
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch.distributed as dist
from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.filesystem import FileSystemReader
from torch.distributed.checkpoint.metadata import Metadata
from torch.distributed.checkpoint.planner import LoadPlan, LoadPlanner
from torch.distributed.checkpoint.state_dict_loader import load
from torch.futures import Future

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.layouts.dcp.job_state import saved_state, state_device
from dlio_torch.checkpoint.layouts.dcp.load_planner import JobLoadPlanner
from dlio_torch.checkpoint.layouts.dcp.part_times import PartTimes, seconds
from dlio_torch.checkpoint.layouts.dcp.rank_files import folder_of, metadata_path
from dlio_torch.checkpoint.layouts.dcp.save_errors import cause
from dlio_torch.checkpoint.layouts.dcp.timed_files import TimedFileSystem
from dlio_torch.checkpoint.save_times import RestoreTimes
from dlio_torch.config.schema import Config
from dlio_torch.config.schema_model import ParallelConfig
from dlio_torch.errors import DataError, DlioError
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.syserrors import reason, unreadable

_DAMAGED = (
    OSError,
    RuntimeError,
    ValueError,
    KeyError,
    TypeError,
    AttributeError,
    AssertionError,
    EOFError,
    ImportError,
    IndexError,
    pickle.UnpicklingError,
)
_HINT = "start without train.resume and checkpoint.restore"


class JobReader(FileSystemReader):
    """``FileSystemReader`` of a rank, whose errors name the file.

    Args:
        folder: of the checkpoint.
        described: the description that this rank reads.
        times: gets the times of reading.
        recorder: records a span ``read`` for each file.
    """

    def __init__(self, folder: Path, described: Path, times: PartTimes, recorder: Recorder) -> None:
        super().__init__(folder)
        self.fs: Any = TimedFileSystem(times, recorder)
        self._described = described
        self._times = times
        self.failure: DlioError | None = None
        """Error of the description, which the library replaces by its own."""

    def read_metadata(self, *args: Any, **kwargs: Any) -> Metadata:
        """Read the description."""
        start = time.perf_counter_ns()
        number = self._described.name.removeprefix("__").partition(".")[0]
        try:
            metadata = super().read_metadata(**({"rank": int(number)} if number else {}))
            metadata.state_dict_metadata, metadata.storage_data  # noqa: B018
        except _DAMAGED as error:
            self.failure = _damaged(self._described, error)
            raise self.failure from error
        self._times.metadata_ns = time.perf_counter_ns() - start
        return metadata

    def read_data(self, plan: LoadPlan, planner: LoadPlanner) -> Future[None]:
        """Read this rank's tensors."""
        start = time.perf_counter_ns()
        try:
            done = super().read_data(plan, planner)
        except _DAMAGED as error:
            raise _damaged(Path(self.fs.reading or self.path), error) from error
        self._times.add_data(time.perf_counter_ns() - start)
        return done


class CheckpointLoader:
    """Loads checkpoints into new tensors, and verifies each of them.

    Args:
        setup: settings of the saver.
        group: ranks that load; None: the default group.
        readers: their number, the first ranks.
    """

    def __init__(self, setup: SaverSetup, group: dist.ProcessGroup | None, readers: int) -> None:
        self._setup, self._group, self._rank = setup, group, setup.comm.rank
        self._reads = self._rank < readers

    def load(self, directory: Path, step: int) -> RestoreTimes:
        """Load the checkpoint of a step; a rank that does not load returns at once.

        Args:
            directory: folder of the checkpoints.
            step: its step.

        Raises:
            DataError: a file is missing or damaged, or the checkpoint is of another model.
        """
        if not self._reads:
            return RestoreTimes(0.0, 0)
        config, folder, times = self._setup.config, folder_of(directory, step), PartTimes()
        described = metadata_path(folder, self._rank, collectives=config.checkpoint.use_collectives)
        size = _metadata_size(described)
        parallel = reading_ranks(config)
        part, device = config.checkpoint.restore_part, state_device(config.checkpoint)
        state = saved_state(config, parallel, self._rank, device=device, part=part)
        reader = JobReader(folder, described, times, self._setup.recorder)
        planner = JobLoadPlanner(times, counts_steps=not config.checkpoint.tensors)
        start = time.perf_counter_ns()
        try:
            with _quiet():
                load(state, storage_reader=reader, planner=planner, process_group=self._group)
        except (*_DAMAGED, DlioError, CheckpointException) as error:
            raise reader.failure or _refused(folder, cause(error, self._rank)) from error
        spent = time.perf_counter_ns() - start
        self._verify(planner, folder, step)
        return _restore_times(times, spent, planner.read_bytes + size)

    def _verify(self, planner: JobLoadPlanner, folder: Path, step: int) -> None:
        for text, file in planner.differences(self._setup.config.seed, step):
            path = folder / file if file else folder
            raise DataError(
                f"checkpoint file {path} of step {step} is damaged: {text}",
                hint=f"{_HINT}, or set the seed of the run that saved it",
            )


def reading_ranks(config: Config) -> ParallelConfig:
    """Ranks of the job that loads: as described, or with as many data-parallel ranks as ``restore_ranks`` leaves."""
    parallel, ranks = config.parallel, config.checkpoint.restore_ranks
    if not ranks:
        return parallel
    data = ranks // (parallel.tensor * parallel.pipeline)
    if parallel.fsdp == "hybrid" and data % parallel.fsdp_ranks:
        return replace(parallel, data=data, fsdp="full", fsdp_ranks=0)
    return replace(parallel, data=data)


def _restore_times(times: PartTimes, spent: int, size: int) -> RestoreTimes:
    read = None if times.data_ns is None else times.data_ns - times.copy_ns
    return RestoreTimes(
        spent / 1e9,
        size,
        metadata_s=seconds(times.metadata_ns),
        plan_s=seconds(times.plan_ns),
        read_s=seconds(read),
        copy_s=seconds(times.copy_ns),
    )


def _metadata_size(described: Path) -> int:
    try:
        return described.stat().st_size
    except FileNotFoundError as error:
        if not described.parent.is_dir():
            raise DataError(f"there is no checkpoint {described.parent}", hint=_HINT) from error
        raise DataError(
            f"checkpoint {described.parent} is incomplete: {described.name} is missing", hint=_HINT
        ) from error
    except OSError as error:
        raise unreadable(f"checkpoint file {described}", error) from error


def _damaged(path: Path, error: BaseException) -> DlioError:
    if isinstance(error, OSError):
        return unreadable(f"checkpoint file {path}", error)
    lines = reason(error).split(" Exception raised from ")
    return DataError(f"checkpoint file {path} is damaged: {lines[0]}", hint=_HINT)


def _refused(folder: Path, error: BaseException) -> DlioError:
    """The error of a load that failed; what the planner raises means that names or shapes do not agree."""
    if isinstance(error, DlioError):
        return error
    return DataError(f"checkpoint {folder} is of another model: {reason(error)}", hint=_HINT)


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Keep torch from printing a traceback about a description that it cannot read, which becomes an error."""

    def is_other(record: logging.LogRecord) -> bool:
        return record.module != "state_dict_loader"

    root = logging.getLogger()
    root.addFilter(is_other)
    try:
        yield
    finally:
        root.removeFilter(is_other)
