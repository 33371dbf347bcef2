"""Nodes and ranks of a job that saves checkpoints: those of the described job where the request does not say them."""

from __future__ import annotations

from dataclasses import replace

from dlio_torch.config.schema import Config
from dlio_torch.errors import ConfigError
from dlio_torch.launch.job_request import JobRequest, no_ranks
from dlio_torch.launch.key_values import wrong
from dlio_torch.units import counted


def with_ranks(request: JobRequest, config: Config) -> JobRequest:
    """The request with all ranks of the described job, unless it says both nodes and ranks on each of them.

    Args:
        request: the keys of ``launch``; nodes and ranks on each of them are 0 where they are not given.
        config: the experiment.

    Raises:
        ConfigError: no model is described, or its ranks cannot be divided equally among nodes.
    """
    nodes, each, ranks = request.nodes, request.ranks_per_node, config.parallel.world_size
    if not config.model.described:
        if not each:
            raise no_ranks(nodes)
        return replace(request, nodes=nodes or 1)
    if not (nodes or each):
        each = _ranks_of_gpus(request, ranks)
    if nodes and each:
        return request
    _check_divisible(nodes, each, ranks)
    return replace(request, nodes=nodes or ranks // each, ranks_per_node=each or ranks // nodes)


def _ranks_of_gpus(request: JobRequest, ranks: int) -> int:
    """Ranks on a node with one for each GPU."""
    if request.gpus_per_node is None:
        raise ConfigError(
            f"launch (command line): no ranks_per_node, and the job has {counted(ranks, 'rank')}",
            hint="write ranks_per_node=4, or nodes=2",
        )
    return min(request.gpus_per_node, ranks)


def _check_divisible(nodes: int, each: int, ranks: int) -> None:
    """Refuse nodes of which the last would have fewer ranks; of ``nodes`` and ``each`` one is 0."""
    if ranks % (nodes or each) == 0:
        return
    key, value, other = ("nodes", nodes, "ranks_per_node") if nodes else ("ranks_per_node", each, "nodes")
    raise wrong(
        key,
        str(value),
        f"the {counted(ranks, 'rank')} of the job (parallel.tensor x pipeline x data) cannot be divided equally",
        f"write {key}={_divisor(value, ranks)}, or add {other}= for fewer ranks than the job has",
    )


def _divisor(most: int, number: int) -> int:
    """The largest divisor of ``number`` that is not above ``most``."""
    return next(value for value in range(min(most, number), 0, -1) if number % value == 0)
