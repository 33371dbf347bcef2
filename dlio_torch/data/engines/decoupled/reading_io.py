"""How the decoupled engine reads extents: ``loader.io``, or threads where the system refuses io_uring."""

from __future__ import annotations

from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.decoupled.prefetch_window import window_of
from dlio_torch.formats.core.direct_file import BLOCK
from dlio_torch.native.direct import DirectMover
from dlio_torch.native.extents import Mover, open_mover
from dlio_torch.native.uring import UringMover, uring_refusal


def refused_uring(loader: LoaderConfig) -> str | None:
    """Why the system refuses io_uring, if ``loader.io`` asks for it; ``None``: it does not, or was not asked."""
    return uring_refusal(loader.queue_depth) if loader.io == "io_uring" else None


def ring_depth(loader: LoaderConfig) -> int:
    """Requests in flight of a reader thread's ring; 0: the thread reads by read calls."""
    return loader.queue_depth if loader.io == "io_uring" and refused_uring(loader) is None else 0


def effective_io(loader: LoaderConfig, batch_bytes: float) -> dict[str, str | int | None]:
    """Entry of ``summary.json`` on how the engine read in this process and its workers.

    Args:
        loader: the options of ``loader``.
        batch_bytes: bytes of a batch.

    Returns:
        ``by``: ``threads`` or ``io_uring``; ``queue_depth``: requests in flight of a reader thread; ``why``: reason
        why the system refuses io_uring, ``None`` where it does not, or was not asked; ``window_bytes``: size of the
        prefetch window, of all workers together.
    """
    depth, window = ring_depth(loader), window_of(loader, batch_bytes) * max(1, loader.num_workers)
    why = refused_uring(loader) if depth == 0 else None
    return {"by": "io_uring" if depth else "threads", "queue_depth": depth or 1, "why": why, "window_bytes": window}


def open_reading_mover(loader: LoaderConfig, *, direct: bool) -> Mover:
    """Opens what reads extents.

    Args:
        loader: the options of ``loader``.
        direct: files are open for direct reads.
    """
    block = BLOCK if direct else 0
    depth = ring_depth(loader)
    if depth > 0:
        return UringMover(depth, block)
    return DirectMover(open_mover(), block) if direct else open_mover()
