"""Saver of the layout ``dcp``."""

from __future__ import annotations

import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from torch.distributed.checkpoint.api import CheckpointException
from torch.distributed.checkpoint.state_dict_saver import save

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.layouts.dcp import rank_files
from dlio_torch.checkpoint.layouts.dcp.background import RunningSave, announce_host, start_save
from dlio_torch.checkpoint.layouts.dcp.checkpoint_loader import CheckpointLoader
from dlio_torch.checkpoint.layouts.dcp.job_planner import JobSavePlanner, LaunchedRanks
from dlio_torch.checkpoint.layouts.dcp.job_state import saved_state, set_step, state_device
from dlio_torch.checkpoint.layouts.dcp.job_writer import JobWriter
from dlio_torch.checkpoint.layouts.dcp.layout import DcpLayout
from dlio_torch.checkpoint.layouts.dcp.part_times import PartTimes, seconds
from dlio_torch.checkpoint.layouts.dcp.save_errors import save_error
from dlio_torch.checkpoint.layouts.dcp.save_process import SaveProcess, ignore_existing_checkpoints
from dlio_torch.checkpoint.layouts.dcp.timed_files import TimedFileSystem
from dlio_torch.checkpoint.layouts.process_groups import SaveGroups
from dlio_torch.checkpoint.save_times import RestoreTimes, SaveTimes
from dlio_torch.environment.private_names import checkpoint_process_id, forget_save_plans
from dlio_torch.errors import DlioError, PreconditionError

_ERRORS = (OSError, RuntimeError, ValueError, AssertionError, CheckpointException)


