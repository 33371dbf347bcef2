"""Copies of the data on storage of the nodes: made before the training, removed after it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator

from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.report.stage_text import stage_line
from dlio_torch.run.setting import Setting
from dlio_torch.storage.staging import Stager
from dlio_torch.trace.spans import Recorder


def make_stager(run: Setting, manifests: dict[str, Manifest], recorder: Recorder) -> Stager | None:
    """What copies the data, where that is asked for, with the copies of the first epoch made."""
    if run.config.stage.dir is None:
        return None
    stager = Stager(run.config, run.format, manifests, run.comm, recorder)
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
