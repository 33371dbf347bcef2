"""Cleanup: everything that a run opens is closed, in reverse order, however the run ends."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from types import TracebackType
from typing import Protocol, TypeVar

from dlio_torch.supervision.process_exit import run_bounded

CLOSE_S = 5.0
"""Seconds that one close may take after a failure; a hanging file system may block workers and threads longer."""


class Closes(Protocol):
    """Protocol of a resource with a ``close`` method."""

    def close(self) -> None:
        """Release the resource."""


ResourceT = TypeVar("ResourceT", bound=Closes)


class Cleanup(contextlib.ExitStack):
    """Closes the resources of a run, the last one first.

    After a success an error of a close is raised.  After a failure each close has :data:`CLOSE_S` seconds and its own
    error is dropped, so that the first error is the one that counts.
    """

    def closing(self, resource: ResourceT) -> ResourceT:
        """Close ``resource`` at the end; returns it."""
        self.on_exit(resource.close)
        return resource

    def on_exit(self, close: Callable[[], object], after_failure: Callable[[], object] | None = None) -> None:
        """Call ``close`` at the end.

        Args:
            close: called after a success; after a failure, too, if ``after_failure`` is missing.
            after_failure: called after a failure instead, without a time limit; it must not raise.
        """

        def end(kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
            if kind is None:
                close()
            elif after_failure is not None:
                after_failure()
            else:
                run_bounded(lambda: _without_error(close), CLOSE_S)

        self.push(end)


def _without_error(close: Callable[[], object]) -> None:
    with contextlib.suppress(Exception):
        close()
