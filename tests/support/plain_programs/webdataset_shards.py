"""Trains on tar shards of images through the library webdataset."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import plain_training
import torch
import webdataset
from torch.utils.data import DataLoader

SHARD = 64
"""Samples of a shard."""


def shuffled_images(folder: Path, batch_size: int) -> Any:
    shards = sorted(str(path) for path in folder.glob("*.tar"))
    return (
        webdataset.WebDataset(shards, shardshuffle=100)
        .shuffle(1000)
        .decode("torchrgb")
        .to_tuple("jpg", "cls", "__key__")
        .batched(batch_size)
    )


def make(folder: Path, samples: int) -> None:
    """Shards of 64 JPEG images of about 25 KB."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    with webdataset.ShardWriter(f"{folder}/train-%06d.tar", maxcount=SHARD, verbose=0) as shards:
        for number in range(samples):
            coarse = rng.integers(0, 208, (14, 14, 3)).repeat(16, 0).repeat(16, 1)
            image = (coarse + rng.integers(0, 48, (224, 224, 3))).astype(np.uint8)
            shards.write({"__key__": f"{number:08d}", "jpg": image, "cls": int(rng.integers(10))})


def main() -> None:
    args = plain_training.parse(plain_training.flags(__doc__, samples=256))
    if args.make:
        make(args.data, args.samples)
        return
    loader: DataLoader[tuple[torch.Tensor, torch.Tensor, list[str]]] = DataLoader(
        shuffled_images(args.data, args.batch_size), batch_size=None, num_workers=args.workers
    )
    training = plain_training.Training(args)
    for _ in range(args.epochs):
        for images, _labels, keys in loader:
            if args.print_indices:
                plain_training.print_indices(keys)
            training.step(images)
    training.report()


if __name__ == "__main__":
    main()
