"""Ranks through Horovod, over its Gloo or its MPI controller."""

from __future__ import annotations

import os
import pickle
import warnings
from typing import Any

import torch

from dlio_torch.dist.base import GradientReducer, element_count
from dlio_torch.dist.launcher import Launch
from dlio_torch.dist.ranked import RankedCommunicator, deadline, first_line
from dlio_torch.errors import ConfigError, RunFailed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Horovod 0.28.1 predates some deprecations of what it imports
    import horovod.torch as hvd

_WEIGHT = 2**20
_BIAS = 2**10


def mpi_built() -> bool:
    """Whether the installed Horovod has an MPI controller."""
    return bool(hvd.mpi_built())


class HorovodReducer:
    """Averages a gradient through Horovod's own optimizer, so that its tensor fusion does the work.

    The gradient is cut into tensors as a network's is, large weights and small biases, and each step
    hands all of them over at once, as at the end of a backward pass.  The optimizer's parameters take
    no memory, and no update is made: only the reduction is wanted.
    """

    def __init__(self, size_bytes: int) -> None:
        count = element_count(size_bytes)
        self.size_bytes = count * 4
        self.gradient = [torch.zeros(size) for size in layer_sizes(count)]
        named = []
        for number, gradient in enumerate(self.gradient):
            # One element seen at every position: shaped like the gradient, without its memory.
            parameter = torch.nn.Parameter(torch.zeros(1).expand(gradient.shape))
            parameter.grad = gradient
            named.append((f"dlio_torch.gradient.{count}.{number}", parameter))
        plain = torch.optim.SGD([parameter for _, parameter in named], lr=0.0)
        self._optimizer = hvd.DistributedOptimizer(plain, named_parameters=named, op=hvd.Average)

    def step(self) -> None:
        """See ``GradientReducer.step``."""
        self._optimizer.synchronize()


def layer_sizes(count: int) -> list[int]:
    """Cut ``count`` elements into tensors like a network's: weights of 4 MiB, biases of 4 KiB in between.

    A small gradient is cut in proportion, into 16 tensors or so.
    """
    weight = min(_WEIGHT, -(-count // 8))
    bias = min(_BIAS, -(-weight // 8))
    sizes: list[int] = []
    while count:
        sizes.append(min(count, bias if len(sizes) % 2 else weight))
        count -= sizes[-1]
    return sizes


class HorovodCommunicator(RankedCommunicator):
    """The Communicator over Horovod.

    Args:
        launch: this process's place.
        timeout_s: longest wait for the other ranks, at the start and in a collective.

    Raises:
        ConfigError: Horovod sees another number of ranks than the launcher started.
        RunFailed: the ranks do not find each other.
    """

    name = "horovod"

    def __init__(self, launch: Launch, timeout_s: float) -> None:
        late = f"rank {launch.rank} of {launch.world_size} did not find the others through Horovod"
        # Horovod's own timeout aborts the process from a native thread, and over MPI there is none:
        # ours comes first.
        os.environ.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(round(timeout_s) + 30))
        try:
            with deadline(timeout_s, f"{late} within {timeout_s:g} s"):
                hvd.init()
        except (RuntimeError, ValueError) as error:
            raise RunFailed(f"{late}: {first_line(error)}") from error
        if hvd.size() != launch.world_size:
            raise ConfigError(
                f"{launch.name} started {launch.world_size} ranks, but Horovod sees {hvd.size()}",
                hint="start with the launcher of the MPI that Horovod was built with, or with horovodrun --gloo",
            )
        detail = "mpi" if hvd.mpi_enabled() else "gloo"
        super().__init__(hvd.rank(), hvd.size(), hvd.local_rank(), detail, timeout_s)

    # Horovod's own broadcast_object and allgather_object spend 60 ms per MiB on making a tensor of
    # the bytes, and name the operation after the value's type: ranks with values of different types
    # would wait for each other for ever.  Hence pickle and buffers here.

    def _barrier(self) -> None:
        hvd.barrier()

    def _broadcast(self, value: Any, root: int) -> Any:
        payload = _pickled(value) if self.rank == root else torch.empty(0, dtype=torch.uint8)
        size = hvd.broadcast(torch.tensor([payload.numel()]), root, name="dlio_torch.broadcast.size")
        if self.rank != root:
            payload = torch.empty(int(size), dtype=torch.uint8)
        hvd.broadcast_(payload, root, name="dlio_torch.broadcast")
        return pickle.loads(payload.numpy().data)

    def _gather(self, value: Any, root: int) -> list[Any] | None:
        payload = _pickled(value)
        sizes = hvd.allgather(torch.tensor([payload.numel()]), name="dlio_torch.gather.size")
        everything = hvd.allgather(payload, name="dlio_torch.gather")
        if self.rank != root:
            return None
        return [pickle.loads(part.numpy().data) for part in everything.split(sizes.tolist())]

    def _allreduce(self, tensor: torch.Tensor) -> None:
        hvd.allreduce_(tensor, name="dlio_torch.allreduce", op=hvd.Sum)

    def _reducer(self, size_bytes: int) -> GradientReducer:
        return HorovodReducer(size_bytes)

    def _disconnect(self) -> None:
        hvd.shutdown()


def _pickled(value: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
