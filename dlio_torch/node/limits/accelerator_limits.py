"""Limits of the accelerators: the emulated compute of a step, and the allreduce of the gradient."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Iterator
from functools import partial

from dlio_torch.dist.base import Communicator
from dlio_torch.dist.launcher import Launch
from dlio_torch.dist.torchdist import TorchCommunicator
from dlio_torch.errors import DlioError
from dlio_torch.node.demand import NO_COMPUTE
from dlio_torch.node.limits.limit_record import measured, refused_limit
from dlio_torch.node.limits.measured_recipe import MeasuredRecipe
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.limits.parallel_tasks import Amount, Rate, Task, run_tasks
from dlio_torch.units import counted, format_duration, format_size

_CONNECT_S = 60.0
_STEPS = 5  # allreduces between two looks at the clock, which the ranks share


def compute_limit(recipe: MeasuredRecipe) -> NodeLimit:
    """The samples that the emulated compute takes; it is computed, not measured."""
    name, resource = "compute", "compute"
    step_s, count = recipe.config.compute.emulated_step_s, recipe.accelerators
    if step_s <= 0:
        return refused_limit(name, resource, NO_COMPUTE)
    samples_per_s = recipe.batch_size * count / (step_s * recipe.hold_steps)
    steps = "" if recipe.hold_steps == 1 else f", {recipe.hold_steps} steps a batch"
    method = (
        f"batches of {counted(recipe.batch_size, 'sample')} over {format_duration(step_s)} of emulated compute{steps}, "
        f"{counted(count, 'accelerator')}"
    )
    return NodeLimit(name, resource, samples_per_s, samples_per_s * recipe.sample_bytes, True, method, 0.0)


def allreduce_limit(recipe: MeasuredRecipe) -> NodeLimit:
    """Measure the allreduce of the recipe's gradient between ranks of this node, one for each accelerator."""
    name, resource = "allreduce", "the exchange of gradients"
    size, ranks = recipe.config.train.allreduce_bytes, recipe.accelerators
    if not size:
        return refused_limit(name, resource, "the recipe exchanges no gradients (train.allreduce_bytes=0)")
    if ranks < 2:
        return refused_limit(name, resource, "one accelerator has no other to exchange gradients with")
    try:
        rate = Rate.of(run_tasks(_ranks(recipe), float("inf")))
    except DlioError as error:
        return refused_limit(name, resource, str(error))
    method = (
        f"gradients of {format_size(size)} averaged by {counted(ranks, 'process', 'processes')} of torch.distributed "
        "(NCCL where each has a GPU of its own, else Gloo)"
    )
    return measured(name, resource, rate, method)


def _ranks(recipe: MeasuredRecipe) -> list[Task]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    return [partial(_reduce, recipe, rank, port) for rank in range(recipe.accelerators)]


def _reduce(recipe: MeasuredRecipe, rank: int, port: int) -> Iterator[Amount]:
    ranks, size = recipe.accelerators, recipe.config.train.allreduce_bytes
    comm = _connected(rank, ranks, port)
    reducer = comm.gradient_reducer(size)
    reducer.step()
    samples = recipe.batch_size
    yield Amount()
    deadline = time.monotonic() + recipe.seconds
    goes_on, steps = True, 0
    while goes_on:
        began = time.perf_counter()
        for _ in range(_STEPS):
            reducer.step()
        steps += _STEPS
        yield Amount(samples * _STEPS, reducer.size_bytes * _STEPS, (time.perf_counter() - began) * recipe.hold_steps)
        goes_on = comm.broadcast_object(time.monotonic() < deadline)
    comm.close()


def _connected(rank: int, ranks: int, port: int) -> Communicator:
    os.environ |= {
        "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": str(rank), "WORLD_SIZE": str(ranks),
        "LOCAL_RANK": str(rank), "LOCAL_WORLD_SIZE": str(ranks),
    }  # fmt: skip
    return TorchCommunicator(Launch("torchrun", rank, ranks, rank), _CONNECT_S)
