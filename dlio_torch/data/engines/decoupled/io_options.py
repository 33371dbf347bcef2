"""Checks of ``loader.io`` and ``loader.queue_depth``: how the decoupled engine reads extents."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config

_THREADS = "set loader.io=threads"


def check_reading_io(config: Config, fail: Fail) -> None:
    """Refuse options that io_uring, or reads without it, do not follow.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and remedy.
    """
    from dlio_torch.formats.core.registry import facts

    loader = config.loader
    if loader.io == "threads":
        if loader.queue_depth != type(loader)().queue_depth:
            fail(
                ["loader.queue_depth", "loader.io"],
                "each reader thread has one read call in flight, so the number of threads is the depth of the queue",
                "set loader.io=io_uring, or use loader.read_threads",
            )
        return
    if loader.read_to == "device":
        fail(["loader.io", "loader.read_to"], "cuFile reads to the GPU's memory, by calls of its own", _THREADS)
    if loader.replay == "reads":
        fail(["loader.io", "loader.replay"], "io_uring makes no read calls that a replay could answer", _THREADS)
    if not facts(config.dataset.format).ranges_past_cache(config):
        fail(
            ["loader.io", "dataset.format"],
            "the engine reads files of this format whole, or with their framing, one read call at a time",
            f"{_THREADS}, or use a format of plain byte ranges, for example dataset=npy or dataset=hdf5",
        )
