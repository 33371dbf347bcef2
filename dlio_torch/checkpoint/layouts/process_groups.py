"""Gloo groups over which the ranks plan saves and loads, under any communicator."""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Iterator
from datetime import timedelta

import torch.distributed as dist
from torch.distributed import HashStore, TCPStore  # type: ignore[attr-defined]

from dlio_torch.dist.base import Communicator
from dlio_torch.errors import DlioError, RunFailed

LOOPBACK = "127.0.0.1"


class SaveGroups:
    """Process groups of a rank's saves and loads.

    torchrun's ranks use their default group; saves in the background need a group of their own, because training
    communicates at the same time (torchtitan does the same).  Ranks of Horovod or MPI, and a single process, get a
    default group over a store on the first rank.

    Args:
        comm: the ranks.
        timeout_s: longest wait for other ranks.
        background: whether saves run in the background.
        readers: number of ranks that load, the first ones.

    Attributes:
        address: host of the first rank, for the others.

    Raises:
        RunFailed: the ranks cannot connect.
    """

    def __init__(self, comm: Communicator, timeout_s: float, *, background: bool, readers: int) -> None:
        self._timeout = timedelta(seconds=timeout_s)
        self._groups: list[dist.ProcessGroup] = []
        self.address = _address(comm)
        try:
            self._is_default_ours = not dist.is_initialized()
            if self._is_default_ours:
                self._begin(comm)
            gloo = dist.get_backend() == "gloo"
            self.save = None if gloo and not background else self._new(range(comm.world_size))
            """Group of all ranks; None: the default one."""
            self.load = self.save if readers == comm.world_size else self._new(range(readers))
            """Group of the ranks that load, or None as above."""
        except (RuntimeError, ValueError, OSError) as error:
            raise cannot_connect(error) from error

    def close(self) -> None:
        """Leave the groups."""
        for group in self._groups:
            with contextlib.suppress(RuntimeError, ValueError):  # not a member
                dist.destroy_process_group(group)
        if self._is_default_ours and dist.is_initialized():
            dist.destroy_process_group()

    def _begin(self, comm: Communicator) -> None:
        """Make the default group."""
        rank, size = comm.rank, comm.world_size
        if size == 1:
            dist.init_process_group("gloo", store=HashStore(), rank=0, world_size=1, timeout=self._timeout)
            return
        store = None
        if rank == 0:
            store = TCPStore(self.address, 0, size, True, self._timeout, wait_for_workers=False)
        port = comm.broadcast_object(0 if store is None else store.port)
        if store is None:
            store = TCPStore(self.address, port, size, False, self._timeout, wait_for_workers=False)
        with _interface(self.address):
            dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=self._timeout)

    def _new(self, ranks: range) -> dist.ProcessGroup:
        group: dist.ProcessGroup = dist.new_group(list(ranks), timeout=self._timeout, backend="gloo")
        self._groups.append(group)
        return group


def cannot_connect(error: BaseException) -> DlioError:
    """The error of ranks that cannot make a group."""
    text = str(error).strip().splitlines()
    return RunFailed(
        f"the ranks cannot make a gloo group for checkpoints: {text[0] if text else type(error).__name__}",
        hint="set GLOO_SOCKET_IFNAME to a network interface that all ranks reach",
    )


def _address(comm: Communicator) -> str:
    """Name of the first rank's host, or the loopback address if all ranks are on it."""
    names = comm.gather_objects(socket.gethostname())
    return comm.broadcast_object(LOOPBACK if names is None or len(set(names)) == 1 else socket.getfqdn())


@contextlib.contextmanager
def _interface(address: str) -> Iterator[None]:
    """Let Gloo use the loopback interface if all ranks are on one host, whose name may not resolve."""
    name = "GLOO_SOCKET_IFNAME"
    if address != LOOPBACK or name in os.environ or all(card != "lo" for _, card in socket.if_nameindex()):
        yield
        return
    os.environ[name] = "lo"
    try:
        yield
    finally:
        os.environ.pop(name, None)
