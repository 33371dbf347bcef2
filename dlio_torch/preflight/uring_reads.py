"""Preflight check: the system permits reads by io_uring (``loader.io=io_uring``), and what a trace shows of them."""

from __future__ import annotations

from collections.abc import Iterator

from dlio_torch.config.schema import Config
from dlio_torch.data.engines.decoupled.reading_io import refused_uring


def uring_lines(config: Config) -> Iterator[str]:
    """Yields remarks for the user on reads by io_uring; none if they are not asked for."""
    if config.loader.io != "io_uring":
        return
    refusal = refused_uring(config.loader)
    if refusal is not None:
        yield f"loader.io=io_uring: io_uring cannot be used here: {refusal}; reader threads read by read calls instead"
    elif config.trace.posix:
        yield (
            "trace.posix with loader.io=io_uring: reads by io_uring are no calls that can be recorded, so the trace "
            "has only spans of these reads; loader.io=threads reads by calls"
        )
