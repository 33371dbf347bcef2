"""Trains on random windows of one file of tokens, which is mapped into memory."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plain_training
import torch
from torch.utils.data import DataLoader, Dataset, RandomSampler

BLOCK = 1024
"""Tokens of a window."""


class TokenDataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Windows of tokens, and the same windows one token later, which the model predicts."""

    def __init__(self, path: Path) -> None:
        self.data = np.memmap(path, dtype=np.uint16, mode="r")

    def __len__(self) -> int:
        return len(self.data) - BLOCK

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        window = torch.from_numpy(self.data[index : index + BLOCK + 1].astype(np.int64))
        return window[:-1], window[1:]


def make(folder: Path, samples: int) -> None:
    """One file of as many windows, laid side by side."""
    folder.mkdir(parents=True, exist_ok=True)
    tokens = np.random.default_rng(0).integers(0, 50257, samples * BLOCK + 1)
    tokens.astype(np.uint16).tofile(folder / "train.bin")


def main() -> None:
    args = plain_training.parse(plain_training.flags(__doc__, samples=2048, batch_size=12))
    if args.make:
        make(args.data, args.samples)
        return
    dataset = TokenDataset(args.data / "train.bin")
    sampler = RandomSampler(dataset, replacement=True, num_samples=len(dataset) // BLOCK)
    loader = DataLoader(dataset, args.batch_size, sampler=sampler, num_workers=args.workers, drop_last=True)
    training = plain_training.Training(args)
    for _ in range(args.epochs):
        for inputs, _targets in loader:
            training.step(inputs)
    training.report()


if __name__ == "__main__":
    main()
