"""Registry of engines: names, facts and creation.

The table holds strings so that facts cost nothing to import.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from dlio_torch.data.engines.facts import EngineFacts

if TYPE_CHECKING:
    from dlio_torch.config.schema import Config, LoaderConfig
    from dlio_torch.data.engines.batch_loader import Engine, Source
    from dlio_torch.data.order.pipe_plan import PipePlan
    from dlio_torch.data.order.sampler import BatchSampler
    from dlio_torch.data.workers.descriptor_limits import OpenFiles
    from dlio_torch.data.workers.exits import WorkerLimits
    from dlio_torch.data.workers.placement import Placement
    from dlio_torch.formats.core.format import Format

    Builder = Callable[[LoaderConfig, Source, BatchSampler | PipePlan, WorkerLimits, Placement], Engine]
    """Function that creates an engine from the options of ``loader``, source, sampler, limits and placement."""

BUILTIN: dict[str, str] = {
    "dataloader": "dlio_torch.data.engines.torch_loader.facts:DataLoaderFacts",
    "stateful": "dlio_torch.data.engines.torch_loader.facts:StatefulFacts",
    "nodes": "dlio_torch.data.engines.nodes.facts:NodesFacts",
    "decoupled": "dlio_torch.data.engines.decoupled.facts:DecoupledFacts",
}
"""Engine name -> class of its facts."""


def facts(name: str) -> EngineFacts:
    """Facts about the engine of a valid name."""
    known: EngineFacts = _loaded(BUILTIN[name])()
    return known


def all_facts() -> list[EngineFacts]:
    """Facts about every engine."""
    return [facts(name) for name in BUILTIN]


def create(
    config: LoaderConfig,
    source: Source,
    sampler: BatchSampler | PipePlan,
    limits: WorkerLimits,
    placement: Placement,
) -> Engine:
    """Creates the engine that ``loader.engine`` names."""
    build: Builder = _loaded(facts(config.engine).builder)
    return build(config, source, sampler, limits, placement)


def open_files(config: LoaderConfig, tensors: int = 1) -> OpenFiles:
    """Number of open files that a rank needs; called in the trainer before workers are started.

    Args:
        config: the options of ``loader``.
        tensors: of a batch.
    """
    from dlio_torch.data.workers.descriptor_limits import OpenFiles

    about = facts(config.engine)
    return OpenFiles.of(config, about.worker_descriptors, tensors if about.tensor_descriptors else 0)


def worker_limits(config: LoaderConfig, tensors: int = 1) -> WorkerLimits:
    """Current machine limits that a loader's workers may reach; takes the arguments of :func:`open_files`."""
    from dlio_torch.data.workers.exits import WorkerLimits

    return WorkerLimits.now(config, open_files(config, tensors))


def format_of(config: Config) -> Format:
    """Creates the format of a recipe after checking that it supports the recipe's engine and access method.

    Raises:
        DlioError: it cannot, is not known, or its package is not installed.
    """
    from dlio_torch.formats.core import registry

    layout, mpi_io = facts(config.loader.engine).reads_ranges, config.access.io != "posix"
    return registry.create(config.dataset, config.seed, layout=layout, mpi_io=mpi_io)


def _loaded(target: str) -> Any:
    module, _, attribute = target.partition(":")
    return getattr(importlib.import_module(module), attribute)
