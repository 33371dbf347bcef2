"""Ends what a run has begun, whatever becomes of the run."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator

from dlio_torch.dist.leave import bounded

CLOSE_S = 5.0
"""For workers and threads to end after a failure; a hanging file system may keep them."""


@contextlib.contextmanager
def closing(close: Callable[[], None]) -> Iterator[None]:
    """Close something at the end; after a failure without waiting for ever, and without another error."""
    try:
        yield
    except BaseException:

        def quietly() -> None:
            with contextlib.suppress(Exception):
                close()

        bounded(quietly, CLOSE_S)
        raise
    close()
