"""Protocol of a run's ranks, as storage code uses them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

ValueT = TypeVar("ValueT")


class RankGroup(Protocol):
    """Protocol of the ranks of a run, all of which make the same calls; communicators implement it.

    Attributes:
        rank: number of this process, 0 to ``world_size - 1``.
        world_size: number of processes.
        on_failure: called as ``hook(line, exit_code)`` when another rank failed, before this process ends.
    """

    rank: int
    world_size: int
    on_failure: list[Callable[[str, int], None]]

    def barrier(self) -> None:
        """Wait until every rank has made this call."""

    def broadcast_object(self, value: ValueT, root: int = 0) -> ValueT:
        """The root's ``value``, on every rank."""

    def gather_objects(self, value: ValueT, root: int = 0) -> list[ValueT] | None:
        """Every rank's ``value`` in the order of ranks on the root, ``None`` elsewhere."""
