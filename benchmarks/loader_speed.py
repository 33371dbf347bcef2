"""Loaders against the storage: ``python benchmarks/loader_speed.py [--sizes 2000,40000] [--layouts npy] ...``.

Prints a Markdown table: for each size of a sample what every loader reaches of the bytes a second that two fio
threads reach with requests of that size, warm page cache, and in brackets the processor time of a byte over
fio's.  The loaders and fio take turns, so that other work on the machine slows all of them; a ratio is the
median over the rounds.  Without fio its place is taken by two threads that read into one small buffer each.

``limit`` is what is left when only the loader is left out: two threads that read the same batches by the same
requests into one batch's memory each.  A batch is larger than a core's cache and fio's buffer is not.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import statistics
import subprocess
import tempfile
import threading
import time
import warnings
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torchdata.nodes as tn
from torch.utils.data import DataLoader, Dataset

from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig, Hdf5Config, LoaderConfig
from dlio_torch.data.datasets import CatchingDataset, SampleDataset
from dlio_torch.data.decoupled.blocks import Blocks
from dlio_torch.data.decoupled.groups import DecoupledSource
from dlio_torch.data.layout import Manifest, generated
from dlio_torch.data.loader import BatchLoader
from dlio_torch.data.sampler import BatchSampler
from dlio_torch.formats import registry
from dlio_torch.formats.base import Format
from dlio_torch.native.places import NativeMover
from dlio_torch.trace.spans import NULL

THREADS = 2
LARGEST_BATCH = 64 << 20
LAYOUTS: dict[str, dict[str, Any]] = {
    "npy": {"format": "npy"},
    "npz": {"format": "npz"},
    "binary": {"format": "indexed_binary"},
    "hdf5": {"format": "hdf5"},
    "hdf5, chunks": {"format": "hdf5", "hdf5": Hdf5Config(chunk_bytes=65536)},
    "hdf5, gzip": {
        "format": "hdf5",
        "hdf5": Hdf5Config(chunk_bytes=65536, compression="gzip", compressibility=0.5),
    },
}
Cost = tuple[float, float]  # bytes a second, seconds of processor time a byte
Batches = Callable[[], Iterable[Any]]


class Raw(Dataset[torch.Tensor]):
    """A Dataset as a user writes it: one read a sample, made a tensor."""

    def __init__(self, path: Path, first: int, size: int, count: int) -> None:
        self._path, self._first, self._size, self._count = path, first, size, count
        self._descriptor = -1

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> torch.Tensor:
        if self._descriptor < 0:
            self._descriptor = os.open(self._path, os.O_RDONLY)
        data = bytearray(self._size)
        os.preadv(self._descriptor, [data], self._first + index * self._size)
        return torch.frombuffer(data, dtype=torch.float32)


class Case:
    """One data set, and the ways to read it."""

    def __init__(self, folder: Path, layout: str, size: int, total: int, order: str) -> None:
        self.size, self.batch = size, max(1, min(32, LARGEST_BATCH // size))
        self.samples = max(2 * THREADS, total // size // self.batch) * self.batch
        self.order = order
        data = DatasetConfig(
            root=str(folder), samples_per_file=self.samples, fields=[FieldConfig(shape=[size // 4])], **LAYOUTS[layout]
        )
        self.fmt: Format = registry.create(data, 1)
        self.manifest: Manifest = generated(Config(dataset=data), self.fmt)["train"]
        self.path = self.manifest.path(0)
        self.path.parent.mkdir(parents=True)
        with ThreadPoolExecutor() as pool:
            self.fmt.write(self.path, 0, self.samples, pool)
        self.raw = folder / "raw"
        with self.raw.open("wb") as file:
            file.write(np.random.default_rng(1).bytes(size) * self.samples)
        self.sampler = BatchSampler(num_samples=self.samples, batch_size=self.batch, order=order, seed=1)  # type: ignore[arg-type]

    @property
    def bytes(self) -> int:
        return self.samples * self.size

    def ours(self, **options: Any) -> BatchLoader:
        config = LoaderConfig(**options)
        if config.num_workers:
            config = replace(config, multiprocessing_context="fork")
        if config.engine == "decoupled":
            return BatchLoader(config, DecoupledSource(self.fmt, self.manifest, NULL), self.sampler)
        return BatchLoader(config, CatchingDataset(SampleDataset(self.fmt, self.manifest, NULL)), self.sampler)

    def plain(self, workers: int) -> Batches:
        dataset = Raw(self.raw, 0, self.size, self.samples)
        return lambda: DataLoader(dataset, batch_sampler=self.sampler, num_workers=workers)

    def nodes(self) -> Batches:
        dataset = Raw(self.raw, 0, self.size, self.samples)

        def read(indices: list[int]) -> torch.Tensor:
            return torch.stack([dataset[index] for index in indices])

        def start() -> Iterable[Any]:
            mapper = tn.ParallelMapper(tn.IterableWrapper(self.sampler), read, num_workers=THREADS, method="thread")
            return tn.Loader(tn.Prefetcher(mapper, 2))

        return start

    def limit(self) -> Batches:
        """The reads of the raw file's batches to their places in memory, and nothing else."""
        to = np.arange(self.batch, dtype=np.int64) * self.size
        return self._only_reads(to, self.batch * self.size, 1 << 20)

    def _only_reads(self, to: Any, size: int, request: int) -> Batches:
        mover, batches = NativeMover(), [np.sort(np.array(batch, np.int64)) for batch in self.sampler]
        pool = Blocks(THREADS)  # large blocks of which may be huge pages
        memory = [pool.take(size) for _ in range(THREADS)]
        lengths = np.full(self.batch, self.size, np.int64)

        def start() -> Iterator[Any]:
            with self.raw.open("rb") as file:
                which = np.full(self.batch, file.fileno(), np.int32)

                def work(thread: int) -> None:
                    for number in range(thread, len(batches), THREADS):
                        block = memory[number % len(memory)].__array_interface__["data"][0]
                        mover.read(which, batches[number] * self.size, lengths, to + block, request)

                threads = [threading.Thread(target=work, args=(number,)) for number in range(THREADS)]
                for thread in threads:
                    thread.start()
                for thread in threads:
                    thread.join()
            yield None

        return start

    def baseline(self) -> Cost:
        """What two fio threads reach."""
        if shutil.which("fio") is None:
            to = np.zeros(self.batch, np.int64)
            return measure(self._only_reads(to, self.size, self.size), self.bytes)
        loops = max(1, (256 << 20) // self.bytes)
        done = subprocess.run(
            [
                "fio", "--name=read", f"--filename={self.raw}", "--readonly", "--ioengine=psync", "--thread",
                f"--bs={self.size}", "--rw=" + ("randread" if self.order == "shuffled" else "read"),
                f"--numjobs={THREADS}", f"--size={self.bytes}", f"--loops={loops}", "--norandommap", "--direct=0",
                "--invalidate=0", "--fadvise_hint=0", "--group_reporting", "--output-format=json",
            ],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        job = json.loads(done.stdout)["jobs"][0]
        used = (job["usr_cpu"] + job["sys_cpu"]) / 100 * job["job_runtime"] / 1000
        return job["read"]["bw_bytes"], used / job["read"]["io_bytes"]

    def ways(self) -> dict[str, tuple[Batches, Callable[[], None]]]:
        """Every loader by its name, and what ends it."""
        workers = {"num_workers": 2, "persistent_workers": True}
        loaders = {
            "ours, decoupled": self.ours(engine="decoupled"),
            "ours, decoupled, 1 thread": self.ours(engine="decoupled", read_threads=1),
            "ours, dataloader": self.ours(),
            "ours, dataloader, 2 workers": self.ours(**workers),
        }
        others = {
            "limit": self.limit(),
            "torch DataLoader": self.plain(0),
            "torch DataLoader, 2 workers": self.plain(2),
            "torchdata.nodes, 2 threads": self.nodes(),
        }
        made = {name: (_epochs(loader), loader.close) for name, loader in loaders.items()}
        return made | {name: (start, _nothing) for name, start in others.items()}


def _epochs(loader: BatchLoader) -> Batches:
    return lambda: loader.epoch(0)


def _nothing() -> None:
    """There is nothing to end."""


def processor_s() -> float:
    """Processor time of this process and of the workers that have ended."""
    used = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(one.ru_utime + one.ru_stime for one in used)


def measure(start: Batches, size: int) -> Cost:
    """The rate of one epoch of ``size`` bytes; a batch is dropped when the next one is asked for."""
    began, used = time.perf_counter(), processor_s()
    for batch in start():
        del batch
    return size / (time.perf_counter() - began), (processor_s() - used) / size


def compare(case: Case, rounds: int, wanted: Sequence[str]) -> Iterator[tuple[str, float, float, float, float]]:
    """For each loader its median share of the baseline, the quartiles of it, and its relative processor time."""
    ways = {name: way for name, way in case.ways().items() if not wanted or any(one in name for one in wanted)}
    rows: dict[str, list[Cost]] = {name: [] for name in ways}
    for turn in range(rounds + 1):
        base = case.baseline()
        for name, (start, _) in ways.items():
            rate, processor = measure(start, case.bytes)
            if turn:  # the first one fills the page cache and the pools
                rows[name].append((rate / base[0], processor / base[1]))
    for name, found in rows.items():
        shares = sorted(share for share, _ in found)
        low, high = (shares[round(part * (len(shares) - 1))] for part in (0.25, 0.75))
        yield name, statistics.median(shares), low, high, statistics.median(cost for _, cost in found)
        ways[name][1]()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", default=None, help="where the files are written; default: a temporary folder")
    parser.add_argument("--sizes", default="2048,40000,262144,16777216", help="bytes of a sample")
    parser.add_argument("--layouts", default="npy", help=f"some of: {'; '.join(LAYOUTS)}; separated by ;")
    parser.add_argument("--order", default="sequential,shuffled", help="orders of samples")
    parser.add_argument("--loaders", default="", help="parts of names of loaders; default: all")
    parser.add_argument("--bytes", type=int, default=128 << 20, help="bytes of an epoch, about")
    parser.add_argument("--rounds", type=int, default=7, help="turns of each loader")
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore", category=DeprecationWarning)
    print("| layout | sample | batch | order | loader | share of two fio threads | quartiles | processor time |")
    print("|---|---|---|---|---|---|---|---|")
    wanted = [name for name in arguments.loaders.split(",") if name]
    for layout in arguments.layouts.split(";"):
        for size in map(int, arguments.sizes.split(",")):
            for order in arguments.order.split(","):
                with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
                    case = Case(Path(folder), layout, size, arguments.bytes, order)
                    for name, share, low, high, cost in compare(case, arguments.rounds, wanted):
                        what = f"| {layout} | {size} | {case.batch} | {order} | {name} "
                        print(f"{what}| {share:.2f} | {low:.2f} to {high:.2f} | {cost:.2f} |", flush=True)


if __name__ == "__main__":
    main()
