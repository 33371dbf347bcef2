"""The communicator over Horovod, with its Gloo or its MPI controller."""

from __future__ import annotations

import os
import pickle
import warnings
from pathlib import Path
from typing import Any

import torch

from dlio_torch.config.schema import HorovodConfig
from dlio_torch.dist.base import GradientReducer
from dlio_torch.dist.failure.timeouts import deadline
from dlio_torch.dist.gpus import all_different, own_gpu
from dlio_torch.dist.hvd_reducer import HorovodReducer
from dlio_torch.dist.hvd_settings import put_in_force
from dlio_torch.dist.launcher import Launch
from dlio_torch.dist.ranked import RankedCommunicator, first_line
from dlio_torch.errors import ConfigError, RunFailed

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # Horovod 0.28.1 predates deprecations in its dependencies
    import horovod.torch as hvd


def mpi_built() -> bool:
    """Whether the installed Horovod has an MPI controller."""
    return bool(hvd.mpi_built())


class HorovodCommunicator(RankedCommunicator):
    """The :class:`Communicator` over Horovod.

    If Horovod was built with NCCL and every rank has its own GPU, the gradient lies on the GPUs and
    goes over NCCL (run on one GPU so far); everything else goes over the controller.

    Args:
        launch: how this process was started.
        timeout_s: longest wait for the other ranks, at the start and in a collective.
        options: Horovod's settings.
        timeline: whether :meth:`start_timeline` will be called.

    Raises:
        ConfigError: Horovod sees another number of ranks than the launcher started, or a variable of
            the environment contradicts an option.
        RunFailed: the ranks cannot connect.
    """

    name = "horovod"

    def __init__(
        self, launch: Launch, timeout_s: float, options: HorovodConfig | None = None, timeline: bool = False
    ) -> None:
        self._options = options or HorovodConfig()
        self._timeline = timeline
        self.settings = put_in_force(self._options, timeline, os.environ)
        late = f"rank {launch.rank} of {launch.world_size} could not connect to the other ranks through Horovod"
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
                hint=(
                    "start the run with the launcher of the MPI that Horovod was built with, or with horovodrun --gloo"
                ),
            )
        self._device: torch.device | None = None
        detail = "mpi" if hvd.mpi_enabled() else "gloo"
        super().__init__(hvd.rank(), hvd.size(), hvd.local_rank(), detail, timeout_s)
        gpu = own_gpu(self.local_rank) if hvd.nccl_built() else None
        if self.broadcast_object(all_different(self.gather_objects(gpu and gpu[1]))) and gpu is not None:
            self._device = torch.device("cuda", gpu[0])
            torch.cuda.set_device(self._device)
            self.detail = "nccl"

    def start_timeline(self, path: Path) -> None:
        """See ``Communicator.start_timeline``; in Horovod, rank 0 writes the timeline and negotiates for all ranks."""
        if self._timeline and self.rank == 0:
            path.parent.mkdir(parents=True, exist_ok=True)
            hvd.start_timeline(str(path))

    def stop_timeline(self) -> None:
        """See ``Communicator.stop_timeline``."""
        if self._timeline and self.rank == 0:
            hvd.stop_timeline()

    # Horovod's own broadcast_object and allgather_object spend 60 ms per MiB on making a tensor of
    # the bytes, and name the operation after the value's type: ranks with values of different types
    # would wait for each other without an end.  Hence pickle and buffers here.

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
        return HorovodReducer(size_bytes, self._options.compression, self._options.groups, self._device)

    def _disconnect(self) -> None:
        hvd.shutdown()


def _pickled(value: Any) -> torch.Tensor:
    return torch.frombuffer(bytearray(pickle.dumps(value)), dtype=torch.uint8)
