"""What the phases of a rank's run share."""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import Any

from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.dist.base import Communicator
from dlio_torch.formats import registry
from dlio_torch.formats.base import Format
from dlio_torch.report.progress import Progress
from dlio_torch.run.ending import Ending
from dlio_torch.run.position import Position


@dataclass
class Setting:
    """One rank of a run.

    Attributes:
        composed: the configuration as it was composed, and where it came from.
        comm: the ranks.
        ending: takes down how the run ends.
        position: of an elastic run: where it goes on; ``None``: at the beginning, with ranks that stay.
        config: the configuration, its steps fitted to the data once these are known.
        format: reads and writes the data.
        progress: shown by rank 0.
        mount: of the data; known to rank 0 when there is a run directory.
        details: of existing data, what their first file looks like inside.
    """

    composed: Composed
    comm: Communicator
    ending: Ending
    position: Position | None = None
    config: Config = field(init=False)
    format: Format = field(init=False)
    progress: Progress = field(init=False)
    mount: dict[str, Any] = field(default_factory=dict)
    details: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        self.config = self.composed.config
        decoupled = self.config.loader.engine == "decoupled"
        mpi_io = self.config.access.io != "posix"
        self.format = registry.create(self.config.dataset, self.config.seed, places=decoupled, mpi_io=mpi_io)
        self.progress = Progress(sys.stderr, enabled=self.config.output.progress and self.first)

    @property
    def first(self) -> bool:
        """Whether this is rank 0."""
        return self.comm.rank == 0
