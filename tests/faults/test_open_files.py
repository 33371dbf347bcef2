"""Loader workers under a limit of open files that is too low: one line with what is needed, and exit code 3."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from faults import BASE, FaultServer, check
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
