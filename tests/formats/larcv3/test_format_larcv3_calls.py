"""System calls of the larcv3 reader, seen by strace: which chunks are read, in which order, how often."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import h5py
import pytest
from ranks import clean_environ

from dlio_torch.config.schema import DatasetConfig
from dlio_torch.formats.larcv3.format import Larcv3Format
from dlio_torch.formats.larcv3.options import Larcv3Config, ProducerConfig
from dlio_torch.formats.testing.contract import write

LABEL, WIRE = "sparse2d_sbnd_cosmicseg", "sparse2d_sbndwire"
OPTIONS = Larcv3Config(
    producers=[ProducerConfig(LABEL, "label", 2742, 175), ProducerConfig(WIRE, "charge", 6641, 124)],
    image_shape=[512, 640],
    voxels_mean=2500,
    voxels_stdev=600,
    extents_chunk=5,
    table_chunk=6,
    merge_events=7,
)
EVENTS = 20
TABLES = ("extents", "voxel_extents", "image_meta", "voxels")
NODE = 2096  # a B-tree node of one-dimensional chunks: 24 + 65 keys of 24 + 64 addresses of 8 bytes

SCENARIOS: dict[str, tuple[dict[str, Any], list[int]]] = {
    "neighbours": ({}, [3, 4, 17, 0, 1, 3]),
    "opens-1": ({"opens": 1}, [0]),
    "opens-3": ({"opens": 3}, [0]),
    "far": ({}, [0, 19, 0, 0]),
    "far-tables-1": ({"table_cache_chunks": 1}, [0, 19, 0, 0]),
    "far-tables-2": ({"table_cache_chunks": 2}, [0, 19, 0, 0]),
    "twice": ({}, [5, 5]),
    "twice-no-cache": ({"chunk_cache_bytes": 0}, [5, 5]),
    "far-no-cache": ({"chunk_cache_bytes": 0}, [0, 19, 0, 19]),
    "far-cold": ({"chunk_cache_bytes": 0, "metadata_cache_bytes": 1 << 20, "cold_events": 2}, [0, 19, 0, 19, 0, 19]),
    "far-no-cache-nodes": ({"chunk_cache_bytes": 0, "metadata_cache_bytes": 4096}, [0, 19, 0, 19]),
}
"""Options and the events that are read with them, one after another."""

PROGRAM = """
import os, pickle, sys
from contextlib import closing
from dlio_torch.formats.testing.contract import read
with open(sys.argv[1], "rb") as file:
    path, scenarios = pickle.load(file)
for name, fmt, events in scenarios:
    os.write(2, f"mark {name} open".encode())
    with closing(fmt.open(path)) as reader:
        for event in events:
            os.write(2, f"mark {name} {event}".encode())
            read(fmt, reader, [event])
        os.write(2, f"mark {name} close".encode())
