"""Ranks of a benchmark, each a process, in a gloo group."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import socket
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import torch
import torch.distributed as dist

from benchmarks.harness.rounds import Unavailable

T = TypeVar("T")
_RESULT = "result"


def in_ranks(work: Callable[..., T], ranks: int, *arguments: Any) -> T:
    """Calls a function in each of some ranks, whose default process group is there; returns what the first one returns.

    Args:
        work: gets the rank and the arguments.
        ranks: number of ranks.
        arguments: that can be pickled.

    Raises:
        Unavailable: a rank failed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([work.__module__])  # torch is imported once
    with tempfile.TemporaryDirectory() as folder:
        processes = [
            context.Process(target=_rank, args=(Path(folder), rank, ranks, work, arguments)) for rank in range(ranks)
        ]
        for process in processes:
            process.start()
        for process in processes:
            process.join()
        if any(process.exitcode for process in processes):
            raise Unavailable(f"a rank of {ranks} failed")
        result: T = pickle.loads((Path(folder) / _RESULT).read_bytes())
        return result


def _rank(folder: Path, rank: int, ranks: int, work: Callable[..., object], arguments: tuple[Any, ...]) -> None:
    torch.set_num_threads(1)
    if any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    store = dist.FileStore(str(folder / "store"), ranks)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=ranks)
    result = work(rank, *arguments)
    if rank == 0:
        (folder / _RESULT).write_bytes(pickle.dumps(result))
    dist.barrier()
    dist.destroy_process_group()
