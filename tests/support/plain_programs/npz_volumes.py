"""Trains on medical volumes, each with its mask in a NumPy archive of its own."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import plain_training
import torch
from torch.utils.data import DataLoader, Dataset


class VolumeDataset(Dataset[tuple[torch.Tensor, torch.Tensor]]):
    """Volumes with their masks, normalised and flipped at random."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.npz"))

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> tuple[torch.Tensor, torch.Tensor]:
        with np.load(self.paths[index]) as archive:
            image, mask = archive["image"], archive["mask"]
        image = (image - image.mean()) / image.std()
        if torch.rand(()) < 0.5:
            image, mask = image[:, ::-1].copy(), mask[:, ::-1].copy()
        return torch.from_numpy(image).unsqueeze(0), torch.from_numpy(mask)


def make(folder: Path, samples: int) -> None:
    """Archives of 48 x 48 x 48 voxels, 540 KiB each."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(samples):
        image = rng.standard_normal((48, 48, 48), np.float32)
        np.savez(folder / f"case_{number:05d}.npz", image=image, mask=(image > 2).astype(np.uint8))


def main() -> None:
    args = plain_training.parse(plain_training.flags(__doc__, samples=48, batch_size=2))
    if args.make:
        make(args.data, args.samples)
        return
    dataset = VolumeDataset(args.data)
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers, drop_last=True)
    training = plain_training.Training(args)
    for _ in range(args.epochs):
        for images, _masks in loader:
            training.step(images)
    training.report()


if __name__ == "__main__":
    main()
