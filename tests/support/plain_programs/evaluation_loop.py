"""Trains on volumes in train/, evaluates on those in val/ after each epoch, and saves the state by torch.save."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plain_training
import torch
from torch.utils.data import DataLoader, Dataset


class VolumeDataset(Dataset[torch.Tensor]):
    """Volumes, each in a NumPy archive of its own."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.npz"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        with np.load(self.paths[index]) as archive:
            return torch.from_numpy(archive["image"])


def make(folder: Path, samples: int) -> None:
    """Archives of 16 x 16 x 16 voxels, a quarter of them for the evaluation."""
    rng = np.random.default_rng(0)
    for number in range(samples):
        path = folder / ("val" if number % 4 == 3 else "train") / f"case_{number:05d}.npz"
        path.parent.mkdir(parents=True, exist_ok=True)
        np.savez(path, image=rng.standard_normal((16, 16, 16), np.float32))


@torch.no_grad()
def evaluate(training: plain_training.Training, loader: DataLoader[torch.Tensor]) -> float:
    """The mean output of the model."""
    outputs = [training.model(volumes.flatten(1)[:, : plain_training.FEATURES]).mean() for volumes in loader]
    return float(torch.stack(outputs).mean())


def save(training: plain_training.Training, folder: Path, epoch: int) -> None:
    """Save the state, and delete that of the epoch before."""
    folder.mkdir(parents=True, exist_ok=True)
    state = {"epoch": epoch, "model": training.model.state_dict(), "optimizer": training.optimizer.state_dict()}
    torch.save(state, folder / f"state_{epoch}.pt")
    (folder / f"state_{epoch - 1}.pt").unlink(missing_ok=True)


def main() -> None:
    parser = plain_training.flags(__doc__, samples=64, batch_size=4, workers=0)
    parser.add_argument("--resume", type=Path, help="file of a saved state")
    args = plain_training.parse(parser)
    if args.make:
        make(args.data, args.samples)
        return
    loader = DataLoader(VolumeDataset(args.data / "train"), args.batch_size, shuffle=True, num_workers=args.workers)
    held_out = DataLoader(VolumeDataset(args.data / "val"), 2 * args.batch_size, num_workers=args.workers)
    model = torch.nn.Sequential(torch.nn.Linear(plain_training.FEATURES, 4096), torch.nn.Linear(4096, 1))
    training = plain_training.Training(args, model)
    if args.resume is not None:
        state = torch.load(args.resume)
        training.model.load_state_dict(state["model"])
        training.optimizer.load_state_dict(state["optimizer"])
    for epoch in range(args.epochs):
        for volumes in loader:
            training.step(volumes)
        evaluate(training, held_out)
        save(training, args.output, epoch)
    training.report()


if __name__ == "__main__":
    main()
