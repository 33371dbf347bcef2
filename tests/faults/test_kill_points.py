"""A sample of the kill points of ``python -m benchmarks kill_points``, and that it would find what it looks for."""

from __future__ import annotations

import gzip
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.kill_points import draw
from benchmarks.kills.cases import CASES
from benchmarks.kills.counting import Counting, library
from benchmarks.kills.nursery import Nursery
from benchmarks.kills.point import Draw, Folder, Start, count, forked, prepare, strike
from benchmarks.kills.readable import broken
from dlio_torch.native.build import find_compiler

CASE = {case.name: case for case in CASES}

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="the library that counts calls needs a C compiler")


@pytest.fixture(scope="module")
def counter(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return library(tmp_path_factory.mktemp("library"))


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder with a short name: sockets of workers lie in it."""
    with tempfile.TemporaryDirectory(prefix="kill-") as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def start(counter: Path) -> Iterator[Start]:
    nursery = Nursery(counter)
    yield forked(nursery)
    nursery.close()


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("name", "points"),
    [
        ("generate", [(0.5, signal.SIGKILL, "main"), (0.9, signal.SIGTERM, "main")]),
        ("stage", [(0.4, signal.SIGKILL, "group")]),
        ("checkpoint, files", [(0.8, signal.SIGINT, "group")]),
        ("train, workers", [(0.7, signal.SIGKILL, "other")]),
        ("train, nodes", [(0.7, signal.SIGKILL, "main")]),
    ],
)
def test_what_is_killed_leaves_nothing_broken_and_can_be_done_again(
    name: str, points: list[tuple[float, signal.Signals, str]], start: Start, counter: Path, place: Path
) -> None:
    case, template = CASE[name], Folder(place / "before")
    prepare(case, template, start)
    calls = count(case, template, Folder(place / "counted"), counter, start)
    assert calls[0] > calls[1] > 50
    for number, (part, sent, victim) in enumerate(points):
        point = Draw(case, int(part * calls[1]), True, sent, victim)  # type: ignore[arg-type]
        outcome = strike(point, template, Folder(place / str(number)), counter, start)
        assert outcome.problems == []
        assert outcome.struck or victim == "other"


def test_points_are_drawn_alike_and_lie_everywhere() -> None:
    calls = {case.name: (1000, 100) for case in CASES}
    drawn = draw(CASES, calls, 200, seed=1)
    assert drawn == draw(CASES, calls, 200, seed=1) != draw(CASES, calls, 200, seed=2)
    assert drawn[:50] == draw(CASES, calls, 50, seed=1)
    assert {point.case.name for point in drawn} >= {case.name for case in CASES if case.weight}
    assert {point.number for point in drawn} == {signal.SIGKILL, signal.SIGTERM, signal.SIGINT, signal.SIGHUP}
    assert {point.victim for point in drawn} == {"main", "group", "other"}
    changing = [point.call for point in drawn if point.changes]
    assert min(changing) < 10
    assert 90 < max(changing) <= 100


PROGRAM = """
import os, pathlib, subprocess, sys
for number in range(5):
    pathlib.Path(f"{number}.tmp").write_bytes(b"x")
    os.rename(f"{number}.tmp", str(number))
"""


def test_the_signal_comes_before_the_drawn_call(counter: Path, tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()

    def run(call: int) -> tuple[int, Counting]:
        counting = Counting(counter, tmp_path / f"page{call}", [home])
        if call:
            counting.strike(call, signal.SIGKILL, "main", changes=True)
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM], cwd=home, env={**os.environ, **counting.variables}, check=False
        )
        return done.returncode, counting

    code, counting = run(0)
    every, changing = counting.calls
    assert (code, changing, counting.struck) == (0, 15, "")  # create, write, rename
    assert every >= changing + 5  # close
    for path in home.iterdir():
        path.unlink()
    code, counting = run(9)
    assert (code, counting.struck) == (-9, "rename 2.tmp")
    assert sorted(path.name for path in home.iterdir()) == ["0", "1", "2.tmp"]
    assert counting.processes() == {}


def test_half_written_results_are_found(tmp_path: Path) -> None:
    events = tmp_path / "run" / "events"
    events.mkdir(parents=True)
    (events / "rank0-1.spans").write_bytes(b"no spans")
    for name, content in {
        "summary.json": b'{"a": 1',
        "report.html": b"<html><body>",
        "trace.json.gz": gzip.compress(b"[]")[:-3],
        "checkpoint-1.pt": b"PK",
        ".summary.json.abc.tmp": b"{",
        "good.json": b"{}",
    }.items():
        (tmp_path / "run" / name).write_bytes(content)
    found = [line.partition(":")[0] for line in broken(tmp_path)]
    assert found[:4] == ["run/checkpoint-1.pt", "run/report.html", "run/summary.json", "run/trace.json.gz"]
