"""Times of the parts of a save or of a load, as the planner, the storage and the stager of one rank tell them."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field


@dataclass
class PartTimes:
    """Nanoseconds of the parts of one save or load.

    Attributes:
        plan_ns: from the begin of the local plan until the final plan is there, other ranks' plans included.
        stage_ns: of copying tensors before a save in the background.
        data_ns: of writing or reading files.
        copy_ns: of copying what was read to its tensor.
        metadata_ns: of reading the description.
        plan_began_ns: begin of planning, by ``time.perf_counter_ns``.
        copy_began_ns: begin of the last copy, likewise.
        flush_ns: of flushing files, by thread.
        file_bytes: sizes of the files that were written.
    """

    plan_ns: int | None = None
    stage_ns: int | None = None
    data_ns: int | None = None
    copy_ns: int = 0
    metadata_ns: int | None = None
    plan_began_ns: int = 0
    copy_began_ns: int = 0
    flush_ns: dict[int, int] = field(default_factory=lambda: defaultdict(int))
    file_bytes: list[int] = field(default_factory=list)

    def begin_plan(self) -> None:
        """Take the time: planning begins."""
        self.plan_began_ns = time.perf_counter_ns()

    def end_plan(self) -> None:
        """Take the time: this rank has its final plan."""
        self.plan_ns = time.perf_counter_ns() - self.plan_began_ns

    def begin_copy(self) -> None:
        """Take the time: a copy begins."""
        self.copy_began_ns = time.perf_counter_ns()

    def end_copy(self) -> None:
        """Take the time: a copy has ended."""
        self.copy_ns += time.perf_counter_ns() - self.copy_began_ns

    def add_flush(self, spent_ns: int) -> None:
        """Add a flush by the current thread."""
        self.flush_ns[threading.get_ident()] += spent_ns

    def add_data(self, spent_ns: int) -> None:
        """Add time of writing or reading files."""
        self.data_ns = (self.data_ns or 0) + spent_ns

    @property
    def slowest_flush_ns(self) -> int:
        """Nanoseconds of flushing, of the thread that flushes longest: threads flush at the same time."""
        return max(self.flush_ns.values(), default=0)


def seconds(spent_ns: int | None) -> float | None:
    """Seconds; ``None`` where nothing was measured."""
    return None if spent_ns is None else spent_ns / 1e9
