"""A training program with a fast loader, recorded by :mod:`benchmarks.trace_cost`.

``python loader_program.py FOLDER SAMPLES BATCH EPOCHS WORKERS`` reads files of 100 KB with some decoding (a checksum
and a copy), and prints seconds and processor seconds of its epochs.
"""

from __future__ import annotations

import sys
import time
import zlib
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

SAMPLE_BYTES = 100_000


class Files(Dataset[torch.Tensor]):
    """Samples of one file each."""

    def __init__(self, folder: Path, count: int) -> None:
        self.paths = [folder / f"{number}.bin" for number in range(count)]

    def __len__(self) -> int:
        return len(self.paths)

    def __getitem__(self, index: int) -> torch.Tensor:
        data = bytearray(self.paths[index].read_bytes())
        return torch.frombuffer(data, dtype=torch.uint8) + zlib.crc32(data) % 2


def main() -> None:
    """Reads all samples of the command line's epochs."""
    torch.set_num_threads(1)  # threads that wait for work would count as processor time
    folder, numbers = Path(sys.argv[1]), list(map(int, sys.argv[2:]))
    count, batch, epochs, workers = numbers
    loader = DataLoader(Files(folder, count), batch_size=batch, shuffle=True, num_workers=workers)
    for _ in loader:  # the page cache and the allocator are warm afterwards
        pass
    start, cpu = time.perf_counter(), time.process_time()
    for _ in range(epochs):
        for _ in loader:
            pass
    print(time.perf_counter() - start, time.process_time() - cpu)


if __name__ == "__main__":
    main()
