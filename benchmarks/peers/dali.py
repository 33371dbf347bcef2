"""DALI on the CPU: its numpy reader, one file a sample."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import torch
from nvidia.dali import fn, pipeline_def

from benchmarks.peers.work import PeerWork, Start, each_sample


def write(folder: Path, raw: Path, work: PeerWork) -> None:
    for number, sample in enumerate(each_sample(raw, work)):
        np.save(folder / f"{number:09d}.npy", sample)


def start(folder: Path, raw: Path, work: PeerWork, variant: dict[str, Any]) -> Start:
    @pipeline_def(batch_size=work.batch, num_threads=variant["workers"], device_id=None)
    def pipeline() -> Any:
        return fn.readers.numpy(
            device="cpu",
            file_root=str(folder),
            file_filter="*.npy",
            random_shuffle=work.shuffled,
            name="reader",
            dont_use_mmap=work.cold,
        )

    built = pipeline()
    built.build()

    def epoch() -> Iterator[torch.Tensor]:
        for _ in range(work.samples // work.batch):
            (batch,) = built.run()
            yield torch.from_numpy(np.array(batch.as_tensor()))

    return epoch
