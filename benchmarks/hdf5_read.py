"""Measures HDF5 reads: this package's readers compared with plain h5py slicing of the same samples and batches.

Warm page cache; ratios are to plain slicing in the same round.
"""

from __future__ import annotations

import tempfile
import time
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import h5py
import numpy as np
import torch

from benchmarks.harness.command import alone
from benchmarks.harness.rounds import Figures, interleave, rounds_of, say
from benchmarks.harness.tables import Row, Table
from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.batch import BatchBuffer
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.hdf5.options import Hdf5Config
from dlio_torch.formats.larcv3.options import Larcv3Config, ProducerConfig

NAME = "hdf5_read"
BATCH = 32
PLAIN = "h5py slicing"
Read = Callable[[list[int]], object]
Reader = tuple[Read, Callable[[], None]]
"""Reads a batch; closes its file."""


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


def ours(fmt: Format, path: Path, *, block: bool) -> Reader:
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


def plain(config: DatasetConfig, path: Path) -> Reader:
    """A Dataset as in tutorials, with open arrays: slices each sample, then stacks or concatenates."""
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


def rate(make: Callable[[], Reader], batches: list[list[int]]) -> Figures:
    read, close = make()
    try:
        start = time.perf_counter()
        for batch in batches:
            read(batch)
        return {"samples_per_s": sum(map(len, batches)) / (time.perf_counter() - start)}
    finally:
        close()


def compare(layout: str, config: DatasetConfig, folder: Path, samples: int, rounds: int) -> Table:
    """Measures samples per second of plain h5py, and of this package's readers relative to it."""
    fmt, path = create(config, 1), folder / "benchmark.h5"
    with ThreadPoolExecutor() as pool:
        fmt.write(path, 0, samples, pool)
    batches = [list(range(first, first + BATCH)) for first in range(0, samples - BATCH + 1, BATCH)]
    order = np.random.default_rng(1).permutation(len(batches)).tolist()
    batches = [batches[number] for number in order]
    found = interleave(
        {
            PLAIN: lambda: rate(lambda: plain(config, path), batches),
            "by sample": lambda: rate(lambda: ours(fmt, path, block=False), batches),
            "by block": lambda: rate(lambda: ours(fmt, path, block=True), batches),
        },
        rounds,
    )
    path.unlink()
    rows: list[Row] = [
        {
            "layout": layout,
            "reader": name,
            "samples/s": found.spread(name, "samples_per_s"),
            f"of {PLAIN}": found.ratio(name, "samples_per_s", PLAIN),
        }
        for name in found.figures
    ]
    return Table(NAME, rows)


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--samples", type=int, help="samples per file, 1024; a sixteenth of it for larcv3")


def run(arguments: Namespace) -> Iterator[Table]:
    asked = arguments.samples or (BATCH if arguments.quick else 1024)
    for layout, config in LAYOUTS.items():
        if arguments.quick and config.format == "larcv3":
            continue  # its samples are large
        say(layout)
        samples = max(BATCH, asked // (16 if config.format == "larcv3" else 1))
        with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
            yield compare(layout, config, Path(folder), samples, rounds_of(arguments))


if __name__ == "__main__":
    alone(NAME)
