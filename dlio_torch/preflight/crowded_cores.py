"""Preflight check: warns of loaders with far more workers and threads than the node has cores."""

from __future__ import annotations

from collections.abc import Mapping

from dlio_torch.config.check import ConfigCheck
from dlio_torch.config.schema import Config
from dlio_torch.data.engines import registry as engines
from dlio_torch.environment.cores import usable_cores
from dlio_torch.units import counted

_PER_CORE = 4
"""Workers and reader threads per core from which on the warning appears: readers that wait for storage need no core."""


def crowded_cores(config: Config, ranks: int, sources: Mapping[str, str]) -> str | None:
    """The warning about more readers than the cores of this node can run; ``None``: there is no reason for one.

    Args:
        config: the experiment.
        ranks: number of ranks on this node, which share its cores.
        sources: where each value was set.
    """
    loader = config.loader
    tasks, cores = ranks * engines.facts(loader.engine).demand(loader).tasks, usable_cores()
    if tasks <= _PER_CORE * cores:
        return None
    keys = [key for key in ("num_workers", "read_threads") if getattr(loader, key)]
    check = ConfigCheck(config, dict(sources))
    named = ", ".join(check.text(f"loader.{key}") for key in keys)
    of_ranks = f" of {counted(ranks, 'rank')}" if ranks > 1 else ""
    each = max(1, int(cores / ranks))
    return (
        f"warning: {named}: {tasks} workers and reader threads{of_ranks} share the {cores:g} cores that this "
        f"process may use, and wait for each other; about {each} per rank can run at once"
    )
