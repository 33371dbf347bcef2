"""Process that measures the limits of a node: it has one thread, never uses a GPU itself, and forks all readers.

Run by :mod:`dlio_torch.node.limits.measurement` as ``python -m dlio_torch.node.limits.measuring_process FD``; ``FD`` is
its end of a connection.  It receives a request, and sends ``("note", line)``, ``("limit", NodeLimit)`` and at the end
``("end", None)`` or ``("error", exception)``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from multiprocessing.connection import Connection

from dlio_torch.errors import DlioError
from dlio_torch.node.limits.accelerator_limits import allreduce_limit, compute_limit
from dlio_torch.node.limits.copy_limits import RESOURCES as COPIES
from dlio_torch.node.limits.copy_limits import copy_limit
from dlio_torch.node.limits.decode_limit import decode_limit
from dlio_torch.node.limits.joint_limits import joint_limits
from dlio_torch.node.limits.measured_recipe import MeasuredRecipe, open_recipe
from dlio_torch.node.limits.measurement_request import MeasurementRequest
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.limits.parallel_tasks import Amount, run_tasks
from dlio_torch.node.limits.storage_limits import storage_limits
from dlio_torch.node.limits.transfer_limit import transfer_limit


def serve(connection: Connection) -> None:
    """Answer one request.

    Args:
        connection: this process's end.
    """
    request: MeasurementRequest = connection.recv()

    def note(name: str) -> None:
        connection.send(("note", f"limit {name}"))

    try:
        gpus = _visible_gpus()
        recipe = open_recipe(request.config, request.folder, request.seconds, request.accelerators or max(1, gpus))
        limits = joint_limits(recipe, gpus) if request.joint else _single(recipe, gpus, note)
        for limit in limits:
            connection.send(("limit", limit))
        connection.send(("end", None))
    except DlioError as error:
        connection.send(("error", error))


def _single(recipe: MeasuredRecipe, gpus: int, note: Callable[[str], None]) -> Iterator[NodeLimit]:
    """Measures each limit alone."""
    yield from storage_limits(recipe, note)
    note("decode")
    yield decode_limit(recipe)
    note("worker_transfer")
    yield transfer_limit(recipe)
    for name in COPIES:
        note(name)
        yield copy_limit(recipe, name, gpus)
    yield compute_limit(recipe)
    note("allreduce")
    yield allreduce_limit(recipe)


def _visible_gpus() -> int:
    """Number of GPUs that torch finds, asked in another process, for CUDA does not survive a fork."""
    return run_tasks([_count_gpus], 0.0)[0].samples - 1


def _count_gpus() -> Iterator[Amount]:
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    yield Amount()
    yield Amount(samples=count + 1)


if __name__ == "__main__":
    with Connection(int(sys.argv[1])) as end:
        serve(end)
