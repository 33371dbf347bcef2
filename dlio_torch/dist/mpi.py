"""The communicator over MPI, by mpi4py: for ranks started by mpiexec, mpirun or srun, or a single process.

Reading through MPI-IO needs this, or Horovod's MPI controller (:mod:`dlio_torch.dist.mpiworld`).
"""

from __future__ import annotations

import contextlib
import faulthandler
import os
import pickle
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from dlio_torch.dist.base import GradientReducer, element_count
from dlio_torch.dist.launcher import Launch
from dlio_torch.dist.mpiworld import MPI, version_line
from dlio_torch.dist.ranked import RankedCommunicator, first_line
from dlio_torch.errors import ConfigError, RunFailed

_BUCKET = 25 * 2**18
"""Elements of a bucket: 25 MiB, as torch's DistributedDataParallel cuts a gradient."""

_MOST = 2**30  # bytes of one message: counts of MPI before its version 4 are 32-bit
_POLL_S = 0.001


class MpiReducer:
    """Averages a gradient in buckets, all in flight at once (``MPI_Iallreduce``), as torch's DDP does."""

    def __init__(self, world: Any, size_bytes: int) -> None:
        count = element_count(size_bytes)
        self.size_bytes = count * 4
        self.gradient = [torch.zeros(min(_BUCKET, count - first)) for first in range(0, count, _BUCKET)]
        self._arrays = [part.numpy() for part in self.gradient]  # the same memory
        self._world = world

    def step(self) -> None:
        """See ``GradientReducer.step``."""
        requests = [self._world.Iallreduce(MPI.IN_PLACE, array, MPI.SUM) for array in self._arrays]
        MPI.Request.Waitall(requests)
        for array in self._arrays:
            np.divide(array, self._world.size, out=array)


class MpiCommunicator(RankedCommunicator):
    """The :class:`Communicator` over MPI.

    MPI is initialised for calls of one thread (``MPI_THREAD_FUNNELED``): the failure channel and its threads end
    a process without a call of MPI.  ``close`` finalises it; a rank that fails does not, so that the launcher
    ends the rest of the job.  Messages have a communicator of their own.

    Args:
        launch: how this process was started.
        timeout_s: longest wait for the other ranks, at the start and in a collective.

    Raises:
        ConfigError: MPI sees another number of ranks than the launcher started.
        RunFailed: the ranks cannot connect.
    """

    name = "mpi"

    def __init__(self, launch: Launch, timeout_s: float) -> None:
        late = f"rank {launch.rank} of {launch.world_size} could not connect to the other ranks through MPI"
        try:
            with _native_deadline(timeout_s, f"{late} within {timeout_s:g} s"):
                # A library that initialised MPI before may have asked for more threads, never for fewer.
                self._initialised = not MPI.Is_initialized()
                if self._initialised:
                    MPI.Init_thread(MPI.THREAD_FUNNELED)
                if MPI.COMM_WORLD.size == launch.world_size:
                    self._world = MPI.COMM_WORLD.Dup()
        except MPI.Exception as error:
            raise RunFailed(f"{late}: {first_line(error)}") from error
        size = MPI.COMM_WORLD.size
        if size != launch.world_size:
            raise ConfigError(
                f"{launch.name} started {launch.world_size} ranks, but MPI sees {size}",
                hint=f"start the ranks with the mpiexec of the MPI that mpi4py loads ({version_line()}); under Slurm "
                "with srun --mpi=pmi2 or --mpi=pmix, whichever that MPI supports",
            )
        shared = self._world.Split_type(MPI.COMM_TYPE_SHARED, self._world.rank)
        local_rank = shared.rank
        shared.Free()
        super().__init__(self._world.rank, size, local_rank, "mpi", timeout_s)

    # Pickles travel as bytes in pieces: mpi4py's own object calls count bytes in 32 bits, too.

    def _barrier(self) -> None:
        self._world.Barrier()

    def _broadcast(self, value: Any, root: int) -> Any:
        payload = pickle.dumps(value) if self.rank == root else b""
        size = np.array([len(payload)], np.int64)
        # The root may work for a long time first: MPI's own wait would keep a core busy that its work needs.
        _wait(self._world.Ibcast(size, root))
        data = np.frombuffer(payload, np.uint8).copy() if self.rank == root else np.empty(int(size[0]), np.uint8)
        for first in range(0, len(data), _MOST):
            self._world.Bcast(data[first : first + _MOST], root)
        return pickle.loads(data.data)

    def _gather(self, value: Any, root: int) -> list[Any] | None:
        payload = np.frombuffer(pickle.dumps(value), np.uint8)
        size = np.array([len(payload)], np.int64)
        sizes = np.empty(self._world.size, np.int64)
        self._world.Gather(size, sizes, root)
        if self.rank != root:
            for first in range(0, len(payload), _MOST):
                self._world.Send(payload[first : first + _MOST], root)
            return None
        return [value if rank == root else self._received(rank, int(sizes[rank])) for rank in range(len(sizes))]

    def _received(self, rank: int, size: int) -> Any:
        data = np.empty(size, np.uint8)
        for first in range(0, size, _MOST):
            self._world.Recv(data[first : first + _MOST], rank)
        return pickle.loads(data.data)

    def _allreduce(self, tensor: torch.Tensor) -> None:
        flat = tensor.detach().cpu().reshape(-1).numpy()
        step = _MOST // flat.itemsize
        for first in range(0, len(flat), step):
            self._world.Allreduce(MPI.IN_PLACE, flat[first : first + step], MPI.SUM)
        if tensor.device.type != "cpu":
            tensor.copy_(torch.from_numpy(flat).reshape(tensor.shape))

    def _reducer(self, size_bytes: int) -> GradientReducer:
        return MpiReducer(self._world, size_bytes)

    def _disconnect(self) -> None:
        self._world.Free()
        if self._initialised and not MPI.Is_finalized():
            MPI.Finalize()


def _wait(request: Any) -> None:
    """Wait for a message with an idle core; it may arrive a millisecond before the return."""
    while not request.Test():
        time.sleep(_POLL_S)


@contextlib.contextmanager
def _native_deadline(timeout_s: float, line: str) -> Iterator[None]:
    """Like ``timeouts.deadline``, but for a call that holds the interpreter lock, as mpi4py's ``MPI_Init_thread`` does.

    The thread of faulthandler's watchdog needs no interpreter: it ends the process with exit code 1.  Its stacks
    go to a shell, which prints the line instead.
    """
    read_end, write_end = os.pipe()
    try:
        shell = ["sh", "-c", 'read -r _ && printf "%s\\n" "$0" >&2', line]
        process = subprocess.Popen(shell, stdin=read_end)
    finally:
        os.close(read_end)
    faulthandler.dump_traceback_later(timeout_s, exit=True, file=write_end)
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        os.close(write_end)
        process.wait()
