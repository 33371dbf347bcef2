"""Training of one rank: loaders, emulated compute, checkpoints and the trainer's loop, which a run measures."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import asdict, replace

import torch

from dlio_torch.analysis.collect import RankResult
from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.checkpointer import Checkpointer
from dlio_torch.checkpoint.position import SavedPositions
from dlio_torch.checkpoint.saves import is_saved
from dlio_torch.compute.calibrate import Calibration
from dlio_torch.compute.emulate import make_emulator
from dlio_torch.data.dataset.verification import check_counts
from dlio_torch.data.engines.assemble import Loaders, assemble
from dlio_torch.data.engines.decoupled.engine import mean_batch_bytes
from dlio_torch.data.engines.decoupled.reading_io import effective_io
from dlio_torch.data.engines.registry import facts
from dlio_torch.data.order.held_plan import fetched_by
from dlio_torch.data.order.pipe_plan import Plan
from dlio_torch.data.workers.placement import place_trainer
from dlio_torch.execution.cleanup import Cleanup
from dlio_torch.execution.context import RunContext
from dlio_torch.execution.elastic_position import AfterStep
from dlio_torch.execution.phase_results import PlannedRun, WrittenRun
from dlio_torch.execution.run_record import record_calls
from dlio_torch.execution.training_data import TrainingData
from dlio_torch.execution.watched_checkpointer import open_watched
from dlio_torch.formats.core.device_decoder import DeviceDecoder
from dlio_torch.iotrace.recorder.io_counters import IoCounters
from dlio_torch.iotrace.timeline.torch_profiler import ProfilerSession
from dlio_torch.report.checkpoint_plan_text import undue_line
from dlio_torch.run_directory.checkpoint_folder import checkpoint_folder
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.train.copy_stream import CopyStream
from dlio_torch.train.counters import tree_counters
from dlio_torch.train.decoded_copies import DecodedCopies
from dlio_torch.train.device_prefetch import DevicePrefetcher
from dlio_torch.train.live_rates import LiveRates
from dlio_torch.train.result import Seen, TrainResult
from dlio_torch.train.steps import StepLog
from dlio_torch.train.to_device import BatchesOnDevice, DeviceCopies, needs_gpu, use_gpu
from dlio_torch.train.trainer import Trainer
from dlio_torch.train.trainer_parts import Hooks, Instruments, LoopStart, Stages


def train_rank(
    context: RunContext, written: WrittenRun, data: TrainingData, calibration: Calibration, cleanup: Cleanup
) -> RankResult:
    """Train all epochs on this rank.

    Args:
        context: the run.
        written: run directory and data set.
        data: the files that this rank reads.
        calibration: calibration of the emulated compute.
        cleanup: closes what the training opens.

    Raises:
        DlioError: a batch cannot be read, or a file cannot be written.
    """
    planned, comm = written.planned, context.comm
    config = planned.prepared.config
    if config.trace.posix:
        record_calls(context, written.directory, config, [data.folder, written.checkpoints], cleanup)
    cleanup.closing(written.recorder)
    gpu = use_gpu(comm.local_rank) if needs_gpu(config) else None
    loaders, load_io = _open_loaders(context, written, data)
    cleanup.closing(loaders)
    cleanup.on_exit(place_trainer(planned.placement))
    start, after_step = _begin(context, planned, loaders)
    checkpointer = _open_checkpointer(context, written, cleanup)
    spin_tail_ns = calibration.spin_tail_ns
    emulator = cleanup.closing(
        make_emulator(config.compute, seed=config.seed, rank=comm.rank, spin_tail_ns=spin_tail_ns)
    )
    stages = Stages(loaders.train, loaders.eval, None, None, emulator, checkpointer)
    if gpu is not None and config.train.device == "cuda":
        decoder = context.format.device_decoder(gpu)
        if decoder is not None:
            stages = _with_decoding(stages, gpu, decoder)
        else:
            stages = _with_copies(stages, loaders, gpu, written, cleanup)
    hooks = Hooks(
        samples_seen=_sample_check(planned.order.train, start.first) if config.verify else None,
        before_epoch=data.epoch_preparation(config),
        after_step=after_step,
    )
    result = _run_loop(context, written, stages, start, hooks, cleanup)
    mpi_io = None
    if planned.mpi_ranks is not None:
        planned.mpi_ranks.close()  # a collective call, so it is left out after a failure
        mpi_io = asdict(planned.mpi_ranks.figures)
    staged = data.stager.done if data.stager is not None else []
    reads = facts(config.loader.engine).reads_ranges and config.loader.replay != "batches"
    loader_io = None
    if reads:
        loader_io = effective_io(config.loader, mean_batch_bytes(context.format, fetched_by(planned.order.train)))
    return RankResult(
        result, loaders.load_s, loaders.load_bytes, load_io, emulator.describe(), mpi_io, staged, loader_io
    )


def _with_decoding(stages: Stages, gpu: torch.device, decoder: DeviceDecoder) -> Stages:
    """The stages with copies of batches whose samples the GPU decodes, in their step."""
    copies = DecodedCopies(gpu, decoder)
    return replace(stages, copies=copies, eval_copies=copies, decoding=copies.times)


def _with_copies(stages: Stages, loaders: Loaders, gpu: torch.device, written: WrittenRun, cleanup: Cleanup) -> Stages:
    """The stages with copies of batches to the GPU: in their step, or ahead of it."""
    loader = written.planned.prepared.config.loader
    copies = DeviceCopies(gpu) if loader.read_to == "host" else BatchesOnDevice(gpu)
    stages = replace(stages, copies=copies, eval_copies=copies)
    depth = loader.prefetch_to_device
    if not depth:
        return stages
    ahead = cleanup.closing(DevicePrefetcher(loaders.train, CopyStream(gpu), depth, written.recorder))
    return replace(stages, loader=ahead, copies=ahead, copies_ahead=ahead.times)


def _open_loaders(context: RunContext, written: WrittenRun, data: TrainingData) -> tuple[Loaders, IoCounters | None]:
    """Open the loaders of this rank; returns them and the I/O of reading samples into memory, or ``None``."""
    planned = written.planned
    config = planned.prepared.config
    before = tree_counters(begins=True) if config.loader.in_memory else None
    settings, placement = context.watchdog_settings(written.directory.state), planned.placement
    loaders = assemble(
        config,
        context.format,
        data.manifests,
        planned.order,
        written.recorder,
        planned.mpi_ranks,
        settings,
        placement,
    )
    after = tree_counters() if before is not None else None
    return loaders, after - before if after is not None and before is not None else None


def _begin(context: RunContext, planned: PlannedRun, loaders: Loaders) -> tuple[LoopStart, AfterStep | None]:
    """Move the loader to the first step; returns that step and a function to call after each step."""
    checkpoint, resume = planned.prepared.config.checkpoint, planned.resume
    if resume is not None:
        epoch, step = resume.begin(planned.prepared.config)
        if 0 < step < len(loaders.train):
            loaders.train.begin_at(epoch - 1, step)
        evaluated = (resume.place.evaluations, resume.place.eval_steps)
        return LoopStart((epoch, step), evaluated, restore=True), None
    start = LoopStart(restore=checkpoint.restore)
    if context.elastic is None:
        return start, None
    first, after_step = context.elastic.begin(loaders.train, planned.order.train, context.comm.world_size)
    return replace(start, first=first), after_step


def _open_checkpointer(context: RunContext, written: WrittenRun, cleanup: Cleanup) -> Checkpointer:
    """The checkpointer of this rank, which goes on after the checkpoint of another run if one is resumed."""
    planned, directory, comm = written.planned, written.directory, context.comm
    config, resume = planned.prepared.config, planned.resume
    steps = len(planned.order.train)
    if not is_saved(config, steps):  # the state of a model would only take memory
        if config.checkpoint.layout != "none":
            context.note(undue_line(config, steps, context.composed.sources))
        return Checkpointer(config.checkpoint, written.checkpoints, None)
    return open_watched(
        context,
        SaverSetup(config, written.checkpoints, comm, written.recorder),
        cleanup,
        positions=SavedPositions(directory.position(comm.rank), planned.identity),
        restores=None if resume is None else (checkpoint_folder(RunDir(resume.run)), resume.checkpoint),
    )


def _run_loop(
    context: RunContext, written: WrittenRun, stages: Stages, start: LoopStart, hooks: Hooks, cleanup: Cleanup
) -> TrainResult:
    """Run the trainer's loop with its step log, profiler and progress lines."""
    config, directory, rank = written.planned.prepared.config, written.directory, context.comm.rank
    log = cleanup.closing(StepLog(directory.steps(rank), rank))
    profiler = ProfilerSession(
        directory.tensorboard,
        f"rank{rank}",
        warmup=config.train.warmup_steps,
        active=config.trace.profiler_steps,
        enabled=config.trace.profiler,
        rank=rank,
        events=directory.events if config.trace.spans else None,
    )
    rates = LiveRates(log, context.comm.world_size, emulates=config.compute.emulated)
    with context.progress.task("training", "steps", rates.text) as update:
        instruments = Instruments(log, written.recorder, profiler, update, written.planned.placement.usable)
        return Trainer(config.train, context.comm, stages, instruments, start, hooks).run()


def _sample_check(sampler: Plan, first: tuple[int, int]) -> Callable[[int, Seen], None]:
    """Check for ``verify``: in each epoch, every sample is delivered as often as the access pattern says.

    Args:
        sampler: the order of training samples.
        first: epoch that the run begins with, and its steps that were done before; these are not checked.
    """

    def check(epoch: int, came: Seen) -> None:
        before = first[1] if epoch == first[0] else 0
        check_counts(epoch, came, sampler.expected(epoch - 1, before))

    return check
