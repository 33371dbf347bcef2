"""Loaders under a limit of open files that is too low: one line with what is needed, and exit code 3."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import BASE, Ended, FaultServer, check
from overrides import overridden

FIELDS = "dataset.fields=[" + ", ".join(f"{{name: f{number}, shape: [16]}}" for number in range(12)) + "]"
DATA = (*BASE, FIELDS, "dataset.num_files=8", "dataset.samples_per_file=8", "train.epochs=1", "train.steps=0")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    with FaultServer(tmp_path_factory.mktemp("files")) as made:
        yield made


def line(engine: str, workers: int) -> str:
    return (
        rf"loader.num_workers={workers} with loader.engine={engine}: too many open files: up to (\d+) are needed, "
        r"but the limit of a process is 64 \(ulimit -n\); "
        r"raise the limit with ulimit -n \1(,| \(an admin.*\),) or lower loader"
    )


@pytest.mark.parametrize("engine", ["dataloader", "stateful", "nodes"])
def test_a_limit_that_batches_meet_and_one_that_is_enough(engine: str, server: FaultServer, tmp_path: Path) -> None:
    options = (*DATA, f"loader.engine={engine}", "loader.num_workers=4")
    (ended,) = server.run(tmp_path, *options, limits={"RLIMIT_NOFILE": 64})
    check(ended, 3, line(engine, 4))
    found = re.search(line(engine, 4), ended.err)
    assert found is not None
    settings = overridden(*options, "output.dir=other")
    (ended,) = server.run(tmp_path, *settings, limits={"RLIMIT_NOFILE": int(found[1])})
    check(ended, 0, "")


@pytest.mark.parametrize("engine", ["stateful", "decoupled"])
def test_a_limit_that_allows_no_batch_is_refused_before_anything_is_written(
    engine: str, server: FaultServer, tmp_path: Path
) -> None:
    options = (*DATA, f"loader.engine={engine}", "loader.num_workers=32")
    (ended,) = server.run(tmp_path, *options, limits={"RLIMIT_NOFILE": 64})
    check(ended, 3, line(engine, 32))
    assert list(tmp_path.iterdir()) == []
    (ended,) = server.run(tmp_path, *options, "--dry-run", limits={"RLIMIT_NOFILE": 64})
    assert ended.code == 0
    assert re.search("not possible on this machine: " + line(engine, 32), ended.out)


def test_a_batch_with_more_files_than_can_be_open(server: FaultServer, tmp_path: Path) -> None:
    data = ("dataset=zarr", "dataset.zarr.chunk_bytes=256", "dataset.fields=[{name: x, shape: [64]}]", "scale=paper")
    options = (*BASE[:-1], *data, "dataset.num_files=1", "dataset.samples_per_file=300", "loader=decoupled")
    made, *_ = server.run(tmp_path, *overridden("generate", *options))
    assert made.code == 0, made.err
    train = ("train", *options, "train.epochs=1", "train.steps=0", "cache=as_is", "train.warmup_steps=0")

    def ended(*settings: str) -> Ended:
        return server.run(tmp_path, *overridden(*train, *settings), limits={"RLIMIT_NOFILE": 160})[0]

    refusal = r"x/c/\d+/0 cannot be read: Too many open files; raise the limit of open files \(ulimit -n, 160 here\), "
    check(ended("train.batch_size=200"), 3, refusal + "or lower loader.max_open_files or train.batch_size$")
    # Not even a loader that keeps no file open reads such a batch.
    check(ended("train.batch_size=200", "loader.max_open_files=1"), 3, refusal + "or lower train.batch_size$")
    check(ended("train.batch_size=8", "loader.max_open_files=1"), 0, "")
