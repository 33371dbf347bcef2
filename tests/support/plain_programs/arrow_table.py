"""Trains on a Hugging Face data set that was saved to disk: tokenised text in Arrow files."""

from __future__ import annotations

from pathlib import Path

import datasets
import numpy as np
import plain_training
from torch.utils.data import DataLoader


def make(folder: Path, samples: int) -> None:
    """Rows of 512 tokens and a label."""
    rng = np.random.default_rng(0)
    columns = {
        "input_ids": rng.integers(0, 30522, (samples, 512), np.int32),
        "attention_mask": np.ones((samples, 512), np.int8),
        "label": rng.integers(0, 2, samples),
    }
    datasets.disable_progress_bars()
    datasets.Dataset.from_dict(columns).save_to_disk(folder)


def main() -> None:
    args = plain_training.parse(plain_training.flags(__doc__, samples=2048, batch_size=16))
    if args.make:
        make(args.data, args.samples)
        return
    dataset = datasets.load_from_disk(args.data)
    dataset.set_format("torch", columns=["input_ids", "attention_mask", "label"])
    loader = DataLoader(dataset, args.batch_size, shuffle=True, num_workers=args.workers)
    training = plain_training.Training(args)
    for _ in range(args.epochs):
        for batch in loader:
            training.step(batch["input_ids"])
    training.report()


if __name__ == "__main__":
    main()
