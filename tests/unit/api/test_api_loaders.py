"""Loaders of any engine in a training loop of one's own."""

from __future__ import annotations

import asyncio
import signal
import threading
import time
from pathlib import Path
from typing import Any

import psutil
import pytest
import torch
from torch.utils.data import DataLoader

import dlio_torch
from dlio_torch.api.loaders import Loader
from dlio_torch.config.schema import Config
from dlio_torch.errors import ConfigError, DlioError
from dlio_torch.formats.core.reader import Reader
from dlio_torch.formats.numpy.npy import NpyFormat

SMALL = ("scale=paper", "dataset.num_files=3", "dataset.samples_per_file=4", "train.batch_size=2", "access=shuffled")
ENGINES = [
    ("dataloader", 0, 0),
    ("dataloader", 2, 0),
    ("dataloader", 0, 2),
    ("stateful", 2, 0),
    ("nodes", 0, 0),
    ("nodes", 2, 0),
    ("decoupled", 0, 2),
    ("decoupled", 2, 1),
]


def config(folder: Path, *overrides: str) -> Config:
    return dlio_torch.compose("minimal", [*SMALL, f"dataset.root={folder}", *overrides])


def numbers(loader: Loader) -> list[int]:
    return [number for batch in loader for number in batch["index"].tolist()]


def children() -> set[int]:
    """Child processes other than helpers of Python and of tests."""
    names = ("resource_tracker", "forkserver", "fork_server")
    found = psutil.Process().children(recursive=True)
    return {child.pid for child in found if not any(name in " ".join(child.cmdline()) for name in names)}


def remaining_threads(expected: int) -> int:
    """Number of threads when it is ``expected``, or after ten seconds: queues end theirs after their workers."""
    end = time.monotonic() + 10
    while threading.active_count() > expected and time.monotonic() < end:
        time.sleep(0.01)
    return threading.active_count()


@pytest.mark.parametrize(("engine", "workers", "threads"), ENGINES)
def test_each_iteration_is_an_epoch_and_may_be_left(engine: str, workers: int, threads: int, tmp_path: Path) -> None:
    options = (f"loader.engine={engine}", f"loader.num_workers={workers}", f"loader.read_threads={threads}")
    before, running = children(), threading.active_count()
    with dlio_torch.loader(config(tmp_path, *options)) as loader:
        assert len(loader) == 6
        first = numbers(loader)
        for batch in loader:
            assert batch["data"].shape[0] == 2
            break
        third = numbers(loader)
        assert sorted(first) == sorted(third) == list(range(12))
        assert first != third
        loader.set_epoch(0)
        assert numbers(loader) == first
        for wrong in (-1, "1"):
            with pytest.raises(ConfigError, match="epoch="):
                loader.set_epoch(wrong)  # type: ignore[arg-type]
    assert children() <= before
    assert remaining_threads(running) <= running
    with pytest.raises(ConfigError, match="the loader is closed"):
        iter(loader)
    loader.close()


def test_engines_agree_on_the_order(tmp_path: Path) -> None:
    orders = []
    for engine in ("dataloader", "nodes", "decoupled"):
        with dlio_torch.loader(config(tmp_path, f"loader.engine={engine}")) as loader:
            orders.append((numbers(loader), numbers(loader)))
    assert orders[0] == orders[1] == orders[2]


def test_an_iteration_does_not_go_on_behind_the_next(tmp_path: Path) -> None:
    with dlio_torch.loader(config(tmp_path)) as loader:
        old = iter(loader)
        next(old)
        new = iter(loader)
        next(new)
        with pytest.raises(ConfigError, match="continued after the next one began"):
            next(old)
        assert len(list(new)) == 5


def test_a_loader_that_is_forgotten_ends_its_workers(tmp_path: Path) -> None:
    before = children()
    loader = dlio_torch.loader(config(tmp_path, "loader.num_workers=1"))
    next(iter(loader))
    assert children() > before
    del loader
    assert children() <= before


