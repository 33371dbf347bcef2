"""Base of savers whose saves are complete when they return."""

from __future__ import annotations

from dlio_torch.checkpoint.save_times import SaveTimes


class SynchronousSaver:
    """Base of savers without saves in the background; ``save`` appends the times of each save to ``_finished``."""

    def __init__(self) -> None:
        self._finished: list[SaveTimes] = []

    def begin(self) -> int:
        """Write nothing."""
        return 0

    def finished(self) -> list[SaveTimes]:
        """Saves since the last call: each is complete when ``save`` returns."""
        saves, self._finished = self._finished, []
        return saves

    def wait(self) -> None:
        """Return at once."""

    def close(self) -> None:
        """Do nothing: no file is open between checkpoints."""
