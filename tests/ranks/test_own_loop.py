"""A training loop of one's own with several ranks, started as torchrun starts them, reads each sample once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from ranks import run_ranks

PROGRAM = """
import json, os
import torch
import torch.distributed as dist
from torch.utils.data import DataLoader
import dlio_torch

dist.init_process_group("gloo")
rank, ranks = dist.get_rank(), dist.get_world_size()
config = dlio_torch.compose("minimal", ["scale=tiny", "train.batch_size=4", "loader.num_workers=1", "access=shuffled"])
seen = []
with dlio_torch.loader(config, rank=rank, world_size=ranks) as batches:
    for batch in batches:
        seen += batch["index"].tolist()
        dlio_torch.emulated_step(0.001)
        gradient = torch.ones(8)
        dist.all_reduce(gradient)
        assert gradient[0] == ranks
pipe = dlio_torch.datapipe(config, rank=rank, world_size=ranks)
piped = sum(len(batch["data"]) for batch in DataLoader(pipe, batch_size=4, num_workers=1))
json.dump([seen, piped], open(f"rank{rank}.json", "w"))
dist.barrier()
dist.destroy_process_group()
"""


@pytest.mark.ranks
def test_each_sample_is_read_by_one_rank(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(PROGRAM)
    ended = run_ranks("torch", 2, ["loop.py"], cwd=tmp_path)
    assert [rank.exit_code for rank in ended] == [0, 0], ended[0].stderr + ended[1].stderr
    results = [json.loads((tmp_path / f"rank{rank}.json").read_text()) for rank in range(2)]
    assert sorted(results[0][0] + results[1][0]) == list(range(32))
    assert [piped for _, piped in results] == [16, 16]
    assert [rank.running for rank in ended] == [(), ()]
