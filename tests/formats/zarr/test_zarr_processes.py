"""zarr-python reads in threads of its own, which must survive forks and several readers."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from torch.utils.data import DataLoader, Dataset

from dlio_torch.config.schema import DatasetConfig, FieldConfig
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.testing.contract import check_batch, read, write
from dlio_torch.formats.zarr.options import ZarrConfig

zarr = pytest.importorskip("zarr", minversion="3", reason="zarr 3 is not installed")

SAMPLES = 24


def store(folder: Path, options: ZarrConfig) -> tuple[Format, Path]:
    config = DatasetConfig(format="zarr", fields=[FieldConfig("data", "int64", [40])], zarr=options)
    fmt = create(config, 3)
    return fmt, write(fmt, folder / "a.zarr", 0, SAMPLES)


class Samples(Dataset[int]):
    """Sums of the samples of a store that the parent process has open, too."""

    def __init__(self, fmt: Format, reader: Reader) -> None:
        self._fmt = fmt
        self._reader = reader

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> int:
        return int(read(self._fmt, self._reader, [index])["data"].numpy().astype(np.uint64).sum() % 1000)


def test_a_fork_while_threads_of_the_parent_read(tmp_path: Path) -> None:
    fmt, path = store(tmp_path, ZarrConfig(chunk_bytes=320))
    done = threading.Event()

    def busy() -> None:
        with closing(fmt.open(path)) as reader:
            while not done.is_set():
                read(fmt, reader, [5])

    with closing(fmt.open(path)) as reader, ThreadPoolExecutor(2) as pool:
        samples = Samples(fmt, reader)
        want = [samples[index] for index in range(SAMPLES)]
        others = [pool.submit(busy) for _ in range(2)]
        try:
            loader = DataLoader(samples, batch_size=4, num_workers=2, multiprocessing_context="fork", timeout=60)
            got = [number for _ in range(2) for batch in loader for number in batch.tolist()]
        finally:
            done.set()
        for other in others:
            other.result()
    assert got == 2 * want


def test_threads_share_the_loop_of_the_library(tmp_path: Path) -> None:
    fmt, path = store(tmp_path, ZarrConfig(chunk_bytes=700, compression="zstd"))

    def check(first: int) -> None:
        with closing(fmt.open(path)) as reader:
            rows = [(first + step) % SAMPLES for step in range(SAMPLES)]
            check_batch(fmt, read(fmt, reader, rows), rows)

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(check, range(8)))


def test_the_settings_of_a_store_are_those_of_its_last_opening(tmp_path: Path) -> None:
    fmt, path = store(tmp_path, ZarrConfig(concurrency=3))
    before = zarr.config.get("async.concurrency"), zarr.config.get("threading.max_workers")
    try:
        fmt.open(path).close()
        assert (zarr.config.get("async.concurrency"), zarr.config.get("threading.max_workers")) == (3, None)
        other = create(DatasetConfig(format="zarr", fields=fmt.config.fields, zarr=ZarrConfig(max_workers=2)), 3)
        other.open(path).close()
        assert (zarr.config.get("async.concurrency"), zarr.config.get("threading.max_workers")) == (10, 2)
    finally:
        zarr.config.set({"async.concurrency": before[0], "threading.max_workers": before[1]})
