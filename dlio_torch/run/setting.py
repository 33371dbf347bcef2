"""What the phases of a rank's run share."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.data.engines.registry import format_of
from dlio_torch.data.workers.activity import doing
from dlio_torch.dist.base import Communicator
from dlio_torch.environment.vigil import Vigil, Watch
from dlio_torch.formats.core.format import Format
from dlio_torch.report.progress import Progress
from dlio_torch.run.ending import Ending
from dlio_torch.run.position import Position
from dlio_torch.run.resume import Resumed


@dataclass
class Setting:
    """One rank of a run.

    Attributes:
        composed: the configuration as it was composed, and where it came from.
        comm: the ranks.
        ending: takes down how the run ends.
        position: of an elastic run: where it goes on; ``None``: at the beginning, with ranks that stay.
        resumed: where another run's last checkpoint was, and this one goes on (``train.resume``).
        config: the configuration, its steps fitted to the data once these are known.
        format: reads and writes the data.
        progress: shown by rank 0.
        mount: of the data; known to rank 0 when there is a run directory.
        data_bytes: of all files of the data, once they were looked at.
        details: of existing data, what their first file looks like inside.
    """

    composed: Composed
    comm: Communicator
    ending: Ending
    position: Position | None = None
    resumed: Resumed | None = None
    config: Config = field(init=False)
    format: Format = field(init=False)
    progress: Progress = field(init=False)
    mount: dict[str, Any] = field(default_factory=dict)
    data_bytes: int = 0
    details: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.config = self.composed.config
        self.format = format_of(self.config)
        self.progress = Progress(sys.stderr, enabled=self.config.output.progress and self.first)

    @property
    def who(self) -> str:
        """Which rank it is, for the beginning of a line; empty where there is only one."""
        return f"rank {self.comm.rank}: " if self.comm.world_size > 1 else ""

    def watch(self, state: Path | None = None) -> Watch:
        """What is done about waits that take long.

        Args:
            state: where it is written down how the run ended, by who looks from outside.
        """
        words = [str(state) if state is not None and self.comm.rank <= 1 else "", self.who]
        return Watch(
            self.config.output.patience_s,
            give_up=lambda line: self.ending.give_up(f"{line}; look at the file system, or raise loader.timeout_s"),
            outside=("dlio_torch.data.workers.watchdog_child", words),
        )

    @contextlib.contextmanager
    def vigil(self, what: str, *, outside: bool = True) -> Iterator[Vigil]:
        """A context in which a line comes where it takes long; it does not end by that.

        Args:
            what: is waited for.
            outside: look from outside where no Python code runs; one at a time does.
        """
        watch = replace(self.watch(), give_up=None)
        vigil = Vigil(lambda: (what, doing([])), watch if outside else replace(watch, outside=None))
        try:
            with vigil:
                yield vigil
        finally:
            vigil.stop()

    @property
    def first_epoch(self) -> int:
        """The epoch that the training begins with, or goes on in; from 1."""
        return 1 if self.resumed is None else self.resumed.begins(self.config)[0]

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.comm.rank == 0
