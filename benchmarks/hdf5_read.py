"""Reading HDF5 samples: ``python benchmarks/hdf5_read.py [--directory DIR] [--samples N] [--rounds N]``.

Prints a Markdown table of the rate of the format's readers over that of plain h5py slicing of the same
samples into the same kind of batch, warm page cache.  The two take turns, so that other work on the
machine slows both; the ratio is the median over the rounds.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from dlio_torch.config.schema import DatasetConfig, FieldConfig, Hdf5Config, Larcv3Config, ProducerConfig
from dlio_torch.formats.base import Format
from dlio_torch.formats.batch import BatchBuffer
from dlio_torch.formats.registry import create

BATCH = 32
Read = Callable[[list[int]], object]


def hdf5(shape: list[int], length: float = 0.0, **options: Any) -> DatasetConfig:
    field = FieldConfig("data", "float32", shape, length_mean=length, length_stdev=length / 4)
    return DatasetConfig(format="hdf5", fields=[field], hdf5=Hdf5Config(**options))


LARCV3 = Larcv3Config(
    producers=[
        ProducerConfig("sparse2d_sbnd_cosmicseg", "label", 2742, 175),
        ProducerConfig("sparse2d_sbndwire", "charge", 6641, 124),
    ]
)
LAYOUTS: dict[str, DatasetConfig] = {
    "40 KB, contiguous": hdf5([100, 100]),
    "40 KB, chunks 2 KB": hdf5([100, 100], chunk_bytes=2000),
    "40 KB, chunk = sample": hdf5([100, 100], chunk_bytes=40_000),
    "40 KB, chunks 1 MB": hdf5([100, 100], chunk_bytes=1_000_000),
    "40 KB, chunks 64 KB, gzip 4": hdf5([100, 100], chunk_bytes=80_000, compression="gzip"),
    "40 KB, variable, contiguous": hdf5([100], length=100),
    "larcv3 (Cosmic Tagger)": DatasetConfig(format="larcv3", larcv3=LARCV3),
}


def ours(fmt: Format, path: Path, *, block: bool) -> tuple[Read, Callable[[], None]]:
    reader = fmt.open(path)

    def read(samples: list[int]) -> object:
        buffer = BatchBuffer(fmt.specs(), samples)
        if block:
            reader.read(samples[0], len(samples), buffer, 0)
        else:
            for at, sample in enumerate(samples):
                reader.read(sample, 1, buffer, at)
        return buffer.finish()

    return read, reader.close


def plain(config: DatasetConfig, path: Path) -> tuple[Read, Callable[[], None]]:
    """A Dataset as tutorials show it, arrays kept open: slice each sample, stack or concatenate."""
    file = h5py.File(path, "r")
    if config.format == "larcv3":
        return plain_larcv3(config, file), file.close
    data = file["data"]
    if config.fields[0].length_mean > 0:
        extents = file["data_extents"]

        def read_variable(samples: list[int]) -> object:
            rows = [extents[sample] for sample in samples]
            return torch.cat([torch.from_numpy(data[first : first + count]) for first, count in rows])

        return read_variable, file.close
    return lambda samples: torch.stack([torch.from_numpy(data[sample]) for sample in samples]), file.close


def plain_larcv3(config: DatasetConfig, file: h5py.File) -> Read:
    ids = file["Events/event_id"]
    tables = ("extents", "voxel_extents", "image_meta", "voxels")
    groups = [[file[f"Data/{p.name}_group/{table}"] for table in tables] for p in config.larcv3.producers]

    def read(samples: list[int]) -> object:
        made = []
        for sample in samples:
            made.append(ids[sample])
            for extents, voxel_extents, image_meta, voxels in groups:
                first, count = extents[sample]
                images = voxel_extents[first : first + count]
                made.append(image_meta[first : first + count])
                made.append(np.concatenate([voxels[i["first"] : i["first"] + i["N"]] for i in images]))
        return made

    return read


def rate(read: Read, batches: list[list[int]]) -> float:
    start = time.perf_counter()
    for batch in batches:
        read(batch)
    return sum(map(len, batches)) / (time.perf_counter() - start)


def compare(config: DatasetConfig, folder: Path, samples: int, rounds: int) -> tuple[float, float, float]:
    """Samples a second of plain h5py, and what our readers reach of it by sample and by block."""
    fmt, path = create(config, 1), folder / "benchmark.h5"
    with ThreadPoolExecutor() as pool:
        fmt.write(path, 0, samples, pool)
    batches = [list(range(first, first + BATCH)) for first in range(0, samples - BATCH + 1, BATCH)]
    order = np.random.default_rng(1).permutation(len(batches)).tolist()
    batches = [batches[number] for number in order]
    rates: list[list[float]] = []
    makers = [
        lambda: plain(config, path),
        lambda: ours(fmt, path, block=False),
        lambda: ours(fmt, path, block=True),
    ]
    for turn in range(rounds + 1):
        row = []
        for make in makers:
            read, close = make()
            with ExitStack() as stack:
                stack.callback(close)
                row.append(rate(read, batches))
        if turn:  # the first one fills the page cache
            rates.append(row)
    path.unlink()
    base = statistics.median(row[0] for row in rates)
    single, block = (statistics.median(row[i] / row[0] for row in rates) for i in (1, 2))
    return base, single, block


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=None, help="where the files are written; default: a temporary folder")
    parser.add_argument("--samples", type=int, default=1024, help="samples of a file; a sixteenth for larcv3")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each reader")
    arguments = parser.parse_args()
    print("| layout | h5py slicing, samples/s | by sample | by block |")
    print("|---|---|---|---|")
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        for name, config in LAYOUTS.items():
            samples = max(BATCH, arguments.samples // (16 if config.format == "larcv3" else 1))
            base, single, block = compare(config, Path(folder), samples, arguments.rounds)
            print(f"| {name} | {base:.0f} | {single:.2f} | {block:.2f} |", flush=True)


if __name__ == "__main__":
    main()
