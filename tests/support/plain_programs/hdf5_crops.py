"""Trains on random crops of volumes, which lie chunked and compressed in HDF5 files."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import plain_training
import torch
from torch.utils.data import DataLoader, Dataset

EDGE = 32
"""Voxels of a crop along each axis."""


class CropDataset(Dataset[torch.Tensor]):
    """Crops at random places: as many of each volume as fit into it without an overlap."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.h5"))
        self.files: dict[Path, h5py.File] = {}
        with h5py.File(self.paths[0], "r") as file:
            self.shape = file["raw"].shape
        self.crops_per_volume = int(np.prod([size // EDGE for size in self.shape]))

    def __len__(self) -> int:
        return len(self.paths) * self.crops_per_volume

    def __getitem__(self, index: int) -> torch.Tensor:
        path = self.paths[index // self.crops_per_volume]
        if path not in self.files:
            self.files[path] = h5py.File(path, "r")
        z, y, x = (int(torch.randint(size - EDGE + 1, ())) for size in self.shape)
        crop = self.files[path]["raw"][z : z + EDGE, y : y + EDGE, x : x + EDGE]
        return torch.from_numpy(crop).float().div(255).unsqueeze(0)


def make(folder: Path, samples: int) -> None:
    """Volumes of 64 x 128 x 128 bytes, each of which has 32 crops; of smooth values, which gzip can compress."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for number in range(max(1, samples // 32)):
        coarse = rng.integers(0, 256, (8, 16, 16)).astype(np.uint8)
        volume = coarse.repeat(8, 0).repeat(8, 1).repeat(8, 2) ^ rng.integers(0, 8, (64, 128, 128), np.uint8)
        with h5py.File(folder / f"volume_{number:03d}.h5", "w") as file:
            file.create_dataset("raw", data=volume, chunks=(16, 32, 32), compression="gzip")


def main() -> None:
    args = plain_training.parse(plain_training.flags(__doc__, samples=256))
    if args.make:
        make(args.data, args.samples)
        return
    loader = DataLoader(CropDataset(args.data), args.batch_size, shuffle=True, num_workers=args.workers)
    training = plain_training.Training(args)
    for _ in range(args.epochs):
        for crops in loader:
            training.step(crops)
    training.report()


if __name__ == "__main__":
    main()
