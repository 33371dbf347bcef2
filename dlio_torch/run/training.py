"""The training of a rank: page cache, loaders, emulator, checkpoints and trainer; what is measured is in here."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_torch.analysis.collect import RankResult
from dlio_torch.compute.calibrate import Calibration
from dlio_torch.compute.emulate import make_emulator
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset import manifest as layout
from dlio_torch.data.dataset.data_files import DataFiles
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.dataset.once import OnceFiles
from dlio_torch.data.dataset.verification import check_counts
from dlio_torch.data.engines.assemble import assemble
from dlio_torch.data.order.pipe_plan import Plan
from dlio_torch.report.cache_text import prepared_line
from dlio_torch.run.closing import closing
from dlio_torch.run.resume import identity
from dlio_torch.run.setting import Setting
from dlio_torch.run.stage import staged_files
from dlio_torch.rundir import RunDir
from dlio_torch.storage.cache_state import CacheKeeper
from dlio_torch.storage.local.cache_process import Outside
from dlio_torch.storage.staging import Stager
from dlio_torch.trace.posix.within import patterns, recording
from dlio_torch.trace.profiler import ProfilerSession
from dlio_torch.trace.spans import Recorder
from dlio_torch.train.checkpoint import Checkpointer
from dlio_torch.train.counters import tree_counters
from dlio_torch.train.position import Positions
from dlio_torch.train.result import Seen
from dlio_torch.train.steps import StepLog
from dlio_torch.train.to_device import DeviceCopies, needs_gpu, use_gpu
from dlio_torch.train.trainer import Trainer
from dlio_torch.train.trainer_parts import Hooks, Instruments, LoopStart, Stages

if TYPE_CHECKING:
    from dlio_torch.data.engines.mpiio.reading_ranks import Meeting


def prepare_cache(
    run: Setting, manifests: dict[str, Manifest], stager: Stager | None, stack: contextlib.ExitStack
) -> CacheKeeper:
    """Bring the page cache into the state that the run is to begin with."""
    cache = run.config.cache
    if stager is None:
        once = OnceFiles(run.config, run.format).paths
        files = DataFiles(run.format, manifests.values(), run.data_bytes, once)
    else:
        files = staged_files(stager, run.format, manifests)
    keeper = CacheKeeper(cache, files, run.comm)
    with run.vigil("the page cache to be looked at and prepared"):
        found = keeper.prepare(run.first_epoch)
    if run.first and cache.state != "as_is":
        print(prepared_line(cache.state, found, keeper.size), file=sys.stderr)
    if cache.every_epoch and run.config.trace.posix:
        # Started before the recording begins, so that what it does is not taken for the run's.
        outside = Outside()
        stack.enter_context(closing(outside.close))
        keeper.use(outside)
    return keeper


def train(
    run: Setting,
    directory: RunDir,
    manifests: dict[str, Manifest],
    recorder: Recorder,
    calibration: Calibration,
    keeper: CacheKeeper | None,
    stager: Stager | None,
    stack: contextlib.ExitStack,
    meeting: Meeting | None = None,
) -> RankResult:
    """The training of this rank; what must be closed afterwards is left on ``stack``."""
    config = run.config
    if config.trace.posix:
        data = config.dataset.path or layout.data_folder(config, run.format) if stager is None else stager.folder
        where: Sequence[Path | str] = config.trace.posix_paths or [data, directory.checkpoints]
        stack.enter_context(
            recording(
                directory.events,
                rank=run.comm.rank,
                include=patterns(where),
                limit_bytes=config.trace.posix_limit_bytes,
            )
        )
    stack.enter_context(closing(recorder.close))
    gpu = use_gpu(run.comm.local_rank) if needs_gpu(config) else None
    copies = DeviceCopies(gpu) if gpu is not None and config.train.device == "cuda" else None
    before = tree_counters(begins=True) if config.loader.in_memory else None
    ranks = (run.comm.rank, run.comm.world_size)
    loaders = assemble(config, run.format, manifests, recorder, *ranks, meeting, run.watch(directory.state))
    after = tree_counters() if before is not None else None
    load_io = after - before if after is not None and before is not None else None
    stack.enter_context(closing(loaders.close))
    first, after_step = (1, 0), None
    if run.position is not None:
        first, after_step = run.position.begin(loaders.train, loaders.sampler, run.comm.world_size)
    order, steps = str(loaders.train.state_dict()["pattern"]), len(loaders.train)
    mine, resumed = identity(config, run.format, run.comm.world_size, order, steps), run.resumed
    if resumed is not None:
        first = resumed.begins(config)
        if 0 < first[1] < steps:
            loaders.train.begin_at(first[0] - 1, first[1])
    # Saves are timed: what is to be done once is done here.
    saving = None
    if config.checkpoint.kind != "none":
        saving = stack.enter_context(run.vigil("a checkpoint to be written", outside=False))
        saving.inside = False
    checkpointer = Checkpointer(
        config.checkpoint,
        directory.checkpoints,
        run.comm.rank,
        recorder,
        saving,
        positions=Positions(directory.position(run.comm.rank), mine),
        restores=None if resumed is None else (RunDir(resumed.run).checkpoints, resumed.checkpoint),
    )
    stack.enter_context(closing(checkpointer.close))
    emulator = make_emulator(
        config.compute, seed=config.seed, rank=run.comm.rank, spin_tail_ns=calibration.spin_tail_ns
    )
    stack.enter_context(closing(emulator.close))
    log = StepLog(directory.steps(run.comm.rank), run.comm.rank)
    stack.enter_context(closing(log.close))
    profiler = ProfilerSession(
        directory.tensorboard,
        f"rank{run.comm.rank}",
        warmup=config.train.warmup_steps,
        active=config.trace.profiler_steps,
        enabled=config.trace.profiler,
        rank=run.comm.rank,
        events=directory.events if config.trace.spans else None,
    )
    with run.progress.task("training", "steps") as update:
        trainer = Trainer(
            config.train,
            run.comm,
            Stages(loaders.train, loaders.eval, copies, emulator, checkpointer),
            Instruments(log, recorder, profiler, update),
            LoopStart(
                first,
                evaluated=None if resumed is None else (resumed.place.evaluations, resumed.place.eval_steps),
                restore=config.checkpoint.restore or resumed is not None,
            ),
            Hooks(
                samples_seen=_counted(loaders.sampler, first) if config.verify else None,
                before_epoch=_before_epoch(config, keeper, stager),
                after_step=after_step,
            ),
        )
        result = trainer.run()
    if meeting is not None:  # the ranks close their files together: not where one has failed
        meeting.close()
    asked = None if meeting is None else asdict(meeting.figures)
    staged = stager.done if stager is not None else []
    return RankResult(result, loaders.load_s, loaders.load_bytes, load_io, emulator.describe(), asked, staged)


def _before_epoch(config: Config, keeper: CacheKeeper | None, stager: Stager | None) -> Callable[[int], object] | None:
    """What is done before each epoch but the first; nothing of it counts as time of the epoch."""
    steps: list[Callable[[int], object]] = []
    if stager is not None and config.stage.every_epoch:
        steps.append(stager.copy)
    if keeper is not None and config.cache.every_epoch:
        steps.append(keeper.prepare)

    def do(epoch: int) -> None:
        for step in steps:
            step(epoch)

    return do if steps else None


def _counted(sampler: Plan, first: tuple[int, int]) -> Callable[[int, Seen], None]:
    """With ``verify``: asks at the end of an epoch whether each sample came as often as the access pattern says.

    Of an epoch that goes on in its middle, these are the samples of the steps that were left.
    """

    def check(epoch: int, came: Seen) -> None:
        before = first[1] if epoch == first[0] else 0
        check_counts(epoch, came, sampler.expected(epoch - 1, before))

    return check
