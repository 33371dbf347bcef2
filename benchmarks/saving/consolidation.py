"""Consolidation of parts of ranks into whole files of Hugging Face's layout, by some ranks with some threads each.

The first rank alone does what ``HuggingFaceStorageWriter`` does at the end of a save.  Several ranks call
``consolidate_safetensors_files_on_every_rank``, as torchtitan does.  A rank or thread makes whole files, so that more
of them than files are of no use.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

import torch
import torch.distributed as dist

from benchmarks.harness.rounds import Figures, Rounds, Unavailable, rotated
from benchmarks.saving.rank_processes import in_ranks
from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.checkpointer import open_checkpointer
from dlio_torch.checkpoint.layouts.huggingface.huggingface_files import file_numbers
from dlio_torch.config.compose import compose
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.environment.private_names import consolidate_on_every_rank
from dlio_torch.errors import DlioError
from dlio_torch.iotrace.recorder.spans import NULL

PARTS = 8
"""Ranks whose parts are consolidated."""
FILES = 4
"""Whole files, as many as Llama 3 8B has."""
WAYS = ((1, 1), (1, 2), (1, 4), (2, 1), (4, 1), (8, 1))
"""Ranks and threads, the baseline first."""


class _Rank(SingleCommunicator):
    """One of the ranks, which writes its part while the others do not."""

    def __init__(self, rank: int) -> None:
        super().__init__()
        self.rank, self.world_size = rank, PARTS


def consolidations(words: Sequence[str], folder: Path, rounds: int) -> Rounds:
    """Measures consolidation in interleaved rounds; files are not flushed.

    Args:
        words: the model as options of a command line, and the size of a whole file.
        folder: for the files.
        rounds: that count; one more comes before them.

    Returns:
        Figures by :func:`way_name` of each of :data:`WAYS`: seconds ``s``, and ``cpu_s``, the processor time of the
        rank that takes most, which tells how the work is divided on machines with fewer cores than ranks.

    Raises:
        Unavailable: a library is missing, or a rank failed.
    """
    settings = ["recipe=minimal", "scale=paper", "checkpoint=none", "checkpoint.layout=safetensors", *words]
    ranks = [f"parallel.data={PARTS}", "parallel.fsdp=full", "checkpoint.ranks=all", "checkpoint.every_steps=1"]
    with tempfile.TemporaryDirectory(dir=folder) as made:
        try:
            config = compose([*settings, *ranks]).config
            for rank in range(PARTS):
                open_checkpointer(SaverSetup(config, Path(made), _Rank(rank), NULL)).save(0)
        except DlioError as error:
            raise Unavailable(error.message) from error
        times = in_ranks(_rounds, PARTS, Path(made), file_numbers(config), rounds)
    measured = Rounds([way_name(*way) for way in WAYS])
    for way, figures in times:
        measured.figures[way].append(figures)
    return measured


def way_name(ranks: int, threads: int) -> str:
    """Name of a number of ranks and threads."""
    return f"{ranks} rank{'s' * (ranks > 1)}, {threads} thread{'s' * (threads > 1)}"


def _rounds(rank: int, folder: Path, numbers: dict[str, int], rounds: int) -> list[tuple[str, Figures]]:
    """Names of ways and their figures, in the order of the measurements."""
    groups = {ranks: dist.new_group(list(range(ranks)), backend="gloo") for ranks in {ranks for ranks, _ in WAYS}}
    times = []
    for turn in range(-1, rounds):
        for ranks, threads in rotated(WAYS, turn):
            target = folder / "whole"
            target.mkdir(exist_ok=True)
            dist.barrier()
            start, used = time.perf_counter(), time.process_time()
            if rank < ranks:
                consolidate_on_every_rank(folder / "checkpoint-0", target, numbers, threads, groups[ranks])
            slowest = torch.tensor(time.process_time() - used, dtype=torch.float64)
            dist.all_reduce(slowest, dist.ReduceOp.MAX)
            if turn >= 0:
                figures = {"s": time.perf_counter() - start, "cpu_s": slowest.item()}
                times.append((way_name(ranks, threads), figures))
            if rank == 0:
                shutil.rmtree(target)
            dist.barrier()
    return times