def test_ranks_have_shares(tmp_path: Path) -> None:
    shares = []
    for rank in range(2):
        with dlio_torch.loader(config(tmp_path), rank=rank, world_size=2) as loader:
            shares.append(numbers(loader))
    assert sorted(shares[0] + shares[1]) == list(range(12))
    with pytest.raises(ConfigError, match="larger than the share of each of 12 ranks"):
        dlio_torch.loader(config(tmp_path), rank=0, world_size=12)


def test_steps_and_streams_are_those_of_the_configuration(tmp_path: Path) -> None:
    with dlio_torch.loader(config(tmp_path, "train.steps=2", "access.hold_steps=2")) as loader:
        batches = list(loader)
        assert len(batches) == len(loader) == 2
        assert torch.equal(batches[0]["index"], batches[1]["index"])
    made = dlio_torch.compose("minimal", [*SMALL[:-1], "access=stream", f"dataset.root={tmp_path}"])
    with dlio_torch.loader(made) as loader:
        assert sorted(numbers(loader)) == list(range(12))


def test_it_works_in_a_thread_and_in_a_running_event_loop(tmp_path: Path) -> None:
    made = config(tmp_path, "loader.num_workers=1")
    list(DataLoader(dlio_torch.dataset(made), num_workers=1))  # torch's handler of SIGCHLD is installed now
    results: list[list[int]] = []

    def read() -> None:
        with dlio_torch.loader(made) as loader:
            results.append(numbers(loader))

    thread = threading.Thread(target=read)
    thread.start()
    thread.join()

    async def cell() -> None:
        read()

    asyncio.run(cell())
    assert [sorted(result) for result in results] == [list(range(12))] * 2


def test_the_handlers_of_the_program_stay(tmp_path: Path) -> None:
    list(DataLoader([1, 2], num_workers=1))  # type: ignore[arg-type]
    before = {number: signal.getsignal(number) for number in signal.valid_signals()}
    first, second = (dlio_torch.loader(config(tmp_path, "loader.num_workers=1")) for _ in range(2))
    numbers(first)
    numbers(second)
    first.close()
    second.close()
    assert {number: signal.getsignal(number) for number in signal.valid_signals()} == before


@pytest.mark.parametrize("workers", [0, 1])
def test_a_damaged_file_is_an_error(workers: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    made = config(tmp_path, f"loader.num_workers={workers}")
    with dlio_torch.loader(made) as loader:
        path = next(tmp_path.rglob("train_0000001*"))
        content = path.read_bytes()
        path.write_bytes(b"no HDF5")
        with pytest.raises(DlioError, match=path.name):
            numbers(loader)
        path.write_bytes(content)
        assert sorted(numbers(loader)) == list(range(12))
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("engine", "workers"), [("dataloader", 2), ("decoupled", 0)])
def test_a_stream_of_blocks_gives_each_sample_once_with_its_content(engine: str, workers: int, tmp_path: Path) -> None:
    stream = (
        "access.pattern=stream",
        "access.partition=files",
        "access.unit=block",
        "access.block_samples=2",
        "verify=true",
    )
    options = (f"loader.engine={engine}", f"loader.num_workers={workers}")
    with dlio_torch.loader(config(tmp_path, *stream, *options)) as loader:
        batches = [sorted(batch["index"].tolist()) for batch in loader]
    assert sorted(first for first, _ in batches) == list(range(0, 12, 2))
    assert all(second == first + 1 for first, second in batches)


@pytest.mark.parametrize(("probed", "opens"), [("none", 3), ("first", 4), ("all", 6)])
def test_files_are_probed_before_training(
    probed: str, opens: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: list[Path] = []
    original = NpyFormat.open

    def noted(fmt: NpyFormat, path: Path, *rest: Any) -> Reader:
        opened.append(path)
        return original(fmt, path, *rest)

    monkeypatch.setattr(NpyFormat, "open", noted)
    with dlio_torch.loader(config(tmp_path, "dataset.format=npy", f"loader.probe_files={probed}")) as loader:
        assert sorted(numbers(loader)) == list(range(12))
    assert len(opened) == opens
