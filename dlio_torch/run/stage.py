"""Staging of the data: copies on node-local storage, made before the training and removed after it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.data_files import StagedFiles
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.order.files_read import files_read
from dlio_torch.dist.base import Communicator
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.format import Format
from dlio_torch.report.stage_text import stage_line
from dlio_torch.run.setting import Setting
from dlio_torch.storage.stage_folder import check_node_folder
from dlio_torch.storage.staging import Sources, Stager
from dlio_torch.trace.spans import Recorder


def check_staging(config: Config, fmt: Format, manifests: dict[str, Manifest]) -> None:
    """Raise where the data cannot be copied to ``stage.dir``, which must be set.

    Raises:
        ConfigError: the data lie in no files, or see :func:`~dlio_torch.storage.stage_folder.check_node_folder`.
    """
    folder = config.stage.dir
    assert folder is not None
    if not fmt.needs_files:
        raise ConfigError(
            f"stage.dir={folder}: dataset.format={config.dataset.format} lies in no files", hint="set stage.dir=null"
        )
    check_node_folder(folder, [manifest.folder for manifest in manifests.values()])


def stager_of(
    config: Config, fmt: Format, manifests: dict[str, Manifest], comm: Communicator, recorder: Recorder
) -> Stager:
    """The stager of a data set.

    Args:
        config: the experiment, with ``stage.dir``.
        fmt: its format.
        manifests: the data.
        comm: the ranks, all of which call this.
        recorder: for spans named ``stage``.

    Raises:
        ConfigError: see :func:`check_staging`.
        PreconditionError: the folder cannot be written.
    """
    check_staging(config, fmt, manifests)

    def read_by(ranks: Sequence[int], epochs: range) -> Iterator[tuple[Path, Path]]:
        for manifest, mask in files_read(config, fmt, manifests, ranks, comm.world_size, epochs):
            for file in mask.nonzero()[0].tolist():
                for source in fmt.files(manifest.path(file)):
                    yield source.relative_to(manifest.folder), source

    def record(source: Path, begin_ns: int, end_ns: int, size: int) -> None:
        recorder.add("stage", begin_ns, end_ns, file=str(source), bytes=size)

    folders = [manifest.folder for manifest in manifests.values()]
    sources = Sources(config.recipe, manifests["train"].folder, folders, config.train.epochs, read_by)
    return Stager(config.stage, sources, comm, record)


def staged_manifests(stager: Stager, manifests: dict[str, Manifest]) -> dict[str, Manifest]:
    """Manifests of the copies that this rank reads, by split; one manifest may stand for two splits."""
    moved = {id(manifest): manifest.moved(stager.own) for manifest in manifests.values()}
    return {split: moved[id(manifest)] for split, manifest in manifests.items()}


def staged_files(stager: Stager, fmt: Format, manifests: dict[str, Manifest]) -> StagedFiles:
    """The copies whose page cache this rank prepares; ``manifests``: of the copies."""
    return StagedFiles(fmt, manifests.values(), stager.bytes, stager.share)


def make_stager(run: Setting, manifests: dict[str, Manifest], recorder: Recorder) -> Stager | None:
    """The stager of the data with the copies of the first epoch made; ``None`` without ``stage.dir``."""
    if run.config.stage.dir is None:
        return None
    stager = stager_of(run.config, run.format, manifests, run.comm, recorder)
    with _removed_after_failure(stager), run.vigil(f"the copies in {stager.folder}"):
        everyone = run.comm.gather_objects(stager.copy(run.first_epoch))
    if everyone is not None:
        print(stage_line(everyone), file=sys.stderr)
    return stager


@contextlib.contextmanager
def removed_at_end(stager: Stager | None) -> Iterator[None]:
    """Remove the copies that are not to be kept, when all ranks are done with them."""
    if stager is None:
        yield
        return
    with _removed_after_failure(stager):
        yield
    stager.close()


@contextlib.contextmanager
def _removed_after_failure(stager: Stager) -> Iterator[None]:
    try:
        yield
    except BaseException:
        stager.remove()
        raise
