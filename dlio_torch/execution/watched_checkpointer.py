"""Opens the checkpointer of a rank, with the watchdog that reports a save that takes long."""

from __future__ import annotations

from pathlib import Path

from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.checkpointer import Checkpointer, open_checkpointer
from dlio_torch.checkpoint.position import SavedPositions
from dlio_torch.execution.cleanup import Cleanup
from dlio_torch.execution.context import RunContext


def open_watched(
    context: RunContext,
    setup: SaverSetup,
    cleanup: Cleanup,
    positions: SavedPositions | None = None,
    restores: tuple[Path, int] | None = None,
) -> Checkpointer:
    """Open the checkpointer of this rank; its watchdog starts here, because saves are timed.

    Args:
        context: the run.
        setup: settings of the saver.
        cleanup: closes the checkpointer, then ends the watchdog.
        positions: as of :func:`~dlio_torch.checkpoint.checkpointer.open_checkpointer`.
        restores: likewise.

    Raises:
        DlioError: the content does not fit into memory, or a library is missing.
    """
    watchdog = None
    if setup.config.checkpoint.layout != "none":
        watchdog = cleanup.enter_context(context.watchdog("a checkpoint to be written", observed=False))
        watchdog.is_waiting = False
    return cleanup.closing(open_checkpointer(setup, watchdog, positions, restores))
