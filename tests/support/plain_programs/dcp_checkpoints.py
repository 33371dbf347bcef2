"""Trains on NumPy files, one for each sample, and saves checkpoints by torch.distributed.checkpoint."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plain_training
import torch
import torch.distributed.checkpoint as dcp
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.utils.data import DataLoader, Dataset


class SpectrumDataset(Dataset[torch.Tensor]):
    """Spectra, each in a file of its own."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.npy"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        return torch.from_numpy(np.load(self.paths[index]))


def make(folder: Path, samples: int) -> None:
    """Files of 64 KiB."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(samples):
        np.save(folder / f"spectrum_{number:05d}.npy", rng.standard_normal(16384, np.float32))


def main() -> None:
    parser = plain_training.flags(__doc__, samples=256)
    parser.add_argument("--save-every", type=int, default=16, help="steps from checkpoint to checkpoint")
    args = plain_training.parse(parser)
    if args.make:
        make(args.data, args.samples)
        return
    model = nn.Sequential(nn.Linear(plain_training.FEATURES, 512), nn.ReLU(), nn.Linear(512, 1024), nn.Linear(1024, 1))
    training = plain_training.Training(args, model)
    loader = DataLoader(SpectrumDataset(args.data), args.batch_size, shuffle=True, num_workers=args.workers)
    for _ in range(args.epochs):
        for spectra in loader:
            training.step(spectra)
            if training.steps % args.save_every == 0:
                weights, moments = get_state_dict(training.model, training.optimizer)
                state = {"model": weights, "optimizer": moments}
                dcp.save(state, checkpoint_id=args.output / f"step_{training.steps}")
                training.end_step()
    training.report()


if __name__ == "__main__":
    main()
