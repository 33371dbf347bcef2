"""The communicator over ``torch.distributed``: Gloo, and NCCL for the gradient if every rank has its own GPU."""

from __future__ import annotations

import os
import socket
from contextlib import AbstractContextManager, nullcontext
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist

from dlio_torch.dist.base import GradientReducer, element_count
from dlio_torch.dist.failure.timeouts import deadline
from dlio_torch.dist.gpus import all_different, own_gpu
from dlio_torch.dist.launcher import PARENT, Launch, slurm_rendezvous
from dlio_torch.dist.ranked import RankedCommunicator, first_line
from dlio_torch.errors import RunFailed
from dlio_torch.supervision.parent_exit import on_parent_exit
from dlio_torch.supervision.process_exit import ERROR_PREFIX, exit_now, print_line

_TORCHRUN_ENDED = "torchrun ended before all ranks had connected"
_BUCKET_BYTES = 25 * 2**20
"""Size of a bucket of DistributedDataParallel (its ``bucket_cap_mb`` of 25)."""


class TorchReducer:
    """Averages a gradient as DistributedDataParallel does: divide, then sum, bucket after bucket.

    All buckets are in flight at once, as at the end of a backward pass.
    """

    def __init__(self, size_bytes: int, world_size: int, device: torch.device, group: dist.ProcessGroup | None) -> None:
        count = element_count(size_bytes)
        self.size_bytes = count * 4
        whole = torch.zeros(count, device=device)
        step = _BUCKET_BYTES // whole.element_size()
        self.gradient = [whole[start : start + step] for start in range(0, count, step)]
        self._world_size = world_size
        self._device = device
        self._group = group

    def step(self) -> None:
        """See ``GradientReducer.step``; on a GPU it returns when the GPU holds the result."""
        works = []
        for bucket in self.gradient:
            bucket.div_(self._world_size)
            works.append(dist.all_reduce(bucket, group=self._group, async_op=True))
        for work in works:
            work.wait()
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)


class TorchCommunicator(RankedCommunicator):
    """The :class:`Communicator` over ``torch.distributed``.

    Objects and barriers go over Gloo and the host's memory in any case: a barrier over NCCL would
    occupy the GPU that is being measured.

    Args:
        launch: how this process was started.
        timeout_s: longest wait for the other ranks, at the start and in a collective.

    Raises:
        RunFailed: the ranks cannot connect.
    """

    name = "torch"

    def __init__(self, launch: Launch, timeout_s: float) -> None:
        _stay_on_this_host()
        late = (
            f"rank {launch.rank} of {launch.world_size} could not connect to the other ranks through torch.distributed"
        )
        late += f" within {timeout_s:g} s"
        try:
            # torch's own timeout comes before the deadline.
            with deadline(timeout_s + 10, late), _end_with_torchrun(launch):
                dist.init_process_group(
                    "gloo",
                    init_method=_init_method(launch),
                    rank=launch.rank,
                    world_size=launch.world_size,
                    timeout=timedelta(seconds=timeout_s),
                )
        except (RuntimeError, ValueError) as error:
            if launch.name == "torchrun" and os.getppid() != PARENT:
                raise RunFailed(_TORCHRUN_ENDED) from error
            raise RunFailed(f"{late}: {first_line(error)}") from error
        self._device = torch.device("cpu")
        self._group: dist.ProcessGroup | None = None  # the default one
        super().__init__(launch.rank, launch.world_size, launch.local_rank, "gloo", timeout_s)
        gpu = own_gpu(launch.local_rank) if dist.is_nccl_available() else None
        if self.broadcast_object(all_different(self.gather_objects(gpu and gpu[1]))) and gpu is not None:
            self._device = torch.device("cuda", gpu[0])
            torch.cuda.set_device(self._device)
            self._group = dist.new_group(backend="nccl", timeout=timedelta(seconds=timeout_s))
            self.detail = "nccl"

    def _barrier(self) -> None:
        dist.barrier()

    def _broadcast(self, value: Any, root: int) -> Any:
        values = [value]
        dist.broadcast_object_list(values, src=root)
        return values[0]

    def _gather(self, value: Any, root: int) -> list[Any] | None:
        values: list[Any] | None = [None] * self.world_size if self.rank == root else None
        dist.gather_object(value, values, dst=root)
        return values

    def _allreduce(self, tensor: torch.Tensor) -> None:
        dist.all_reduce(tensor, group=self._group if tensor.is_cuda else None)

    def _reducer(self, size_bytes: int) -> GradientReducer:
        return TorchReducer(size_bytes, self.world_size, self._device, self._group)

    def _disconnect(self) -> None:
        dist.destroy_process_group()


def _end_with_torchrun(launch: Launch) -> AbstractContextManager[None]:
    """End this rank if torchrun ends before all ranks have connected; torch itself would retry its store for 30 s."""
    if launch.name != "torchrun" or "TORCHELASTIC_RUN_ID" not in os.environ:
        return nullcontext()  # a script started the rank, which may end before it

    def end_rank() -> None:
        print_line(f"{ERROR_PREFIX}rank {launch.rank}: {_TORCHRUN_ENDED}")
        exit_now(RunFailed.exit_code)

    return on_parent_exit(PARENT, end_rank)


def _init_method(launch: Launch) -> str:
    if "MASTER_ADDR" in os.environ and "MASTER_PORT" in os.environ:
        return "env://"
    if launch.name == "srun":
        host, port = slurm_rendezvous()
        return f"tcp://{host}:{port}"
    return "env://"


def _stay_on_this_host() -> None:
    """Let Gloo use the loopback interface if all ranks of torchrun share a host.

    By default Gloo takes the interface that the host's name resolves to.  In a container, or without the
    network, the name often does not resolve.
    """
    local, world = os.environ.get("LOCAL_WORLD_SIZE"), os.environ.get("WORLD_SIZE")
    if local is not None and local == world and any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
