"""Run of the verb ``checkpoint`` from top to bottom: every rank saves, then reads back, without training.

Phases::

    check     folder, memory and disk space; nothing is written
    write     run directory
    save      all saves, one after the other, each flushed; ranks begin each one together
    load      loads, each after the checkpoints were dropped from the page cache
    report    summary of all ranks, on rank 0
"""

from __future__ import annotations

import socket
from pathlib import Path

from dlio_torch.analysis.standalone_checkpoints import ColdLoad, RankCheckpoints
from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.checkpointer import Checkpointer
from dlio_torch.checkpoint.save_times import RestoreTimes
from dlio_torch.checkpoint.saved_files import SavedFiles
from dlio_torch.dist.base import Communicator
from dlio_torch.dist.hvd_settings import is_elastic
from dlio_torch.dist.registry import connect
from dlio_torch.environment.mounts import describe_mount
from dlio_torch.errors import ConfigError
from dlio_torch.execution.checkpoint_results import write_checkpoint_results
from dlio_torch.execution.cleanup import Cleanup
from dlio_torch.execution.context import RunContext
from dlio_torch.execution.outcome import RunOutcome
from dlio_torch.execution.run_record import make_run_directory, open_recorder, record_calls
from dlio_torch.execution.watched_checkpointer import open_watched
from dlio_torch.iotrace.recorder.io_counters import io_counters
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.preflight.checkpoint_plan import CheckpointPlan
from dlio_torch.preflight.rank_agreement import check_ranks_agree
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.storage.cache_state import CacheKeeper
from dlio_torch.storage.local.cache_process import CacheProcess, CacheWorker, InProcess
from dlio_torch.storage.local.eviction import MEMORY_FILE_SYSTEMS
from dlio_torch.supervision.crashes import report_crashes


def run_checkpoints(plan: CheckpointPlan) -> int:
    """Save and read back with all ranks; returns the exit code.

    Raises:
        DlioError: a checkpoint cannot be written or read; the exit code is the same on every rank.
    """
    if is_elastic():
        raise ConfigError(
            "checkpoint (command line): ranks that join and leave cannot save together",
            hint="start horovodrun without --min-np and --max-np",
        )
    comm = connect(plan.config.dist)
    outcome = RunOutcome(comm)
    with outcome.failures():
        _check_agreement(plan, comm)
        context = RunContext.create(plan.composed, comm, outcome)
        report_crashes(context.line_prefix)
        _check(context, plan)
        _run(context, plan)
    outcome.finish(0)
    comm.close()
    return 0


def _check_agreement(plan: CheckpointPlan, comm: Communicator) -> None:
    check_ranks_agree(plan.config, comm)
    first = comm.broadcast_object((plan.saves, plan.loads))
    if first != (plan.saves, plan.loads):
        raise ConfigError(
            f"rank {comm.rank} was started with saves={plan.saves} loads={plan.loads}, rank 0 with saves={first[0]} "
            f"loads={first[1]}",
            hint="start all ranks with the same arguments",
        )
    comm.barrier()  # rank 0 has nothing to compare


def _check(context: RunContext, plan: CheckpointPlan) -> None:
    """Refuse what this machine cannot do, before anything is written."""
    context.announce()
    for line in plan.amounts():
        context.note(line)
    comm = context.comm
    hosts = comm.broadcast_object(comm.gather_objects(socket.gethostname()))
    assert hosts is not None  # the root has them
    for problem in plan.problems(tuple(rank for rank, host in enumerate(hosts) if host == hosts[comm.rank])):
        raise problem
    comm.barrier()  # no run directory is made if a rank refuses


def _run(context: RunContext, plan: CheckpointPlan) -> None:
    config, comm = plan.config, context.comm
    directory, folder, _ = make_run_directory(context, config)
    recorder = open_recorder(directory, config, comm.rank)
    with Cleanup() as cleanup:
        worker = _open_worker(context, plan, directory, folder, cleanup)
        cleanup.closing(recorder)
        checkpointer = open_watched(context, SaverSetup(config, folder, comm, recorder), cleanup)
        _save_all(context, plan, checkpointer, recorder)
        restores, device_bytes, loads = _load_all(context, plan, folder, checkpointer, recorder, worker)
    saves, start_bytes = checkpointer.times, checkpointer.start_bytes
    result = RankCheckpoints(saves, restores, start_bytes, device_bytes, checkpointer.peak_bytes)
    ranks = comm.gather_objects(result)
    if ranks is not None:
        with context.watchdog("the results to be written"):
            write_checkpoint_results(context, plan, directory, folder, ranks, loads)


def _open_worker(
    context: RunContext, plan: CheckpointPlan, directory: RunDir, folder: Path, cleanup: Cleanup
) -> CacheWorker:
    """Starts the recording of I/O calls if it is requested; returns a worker whose own calls are not recorded."""
    if not plan.config.trace.posix:
        return InProcess()
    worker = cleanup.closing(CacheProcess())
    record_calls(context, directory, plan.config, [folder], cleanup)
    return worker


def _save_all(context: RunContext, plan: CheckpointPlan, checkpointer: Checkpointer, recorder: Recorder) -> None:
    """Save all checkpoints; returns when those of all ranks are complete and flushed."""
    checkpointer.begin(0)
    with context.progress.task("saving", "saves") as update:
        for step in range(1, plan.saves + 1):
            context.comm.barrier()
            with recorder.span("checkpoint", step=step):
                checkpointer.save(step)
                checkpointer.wait()
            update(step, plan.saves)
    context.comm.barrier()


def _load_all(
    context: RunContext,
    plan: CheckpointPlan,
    folder: Path,
    checkpointer: Checkpointer,
    recorder: Recorder,
    worker: CacheWorker,
) -> tuple[list[RestoreTimes], list[int | None], list[ColdLoad]]:
    """Read checkpoints, each time with none of them in the page cache.

    Returns:
        Times of this rank, bytes that the device delivered to it, and the state of the page cache before each load.
    """
    restores: list[RestoreTimes] = []
    device_bytes: list[int | None] = []
    loads: list[ColdLoad] = []
    if not plan.loads:
        return restores, device_bytes, loads
    keeper = _keeper(context, folder, worker)
    with context.progress.task("loading", "loads") as update:
        for number, step in enumerate(plan.loaded, 1):
            with context.watchdog("checkpoints to be dropped from the page cache"):
                loads.append(ColdLoad(step, keeper.prepare(number), keeper.file_shares()))
            context.comm.barrier()
            before = io_counters()
            with context.watchdog("a checkpoint to be read"), recorder.span("restore", step=step):
                times = checkpointer.read(step)
            after = io_counters()
            restores += [] if times is None else [times]
            device_bytes.append(None if before is None or after is None else (after - before).read_bytes)
            update(number, plan.loads)
    return restores, device_bytes, loads


def _keeper(context: RunContext, folder: Path, worker: CacheWorker) -> CacheKeeper:
    """Drops checkpoints from the page cache; in a file system that is itself memory, it measures only."""
    in_memory = describe_mount("", folder, {})["file_system"] in MEMORY_FILE_SYSTEMS
    goal = context.comm.broadcast_object("as_is" if in_memory else "cold")
    return CacheKeeper("as_is" if goal == "as_is" else "cold", SavedFiles(folder), context.comm, worker)
