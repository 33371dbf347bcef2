"""Trains on a table of text that pandas reads into memory at the start."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import plain_training
import torch
from torch.utils.data import DataLoader, TensorDataset


def make(folder: Path, samples: int) -> None:
    """One file of 40 columns of numbers and a label."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    table = pd.DataFrame(rng.standard_normal((samples, 40)).round(5), columns=[f"x{number}" for number in range(40)])
    table["label"] = rng.integers(0, 2, samples)
    table.to_csv(folder / "train.csv", index=False)


def main() -> None:
    args = plain_training.parse(plain_training.flags(__doc__, samples=8192, batch_size=64, workers=0))
    if args.make:
        make(args.data, args.samples)
        return
    table = pd.read_csv(args.data / "train.csv")
    labels = torch.tensor(table.pop("label").to_numpy())
    features = torch.tensor(table.to_numpy(), dtype=torch.float32)
    dataset = TensorDataset(features, labels)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers)
    training = plain_training.Training(args)
    for _ in range(args.epochs):
        for rows, _labels in loader:
            training.step(rows)
    training.report()


if __name__ == "__main__":
    main()