class DcpSaver:
    """Saves the state of a rank of the described job, or listed tensors, by ``torch.distributed.checkpoint``.

    A save in the background is awaited before the next one begins, as in torchtitan; the training stands still
    meanwhile.

    Args:
        setup: settings of the saver.

    Raises:
        PreconditionError: the state does not fit into memory.
        RunFailed: the ranks cannot connect.
    """

    def __init__(self, setup: SaverSetup) -> None:
        config, options = setup.config, setup.config.checkpoint
        self._options, self._setup, self._rank = options, setup, setup.comm.rank
        readers = options.restore_ranks or setup.comm.world_size
        background = options.async_save != "none"
        self._groups = SaveGroups(setup.comm, config.dist.timeout_s, background=background, readers=readers)
        self._take_back = announce_host(self._groups.address)
        self._ranks = None
        if options.use_collectives and not options.tensors:
            self._ranks = LaunchedRanks(config.model, config.parallel, setup.comm.world_size)
            self._prepare_plans(self._ranks)
        self._state = _make_state(setup)
        self._loader = CheckpointLoader(setup, self._groups.load, readers)
        self._running: RunningSave | None = None
        self._finished: list[SaveTimes] = []
        self._process = SaveProcess() if options.async_save == "process" else None
        self._has_failed = False
        ignore_existing_checkpoints()

    def begin(self) -> int:
        """Write nothing."""
        return 0

    def save(self, step: int, kept: Sequence[int], surplus: Sequence[int], *, fsync: bool) -> None:
        start = time.perf_counter_ns()
        self.wait()
        if not self._options.tensors:
            set_step(self._state, step)
        running = RunningSave(step, start, fsync or self._options.sync_files, PartTimes())
        arguments = self._arguments(running)
        try:
            if self._options.async_save == "none":
                save(self._state, **arguments)
                running.end()
            else:
                running.follow(start_save(self._options, running.parts, self._state, **arguments))
        except _ERRORS as error:
            raise self._failed(step, error) from error
        running.stall_ns = time.perf_counter_ns() - start
        self._running = running
        self._take_ended()

    def finished(self) -> list[SaveTimes]:
        self._take_ended()
        saves, self._finished = self._finished, []
        return saves

    def wait(self) -> None:
        if self._running is not None:
            self._running.ended.wait()
            self._take_ended()

    def processes(self) -> Sequence[int]:
        """PyTorch's process for saves, once the first save has started it."""
        pid = checkpoint_process_id() if self._process is not None else None
        return () if pid is None else (pid,)

    def discard(self, step: int) -> None:
        rank_files.delete(self._folder(step), self._rank)

    def drop_cached_pages(self, step: int) -> None:
        rank_files.drop_cached_pages(self._folder(step), self._rank)

    def restore(self, directory: Path, step: int) -> RestoreTimes:
        return self._loader.load(directory, step)

    def close(self) -> None:
        """Leave the process groups, and end PyTorch's checkpoint process; a save that a thread runs is left alone."""
        self._take_back()
        if self._process is not None:
            self._process.end(in_save=self._running is not None or self._has_failed)
        if self._running is None:
            forget_save_plans(JobSavePlanner)
            self._groups.close()

    def _folder(self, step: int) -> Path:
        return rank_files.folder_of(self._setup.directory, step)

    def _prepare_plans(self, ranks: LaunchedRanks) -> None:
        """Make the plans and entries of ranks without a process on the coordinator, outside of timed parts."""
        forget_save_plans(JobSavePlanner)
        if self._rank == 0 and self._options.async_save != "process":
            ranks.absent_results()

    def _arguments(self, running: RunningSave) -> dict[str, Any]:
        """Planner, writer and group of a save."""
        options, parts = self._options, running.parts
        planner = JobSavePlanner(self._ranks, parts, **({"enable_plan_caching": True} if options.plan_cache else {}))
        writer = JobWriter(
            self._folder(running.step),
            self._ranks,
            parts,
            single_file_per_rank=options.single_file_per_rank,
            sync_files=running.flushes,
            thread_count=options.thread_count,
        )
        writer.fs = TimedFileSystem(parts, self._setup.recorder, running.step)
        arguments = {"planner": planner, "storage_writer": writer, "process_group": self._groups.save}
        return arguments if options.use_collectives else {**arguments, "use_collectives": False}

    def _take_ended(self) -> None:
        """Take the times of the save that runs, if it has ended.

        Raises:
            DlioError: it failed.
        """
        running = self._running
        if running is None or not running.ended.is_set():
            return
        self._running = None
        if self._process is not None:
            self._process.take_times(running.parts)
        error = None if running.future is None else running.future.exception()
        if error is not None:
            raise self._failed(running.step, error) from error
        self._finished.append(self._times(running))

    def _times(self, running: RunningSave) -> SaveTimes:
        parts, data = running.parts, running.parts.data_ns
        # A process that PyTorch starts otherwise than we know tells nothing.
        size = rank_files.saved_size(self._folder(running.step), self._rank) if data is None else sum(parts.file_bytes)
        flushed = parts.slowest_flush_ns if running.flushes and data is not None else None
        return SaveTimes(
            running.step,
            running.start_ns,
            stall_s=running.stall_ns / 1e9,
            durable_s=(running.end_ns - running.start_ns) / 1e9,
            bytes=size,
            plan_s=seconds(parts.plan_ns),
            stage_s=seconds(parts.stage_ns),
            write_s=seconds(None if data is None else data - (flushed or 0)),
            fsync_s=seconds(flushed),
        )

    def _failed(self, step: int, error: BaseException) -> DlioError:
        """The error of a save that failed, whose files are deleted."""
        self._has_failed = True
        folder = self._folder(step)
        size = DcpLayout().saved_bytes(self._setup.config, self._rank)
        failure = save_error(folder, size, error, self._rank)
        rank_files.delete(folder, self._rank)
        return failure


def _make_state(setup: SaverSetup) -> dict[str, Any]:
    config = setup.config
    device = state_device(config.checkpoint)
    try:
        return saved_state(config, config.parallel, setup.comm.rank, device=device, seed=config.seed)
    except (MemoryError, RuntimeError) as error:
        raise PreconditionError(
            f"the state of rank {setup.comm.rank} does not fit into memory: {str(error).splitlines()[0]}",
            hint="choose a smaller scale, or lower model.num_layers",
        ) from error
