"""Ranks, each a process, that plan saves of a described job over gloo and write ``.metadata``, but no tensor."""

from __future__ import annotations

import json
import multiprocessing
import os
import socket
import tempfile
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import save

from benchmarks.harness.rounds import Unavailable
from benchmarks.saving.plan_steps import BROADCAST, EntriesWriter, StepTimes, TimedPlanner
from dlio_torch.checkpoint.layouts.dcp.job_state import job_state
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

_TIMES = "times.json"


def step_times(model: ModelConfig, parallel: ParallelConfig, saves: int) -> list[dict[str, float]]:
    """Seconds of the steps of each save on the coordinator, with cached plans.

    Args:
        model: the model and its optimizer.
        parallel: ranks of the job; each is a process.
        saves: number of saves.

    Raises:
        Unavailable: a rank failed.
    """
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload([__name__])  # torch is imported once
    with tempfile.TemporaryDirectory() as folder:
        ranks = [
            context.Process(target=_rank, args=(Path(folder), model, parallel, rank, saves))
            for rank in range(parallel.world_size)
        ]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join()
        if any(process.exitcode for process in ranks):
            raise Unavailable(f"a rank of {len(ranks)} failed")
        times: list[dict[str, float]] = json.loads((Path(folder) / _TIMES).read_text(encoding="utf-8"))
        return times


def _rank(folder: Path, model: ModelConfig, parallel: ParallelConfig, rank: int, saves: int) -> None:
    torch.set_num_threads(1)
    if any(name == "lo" for _, name in socket.if_nameindex()):
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    size = parallel.world_size
    store = dist.FileStore(str(folder / "store"), size)  # type: ignore[attr-defined]
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)
    state = job_state(model, parallel, rank, device="meta")
    times = []
    for number in range(saves):
        steps = StepTimes()
        dist.barrier()
        save(state, storage_writer=EntriesWriter(folder / str(number), steps), planner=TimedPlanner(steps))
        steps.end(BROADCAST)
        times.append(steps.seconds)
    if rank == 0:
        (folder / _TIMES).write_text(json.dumps(times), encoding="utf-8")
    dist.destroy_process_group()
