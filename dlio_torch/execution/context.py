"""Run context: what all phases of one rank's run share."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from dlio_torch.config.compose import Composed, Detail
from dlio_torch.data.engines.registry import format_of
from dlio_torch.dist.base import Communicator
from dlio_torch.execution.elastic_position import ElasticPosition
from dlio_torch.execution.outcome import RunOutcome
from dlio_torch.formats.core.format import Format
from dlio_torch.report.progress import Progress
from dlio_torch.report.scale_text import scale_line
from dlio_torch.supervision.reader_activity import describe_readers
from dlio_torch.supervision.watchdog import Watchdog, WatchdogSettings


@dataclass(frozen=True)
class RunContext:
    """Context of one rank's run, the same in all phases; each phase returns its own result.

    Attributes:
        composed: the configuration and the source of each value.
        comm: the ranks.
        outcome: records how the run ends.
        format: reads and writes the data.
        progress: progress lines, which rank 0 prints.
        elastic: position at which an elastic run goes on; ``None`` for a run with fixed ranks.
    """

    composed: Composed
    comm: Communicator
    outcome: RunOutcome
    format: Format
    progress: Progress
    elastic: ElasticPosition | None = None

    @classmethod
    def create(
        cls, composed: Composed, comm: Communicator, outcome: RunOutcome, elastic: ElasticPosition | None = None
    ) -> RunContext:
        """Create the context of this rank, with the format that the configuration names."""
        shows = composed.config.output.progress and composed.detail != "quiet" and comm.rank == 0
        progress = Progress(sys.stderr, enabled=shows)
        return cls(composed, comm, outcome, format_of(composed.config), progress, elastic)

    @property
    def is_rank_zero(self) -> bool:
        """Whether this is rank 0, which prints and writes for all ranks."""
        return self.comm.rank == 0

    @property
    def detail(self) -> Detail:
        """Amount of output of the run."""
        return self.composed.detail

    def note(self, text: str) -> None:
        """Print a note on what the run does, on rank 0, unless the run is quiet."""
        if self.is_rank_zero and self.detail != "quiet":
            print(text, file=sys.stderr)

    def announce(self) -> None:
        """Print recipe and scale that were chosen, and what the scale changed."""
        composed = self.composed
        for remark in composed.remarks:
            self.note(remark)
        if self.detail == "verbose":
            for note in composed.notes:
                self.note(f"scale: {note}")
        elif composed.notes:
            self.note(scale_line(composed.config.scale.name, composed.notes))

    @property
    def line_prefix(self) -> str:
        """Start of a console line, which names the rank; empty in a run of one rank."""
        return f"rank {self.comm.rank}: " if self.comm.world_size > 1 else ""

    def watchdog_settings(self, state: Path | None = None) -> WatchdogSettings:
        """Returns the settings of a watchdog that prints a line about a long wait, and ends the run at the limit.

        Args:
            state: file of the run's state; the observer of a hung process writes the end of the run to it.
        """
        arguments = [str(state) if state is not None and self.comm.rank <= 1 else "", self.line_prefix]
        return WatchdogSettings(
            self.composed.config.output.patience_s,
            give_up=lambda line: self.outcome.give_up(f"{line}; check the file system, or raise loader.timeout_s"),
            observer=("dlio_torch.supervision.hung_process", arguments),
        )

    @contextlib.contextmanager
    def watchdog(self, awaited: str, *, observed: bool = True) -> Iterator[Watchdog]:
        """Context manager that prints a line if its body takes long; the run continues.

        Args:
            awaited: what the line says the run waits for.
            observed: whether an observer covers waits in which no Python code runs; one at a time can.
        """
        settings = replace(self.watchdog_settings(), give_up=None)
        if not observed:
            settings = replace(settings, observer=None)
        watchdog = Watchdog(lambda: (awaited, describe_readers([])), settings)
        try:
            with watchdog:
                yield watchdog
        finally:
            watchdog.stop()
