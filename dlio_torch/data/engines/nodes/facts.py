"""Facts about engine ``nodes``, a pipeline of torchdata nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from dlio_torch.data.engines.facts import EngineFacts

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config


class NodesFacts(EngineFacts):
    """Facts about engine ``nodes``."""

    name: ClassVar[str] = "nodes"
    library_class: ClassVar[str] = "Loader"
    builder: ClassVar[str] = "dlio_torch.data.engines.nodes.engine:build"
    streams: ClassVar[bool] = False
    pipes: ClassVar[bool] = False
    keeps_workers: ClassVar[bool] = False
    main_thread: ClassVar[bool] = False
    worker_descriptors: ClassVar[int] = 2  # all workers share their queues

    def check(self, config: Config, fail: Fail) -> None:
        if config.loader.style == "pipe":
            fail(
                ["loader.engine", "loader.style"],
                "the engine builds its own pipeline of nodes and cannot run a DataPipe",
                "set loader.style=map, or loader.engine=dataloader",
            )
        if config.loader.persistent_workers:
            fail(
                ["loader.engine", "loader.persistent_workers"],
                "the engine starts new workers in each epoch",
                "set loader.persistent_workers=false, or loader.engine=dataloader",
            )
