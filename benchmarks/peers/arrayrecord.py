"""Grain over ArrayRecord files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import grain
import numpy as np
from array_record.python.array_record_module import ArrayRecordWriter

from benchmarks.peers.work import PeerWork, Start, each_sample


def write(folder: Path, raw: Path, work: PeerWork) -> None:
    writer = ArrayRecordWriter(str(folder / "data.array_record"), "group_size:1,uncompressed")
    for sample in each_sample(raw, work):
        writer.write(sample.tobytes())
    writer.close()


def start(folder: Path, raw: Path, work: PeerWork, variant: dict[str, Any]) -> Start:
    dataset = grain.MapDataset.source(grain.sources.ArrayRecordDataSource(str(folder / "data.array_record")))
    if work.shuffled:
        dataset = dataset.shuffle(seed=1)
    loader = dataset.map(_array).batch(work.batch).to_iter_dataset()
    if variant["workers"]:
        loader = loader.mp_prefetch(grain.MultiprocessingOptions(num_workers=variant["workers"]))
    return lambda: iter(loader)


def _array(record: bytes) -> Any:
    return np.frombuffer(record, np.float32)