os.write(2, b"mark end end")
"""


@dataclass
class Phase:
    """What was done with the file between two marks: opens, closes, and reads as (offset, bytes)."""

    name: str
    opens: int = 0
    closes: int = 0
    reads: list[tuple[int, int]] = field(default_factory=list)


def skip_without_strace() -> None:
    try:
        done = subprocess.run(["strace", "-o", "/dev/null", "true"], capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("strace is not installed")
    if done.returncode:
        pytest.skip(f"strace cannot trace here: {done.stderr.strip()}")


def make(**changed: Any) -> Larcv3Format:
    return Larcv3Format(DatasetConfig(format="larcv3", larcv3=replace(OPTIONS, **changed)), 1)


@pytest.fixture(scope="module")
def events_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write(make(), tmp_path_factory.mktemp("calls") / "events.h5", 0, EVENTS)


@pytest.fixture(scope="module")
def traced(events_file: Path) -> dict[str, list[Phase]]:
    """What strace saw of each scenario: opening, one phase for each event, closing."""
    skip_without_strace()
    scenarios = [(name, make(**changed), events) for name, (changed, events) in SCENARIOS.items()]
    arguments, log = events_file.with_name("arguments"), events_file.with_name("strace")
    arguments.write_bytes(pickle.dumps((events_file, scenarios)))
    command = ["strace", "-f", "-y", "-e", "trace=openat,close,pread64,read,readv,preadv,lseek,write", "-o", log]
    done = subprocess.run(
        [*command, sys.executable, "-c", PROGRAM, arguments],
        capture_output=True, text=True, check=False, env=clean_environ(),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return phases_of(log, events_file)


def phases_of(log: Path, path: Path) -> dict[str, list[Phase]]:
    found: dict[str, list[Phase]] = {}
    phase = Phase("start")
    for line in log.read_text(errors="replace").splitlines():
        mark = re.search(r'write\(2<[^>]*>, "mark (\S+) (\w+)"', line)
        if mark:
            phase = Phase(mark[2])
            found.setdefault(mark[1], []).append(phase)
        elif f"<{path}>" in line:
            call = re.search(r"pread64\(\d+<[^>]*>, .*, (\d+), (\d+)\) = (\d+)$", line)
            if call:
                assert call[1] == call[3], f"a short read: {line}"
                phase.reads.append((int(call[2]), int(call[1])))
            elif "openat(" in line:
                phase.opens += 1
            else:
                assert re.search(r"close\(", line), f"neither open, pread nor close: {line}"
                phase.closes += 1
    return found


def chunks_of(path: Path) -> dict[tuple[int, int], tuple[str, int]]:
    """(offset, bytes) of each stored chunk -> its array and number."""
    found = {}
    with h5py.File(path, "r") as file:
        names = ["Events/event_id"]
        names += [
            f"Data/{p}_group/{t}" for p in (LABEL, WIRE) for t in ("extents", "voxel_extents", "image_meta", "voxels")
        ]
        for name in names:
            array = file[name]
            for number in range(array.id.get_num_chunks()):
                chunk = array.id.get_chunk_info(number)
                found[chunk.byte_offset, chunk.size] = (name, chunk.chunk_offset[0] // array.chunks[0])
    return found


def rows_of(path: Path, event: int) -> list[tuple[str, list[int]]]:
    """The chunks that hold an event, array by array in the order of larcv3's calls."""
    with h5py.File(path, "r") as file:
        calls = [("Events/event_id", [event // 6])]
        for producer in (LABEL, WIRE):
            group = f"Data/{producer}_group"
            images = list(range(3 * event, 3 * event + 3))
            calls.append((f"{group}/extents", [event // 5]))
            for table in ("voxel_extents", "image_meta"):
                calls.append((f"{group}/{table}", sorted({image // 6 for image in images})))
            extents = file[f"{group}/voxel_extents"][images[0] : images[-1] + 1]
            last = int(extents["first"][-1] + extents["N"][-1]) - 1
            calls.append((f"{group}/voxels", list(range(int(extents["first"][0]) // 1000, last // 1000 + 1))))
        return calls


def data_reads(phase: Phase, chunks: dict[tuple[int, int], tuple[str, int]]) -> list[tuple[str, int]]:
    return [chunks[read] for read in phase.reads if read in chunks]


Traced = dict[str, list[Phase]]


def test_an_event_is_read_chunk_by_chunk_in_larcv3_s_order(traced: Traced, events_file: Path) -> None:
    chunks = chunks_of(events_file)
    _, *phases, closing = traced["neighbours"]
    events = SCENARIOS["neighbours"][1]
    assert [phase.name for phase in phases] == [str(event) for event in events]
    seen: set[tuple[str, int]] = set()
    for event, phase in zip(events, phases, strict=True):
        wanted = [(name, number) for name, numbers in rows_of(events_file, event) for number in numbers]
        assert len(wanted) >= 2 * 8
        # Chunks that an earlier event left in the caches are not read again.
        assert data_reads(phase, chunks) == [chunk for chunk in wanted if chunk not in seen]
        seen.update(wanted)
        # Arrays stay open: nothing is opened, and what is no chunk is a node of an index.
        assert (phase.opens, phase.closes) == (0, 0)
        assert all(size <= NODE for _, size in set(phase.reads) - chunks.keys())
    assert (closing.opens, closing.closes, closing.reads) == (0, 1, [])


def test_index_nodes_are_of_the_published_size_and_read_once(traced: Traced, events_file: Path) -> None:
    chunks = chunks_of(events_file)
    _, *phases, _ = traced["neighbours"]
    metadata = [read for phase in phases for read in phase.reads if read not in chunks]
    # The root of each of the nine arrays, and leaves of voxels.
    assert [size for _, size in metadata].count(NODE) >= 9 + 2 * 2
    assert len(set(metadata)) == len(metadata)


@pytest.mark.parametrize(("scenario", "opens"), [("opens-1", 1), ("neighbours", 2), ("opens-3", 3)])
def test_the_file_is_opened_as_often_as_configured(
    scenario: str, opens: int, traced: Traced, events_file: Path
) -> None:
    opening = traced[scenario][0]
    assert (opening.opens, opening.closes) == (opens, opens - 1)
    assert not data_reads(opening, chunks_of(events_file))


def test_table_cache_chunks_bounds_what_is_kept_of_small_tables(traced: Traced, events_file: Path) -> None:
    chunks = chunks_of(events_file)
    small = [name for name, _ in rows_of(events_file, 0) if not name.endswith("voxels")]

    def tables(scenario: str) -> list[list[str]]:
        reads = [data_reads(phase, chunks) for phase in traced[scenario][1:-1]]
        return [[name for name, _ in read if not name.endswith("voxels")] for read in reads]

    assert tables("far") == [small, small, [], []]
    assert tables("far-tables-2") == [small, small, [], []]
    assert tables("far-tables-1") == [small, small, small, []]
    # The cache of the voxels is not touched by it.
    assert not [name for name, _ in data_reads(traced["far-tables-1"][3], chunks) if name.endswith("voxels")]


def test_chunk_cache_bytes_is_the_cache_of_each_array(traced: Traced, events_file: Path) -> None:
    chunks = chunks_of(events_file)
    first, again = (data_reads(phase, chunks) for phase in traced["twice"][1:-1])
    assert again == []
    uncached, uncached_again = (data_reads(phase, chunks) for phase in traced["twice-no-cache"][1:-1])
    assert uncached_again == uncached
    # A chunk that is not kept is read once for each call that touches it: images share chunks at their ends.
    assert set(uncached) == set(first)
    assert len(uncached) > len(first)


def test_metadata_cache_bytes_bounds_what_is_kept_of_index_nodes(traced: Traced, events_file: Path) -> None:
    chunks = chunks_of(events_file)

    def nodes(phase: Phase) -> list[tuple[int, int]]:
        return [read for read in phase.reads if read not in chunks and read[1] == NODE]

    _, *unbounded, _ = traced["far-no-cache"]
    _, *bounded, _ = traced["far-no-cache-nodes"]
    assert nodes(unbounded[2]) == nodes(unbounded[3]) == []
    assert len(nodes(bounded[2])) >= 9
    assert len(nodes(bounded[3])) >= 9
    assert [data_reads(phase, chunks) for phase in bounded] == [data_reads(phase, chunks) for phase in unbounded]


def test_nodes_are_not_kept_during_cold_events(traced: Traced, events_file: Path) -> None:
    chunks = chunks_of(events_file)
    _, *phases, _ = traced["far-cold"]
    nodes = [[read for read in phase.reads if read not in chunks and read[1] == NODE] for phase in phases]
    # The cache of two events holds no more than the way to a few arrays; what follows is read once.
    assert len(nodes[0]) >= 9
    assert nodes[2]
    assert nodes[4] == nodes[5] == []
