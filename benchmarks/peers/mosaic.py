"""MosaicML streaming: MDS shards, local."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from streaming import MDSWriter, StreamingDataLoader, StreamingDataset
from streaming.base.util import clean_stale_shared_memory

from benchmarks.peers.work import PeerWork, Start, each_sample


def write(folder: Path, raw: Path, work: PeerWork) -> None:
    with MDSWriter(out=str(folder), columns={"data": "ndarray:float32"}, exist_ok=True) as writer:
        for sample in each_sample(raw, work):
            writer.write({"data": sample})


def start(folder: Path, raw: Path, work: PeerWork, variant: dict[str, Any]) -> Start:
    clean_stale_shared_memory()
    dataset = StreamingDataset(local=str(folder), shuffle=work.shuffled, batch_size=work.batch)
    workers = variant["workers"]
    loader = StreamingDataLoader(dataset, batch_size=work.batch, num_workers=workers, persistent_workers=workers > 0)
    return lambda: loader
