"""Trains on the samples of one HDF5 file, which is opened for each sample, or once in each worker."""

from __future__ import annotations

from pathlib import Path

import h5py
import numpy as np
import plain_training
from torch.utils.data import DataLoader, Dataset


class EventDataset(Dataset[tuple[np.ndarray, np.int64]]):
    """Detector images with the number of their class, from a file that is opened for each of them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with h5py.File(path, "r") as file:
            self.length = len(file["images"])

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        with h5py.File(self.path, "r") as file:
            return file["images"][index], file["labels"][index]


class LazyEventDataset(EventDataset):
    """The same, from a file that each worker opens at its first sample."""

    file: h5py.File | None = None

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.int64]:
        if self.file is None:
            self.file = h5py.File(self.path, "r")
        return self.file["images"][index], self.file["labels"][index]


def make(folder: Path, samples: int) -> None:
    """One file of images of 48 KiB."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    with h5py.File(folder / "train.h5", "w") as file:
        file["images"] = rng.standard_normal((samples, 3, 64, 64), np.float32)
        file["labels"] = rng.integers(0, 10, samples)


def main() -> None:
    parser = plain_training.flags(__doc__, samples=256)
    parser.add_argument("--open", choices=("sample", "worker"), default="sample", help="when the file is opened")
    args = plain_training.parse(parser)
    if args.make:
        make(args.data, args.samples)
        return
    dataset = (EventDataset if args.open == "sample" else LazyEventDataset)(args.data / "train.h5")
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers)
    training = plain_training.Training(args)
    for _ in range(args.epochs):
        for images, _labels in loader:
            training.step(images)
    training.report()


if __name__ == "__main__":
    main()
