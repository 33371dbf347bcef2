"""Trains on the rows of Parquet files, which workers read by row groups in shuffled order."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import plain_training
import pyarrow as pa
import pyarrow.parquet as pq
import torch
from torch.utils.data import DataLoader, IterableDataset, get_worker_info

ROW_GROUP = 64
"""Rows of a group."""


class ParquetRows(IterableDataset[tuple[torch.Tensor, int, int]]):
    """Rows of all files: row groups in shuffled order, dealt to the workers."""

    def __init__(self, folder: Path) -> None:
        self.paths = sorted(folder.glob("*.parquet"))
        groups = {path: pq.ParquetFile(path).num_row_groups for path in self.paths}
        self.groups = [(path, group) for path, count in groups.items() for group in range(count)]
        self.seed, self.epoch = random.randrange(1 << 30), 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[tuple[torch.Tensor, int, int]]:
        worker = get_worker_info()
        number, workers = (0, 1) if worker is None else (worker.id, worker.num_workers)
        groups = list(self.groups)
        random.Random(self.seed + self.epoch).shuffle(groups)
        for path, group in groups[number::workers]:
            table = pq.ParquetFile(path).read_row_group(group, columns=["features", "label", "id"])
            features = table["features"].combine_chunks().flatten().to_numpy().reshape(len(table), -1)
            labels, ids = table["label"].to_pylist(), table["id"].to_pylist()
            for row in random.sample(range(len(table)), len(table)):
                yield torch.from_numpy(features[row].copy()), labels[row], ids[row]


def make(folder: Path, samples: int) -> None:
    """Four files of rows of 256 numbers, a label and a number of the row."""
    folder.mkdir(parents=True, exist_ok=True)
    rng = np.random.default_rng(0)
    for file, ids in enumerate(np.array_split(np.arange(samples), 4)):
        values = pa.array(rng.standard_normal(256 * len(ids), np.float32))
        columns = {
            "id": pa.array(ids),
            "features": pa.FixedSizeListArray.from_arrays(values, 256),
            "label": pa.array(rng.integers(0, 10, len(ids))),
        }
        pq.write_table(pa.table(columns), folder / f"part-{file:05d}.parquet", row_group_size=ROW_GROUP)


def main() -> None:
    args = plain_training.parse(plain_training.flags(__doc__, samples=4096, batch_size=32))
    if args.make:
        make(args.data, args.samples)
        return
    dataset = ParquetRows(args.data)
    loader = DataLoader(dataset, args.batch_size, num_workers=args.workers)
    training = plain_training.Training(args)
    for epoch in range(args.epochs):
        dataset.set_epoch(epoch)
        for features, _labels, ids in loader:
            if args.print_indices:
                plain_training.print_indices(ids.tolist())
            training.step(features)
    training.report()


if __name__ == "__main__":
    main()
