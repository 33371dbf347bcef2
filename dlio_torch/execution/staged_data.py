"""Staged data: copies on node-local storage, made before the training and removed after it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.data_files import StagedFiles
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.order.files_read import files_read
from dlio_torch.data.order.pipe_plan import Plan
from dlio_torch.dist.base import Communicator
from dlio_torch.execution.cleanup import Cleanup
from dlio_torch.execution.context import RunContext
from dlio_torch.execution.phase_results import WrittenRun
from dlio_torch.formats.core.format import Format
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.preflight.staging_folder import check_staging_folder
from dlio_torch.report.stage_text import stage_line
from dlio_torch.storage.staging import Sources, Stager


def stage_data(context: RunContext, written: WrittenRun, cleanup: Cleanup) -> Stager | None:
    """Copy the files of the first epoch to node-local storage; ``None`` without ``stage.dir``.

    The copies are removed at the end of ``cleanup``: by all ranks together after a success, at once after a failure.

    Raises:
        DlioError: a file cannot be copied.
    """
    planned = written.planned
    config, manifests = planned.prepared.config, planned.prepared.manifests
    if config.stage.dir is None:
        return None
    stager = make_stager(config, context.format, manifests, context.comm, written.recorder, planned.order.train)
    cleanup.on_exit(stager.close, after_failure=stager.remove)
    with context.watchdog(f"the copies in {stager.folder}"):
        ranks = context.comm.gather_objects(stager.copy(planned.first_epoch))
    if ranks is not None:
        context.note(stage_line(ranks))
    return stager


def make_stager(
    config: Config,
    fmt: Format,
    manifests: Mapping[str, Manifest],
    comm: Communicator,
    recorder: Recorder,
    sampler: Plan | None = None,
) -> Stager:
    """Returns the stager of a data set, which copies the files that ranks read.

    Args:
        config: the experiment, with ``stage.dir``.
        fmt: format of the data.
        manifests: files of the data set, by split.
        comm: the ranks, all of which call this.
        recorder: takes a span ``stage`` for each copied file.
        sampler: the order of this rank's training samples, if it is planned already.

    Raises:
        ConfigError: see :func:`~dlio_torch.preflight.staging_folder.check_staging_folder`.
        PreconditionError: the folder cannot be written.
    """
    check_staging_folder(config, fmt, manifests)
    plans = {} if sampler is None else {comm.rank: sampler}

    def read_by(ranks: Sequence[int], epochs: range) -> Iterator[tuple[Path, Path]]:
        for manifest, mask in files_read(config, fmt, manifests, ranks, comm.world_size, epochs, plans):
            for file in mask.nonzero()[0].tolist():
                for source in fmt.files(manifest.path(file)):
                    yield source.relative_to(manifest.folder), source

    def record(source: Path, begin_ns: int, end_ns: int, size: int) -> None:
        recorder.add("stage", begin_ns, end_ns, file=str(source), bytes=size)

    folders = [manifest.folder for manifest in manifests.values()]
    sources = Sources(config.recipe, manifests["train"].folder, folders, config.train.epochs, read_by)
    return Stager(config.stage, sources, comm, record)


def staged_manifests(stager: Stager, manifests: Mapping[str, Manifest]) -> dict[str, Manifest]:
    """Manifests of the copies that this rank reads, by split; two splits may share one manifest."""
    moved = {id(manifest): manifest.moved(stager.rank_folder) for manifest in manifests.values()}
    return {split: moved[id(manifest)] for split, manifest in manifests.items()}


def staged_files(stager: Stager, fmt: Format, manifests: Mapping[str, Manifest]) -> StagedFiles:
    """Staged copies whose page cache this rank prepares.

    Args:
        stager: made the copies.
        fmt: format of the data.
        manifests: manifests of the copies, by split.
    """
    return StagedFiles(fmt, manifests.values(), stager.bytes, stager.share)
