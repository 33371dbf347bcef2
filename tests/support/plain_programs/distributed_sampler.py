"""Trains in two processes of torchrun, each of which reads its part of the samples of HDF5 files.

``torchrun --nproc-per-node 2 distributed_sampler.py --data DIR``; ``--make`` needs no torchrun.
"""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import plain_training
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset, DistributedSampler

PER_FILE = 256
"""Samples of a file."""


class FieldDataset(Dataset[tuple[np.ndarray, np.ndarray]]):
    """Fields of a simulation and what they become, from files that each worker opens at their first sample."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.h5"))
        self.files: dict[Path, h5py.File] = {}

    def __len__(self) -> int:
        return len(self.paths) * PER_FILE

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        path = self.paths[index // PER_FILE]
        if path not in self.files:
            self.files[path] = h5py.File(path, "r")
        file, row = self.files[path], index % PER_FILE
        return file["input"][row], file["target"][row]


def make(folder: Path, samples: int) -> None:
    """Files of 256 samples, 12 KiB each."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(max(1, samples // PER_FILE)):
        with h5py.File(folder / f"fields_{number:03d}.h5", "w") as file:
            file["input"] = rng.standard_normal((PER_FILE, 2, 32, 32), np.float32)
            file["target"] = rng.standard_normal((PER_FILE, 1, 32, 32), np.float32)


def main() -> None:
    args = plain_training.parse(plain_training.flags(__doc__, samples=1024, workers=1))
    if args.make:
        make(args.data, args.samples)
        return
    dist.init_process_group("gloo")
    dataset = FieldDataset(args.data)
    sampler: DistributedSampler[tuple[np.ndarray, np.ndarray]] = DistributedSampler(dataset)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, num_workers=args.workers, drop_last=True)
    model = DistributedDataParallel(nn.Linear(plain_training.FEATURES, 1))
    training = plain_training.Training(args, model, ranks=dist.get_world_size())
    for epoch in range(args.epochs):
        sampler.set_epoch(epoch)
        for fields, _targets in loader:
            training.step(fields)
    if dist.get_rank() == 0:
        training.report()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
