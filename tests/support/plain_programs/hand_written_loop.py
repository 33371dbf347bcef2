"""Trains on files of binary records without a DataLoader: a thread reads batches ahead of the loop."""

from __future__ import annotations

import queue
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import plain_training
import torch

SIDE = 96
RECORD = 1 + 3 * SIDE * SIDE
"""Bytes of a record: a label and an image."""


def read_batches(paths: list[Path], batch_size: int) -> Iterator[np.ndarray]:
    """Batches of consecutive records; those that do not fill a batch at the end of a file are left out."""
    for path in random.sample(paths, len(paths)):
        with open(path, "rb") as file:
            while len(block := file.read(batch_size * RECORD)) == batch_size * RECORD:
                yield np.frombuffer(block, np.uint8).reshape(batch_size, RECORD)


def read_ahead(paths: list[Path], batch_size: int, batches: int) -> Iterator[np.ndarray]:
    """The same, read by a thread, up to so many batches ahead."""
    ready: queue.Queue[np.ndarray | None] = queue.Queue(batches)

    def fill() -> None:
        for batch in read_batches(paths, batch_size):
            ready.put(batch)
        ready.put(None)

    threading.Thread(target=fill, daemon=True).start()
    while (batch := ready.get()) is not None:
        yield batch


def make(folder: Path, samples: int) -> None:
    """Four files of records of 27 KiB; an image begins with the number of its record."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for file, numbers in enumerate(np.array_split(np.arange(samples, dtype="<u4"), 4)):
        records = rng.integers(0, 256, (len(numbers), RECORD), np.uint8)
        records[:, 1:5] = numbers.view(np.uint8).reshape(-1, 4)
        records.tofile(folder / f"batch_{file}.bin")


def main() -> None:
    args = plain_training.parse(plain_training.flags(__doc__, samples=512, batch_size=16, workers=1))
    if args.make:
        make(args.data, args.samples)
        return
    paths = sorted(args.data.glob("*.bin"))
    training = plain_training.Training(args)
    for _ in range(args.epochs):
        ahead = read_ahead(paths, args.batch_size, 2) if args.workers else read_batches(paths, args.batch_size)
        for records in ahead:
            if args.print_indices:
                plain_training.print_indices(records[:, 1:5].copy().view("<u4").ravel().tolist())
            training.step(torch.from_numpy(records[:, 1:].copy()).float().div(255))
    training.report()


if __name__ == "__main__":
    main()
