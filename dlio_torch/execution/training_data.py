"""Data of a training as one rank reads it: original files or staged copies, with their page cache prepared."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import CacheGoal, Config
from dlio_torch.data.dataset.data_files import DataFiles
from dlio_torch.data.dataset.manifest import Manifest, data_folder
from dlio_torch.data.dataset.once import OnceFiles
from dlio_torch.execution.cleanup import Cleanup
from dlio_torch.execution.context import RunContext
from dlio_torch.execution.phase_results import WrittenRun
from dlio_torch.execution.staged_data import staged_files, staged_manifests
from dlio_torch.report.cache_text import prepared_line
from dlio_torch.storage.cache_state import CachedFiles, CacheKeeper
from dlio_torch.storage.local.cache_process import CacheProcess
from dlio_torch.storage.local.eviction import MEMORY_FILE_SYSTEMS
from dlio_torch.storage.staging import Stager


@dataclass(frozen=True)
class TrainingData:
    """Files that one rank reads.

    Attributes:
        manifests: the files by split; copies if the data are staged.
        folder: folder or file of the data, or the folder of the copies.
        stager: makes the copies; ``None`` without ``stage.dir``.
        cache: prepares the page cache; ``None`` for data without files.
    """

    manifests: Mapping[str, Manifest]
    folder: Path
    stager: Stager | None
    cache: CacheKeeper | None

    def epoch_preparation(self, config: Config) -> Callable[[int], object] | None:
        """Work before each later epoch (staging, page cache), called with its number from 1; ``None`` if there is none.

        Its duration is no part of an epoch.
        """
        steps: list[Callable[[int], object]] = []
        if self.stager is not None and config.stage.every_epoch:
            steps.append(self.stager.copy)
        if self.cache is not None and config.cache.every_epoch:
            steps.append(self.cache.prepare)

        def prepare(epoch: int) -> None:
            for step in steps:
                step(epoch)

        return prepare if steps else None


def open_training_data(
    context: RunContext, written: WrittenRun, stager: Stager | None, cleanup: Cleanup
) -> TrainingData:
    """Choose the files that this rank reads, and prepare their page cache.

    Args:
        context: the run.
        written: run directory and data set.
        stager: made copies of the data; ``None`` without ``stage.dir``.
        cleanup: ends the process that prepares the page cache later.
    """
    prepared, fmt = written.planned.prepared, context.format
    config = prepared.config
    if stager is None:
        manifests, folder = prepared.manifests, Path(config.dataset.path or data_folder(config, fmt))
    else:
        manifests, folder = staged_manifests(stager, prepared.manifests), stager.folder
    if not fmt.needs_files:
        return TrainingData(manifests, folder, stager, None)
    files: CachedFiles
    if stager is None:
        files = DataFiles(fmt, manifests.values(), written.data_bytes, OnceFiles(config, fmt).paths)
    else:
        files = staged_files(stager, fmt, manifests)
    goal = context.comm.broadcast_object(_cache_goal(config, written.mount))
    cache = prepare_cache(context, config, goal, files, written.planned.first_epoch, cleanup)
    return TrainingData(manifests, folder, stager, cache)


def _cache_goal(config: Config, mount: Mapping[str, Any]) -> CacheGoal:
    # Their page cache is the only copy, so nothing can be evicted.  Only rank 0 knows the mount.
    in_memory = mount.get("file_system") in MEMORY_FILE_SYSTEMS
    return "as_is" if in_memory and config.cache.state == "auto" else config.cache_goal


def prepare_cache(
    context: RunContext, config: Config, goal: CacheGoal, files: CachedFiles, epoch: int, cleanup: Cleanup
) -> CacheKeeper:
    """Bring the data into a state of the page cache, before the first epoch.

    Args:
        context: the run.
        config: the experiment.
        goal: the state.
        files: the files to prepare.
        epoch: the first epoch, from 1.
        cleanup: ends the process that prepares the page cache before later epochs.
    """
    keeper = CacheKeeper(goal, files, context.comm)
    with context.watchdog("the page cache to be measured and prepared"):
        state = keeper.prepare(epoch)
    if context.is_rank_zero and goal != "as_is":
        line = prepared_line(goal, state, keeper.size)
        if state.reached:
            context.note(line)
        else:
            print(line, file=sys.stderr)
    if config.cache.every_epoch and config.trace.posix:
        # It starts before the recording of calls, which would otherwise take its calls for the run's.
        keeper.use(cleanup.closing(CacheProcess()))
    return keeper
