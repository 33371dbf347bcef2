"""webdataset: shards are tar files with one member per sample, read from start to end."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
import webdataset as wds
from torch.utils.data import DataLoader

from benchmarks.peers.work import SHARDS, PeerWork, Start, each_sample

POOL = 1000


def write(folder: Path, raw: Path, work: PeerWork) -> None:
    each = -(-work.samples // SHARDS)
    with wds.ShardWriter(str(folder / "%03d.tar"), maxcount=each, maxsize=1 << 60, verbose=0) as writer:
        for number, sample in enumerate(each_sample(raw, work)):
            writer.write({"__key__": f"{number:09d}", "bin": sample.tobytes()})


def start(folder: Path, raw: Path, work: PeerWork, variant: dict[str, Any]) -> Start:
    shards = [str(path) for path in sorted(folder.glob("*.tar"))]
    dataset = wds.WebDataset(shards, shardshuffle=len(shards) if work.shuffled else False, empty_check=False)
    if work.shuffled:
        dataset = dataset.shuffle(min(POOL, work.samples))
    dataset = dataset.map(_array).batched(work.batch, collation_fn=_stack)
    workers = variant["workers"]
    loader = DataLoader(dataset, batch_size=None, num_workers=workers, persistent_workers=workers > 0)
    return lambda: loader


def _array(sample: dict[str, Any]) -> Any:
    return np.frombuffer(sample["bin"], np.float32)


def _stack(samples: list[Any]) -> torch.Tensor:
    return torch.from_numpy(np.stack(samples))
