"""DFTracer traces of all versions become recordings."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from real_data import real_input

from dlio_torch.errors import DataError
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.importers.dftracer import read_dftracer
from dlio_torch.iotrace.importers.dftracer_lines import span_name

T0 = 1_744_611_912_980_013  # microseconds since 1970


def event(name: str, ts: int, dur: int = 5, cat: str = "POSIX", pid: int = 7, ph: Any = "X", **args: Any) -> str:
    common = {"id": 1, "name": name, "cat": cat, "pid": pid, "tid": pid, "ts": ts, "dur": dur, "ph": ph}
    return json.dumps({**common, "args": {"hhash": "h1", **args}})


def named(kind: str, name: str, value: str, pid: int = 7, ph: Any = "M") -> str:
    args = {"hhash": "h1", "name": name, "value": value}
    return json.dumps({"id": 1, "name": kind, "cat": "dftracer", "pid": pid, "tid": pid, "ph": ph, "args": args})


def read(path: Path, lines: Iterable[str]) -> Recording:
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return read_dftracer(path, [path])


def test_the_real_trace_is_read_whole(tmp_path: Path) -> None:
    with tarfile.open(real_input("dlio_unet3d_8ranks_dftracer.tar.gz")) as archive:
        archive.extractall(tmp_path, **({"filter": "data"} if hasattr(tarfile, "data_filter") else {}))
    files = sorted(tmp_path.glob("*.pfw"))
    found = read_dftracer(tmp_path, files)
    io = found.io
    reads = io[io["op"] == "pread"]
    assert len(reads) == 7200
    assert (reads["offset"] >= 0).all()
    assert (reads["bytes"] > 0).all()
    assert reads["rank"].value_counts().to_dict() == dict.fromkeys(range(8), 900)
    assert found.world_size == 8
    assert found.sees == {"open", "close", "read", "write", "seek", "sync", "meta"}
    assert reads["file"].astype(str).str.endswith(".hdf5").all()
    first = reads[reads["rank"] == 0].iloc[0]
    # {"name":"pread",...,"ts":1744611915154438,"dur":9,...,"args":{...,"ret":8,"count":8,"offset":0,...}}
    assert found.events.anchor_time_ns + first["start_ns"] == 1_744_611_915_154_438_000
    assert (first["end_ns"] - first["start_ns"], first["offset"], first["bytes"]) == (9000, 0, 8)
    spans = found.spans["op"].value_counts().to_dict()
    assert {op: spans[op] for op in ("read", "fetch", "compute", "checkpoint", "preprocess")} == {
        "read": 800,
        "fetch": 160,
        "compute": 200,
        "checkpoint": 8,
        "preprocess": 800,
    }
    assert spans["fork"] == 96
    assert found.facts["hosts"] == ["corona171"]
    assert "dlio_benchmark" in found.facts["command"]


def test_before_hashes_everything_was_text(tmp_path: Path) -> None:
    found = read(
        tmp_path / "trace-ior-7.pfw",
        [
            "[",
            '   {"id":"0","name":"open64","cat":"POSIX","pid":"7","tid":"14","ts":"1698975745976978","dur":"29",'
            '"ph":"X","args":{"hostname":"h","ret":15,"fname":"/data/a"}}',
            '{"id":"1","name":"lseek64","cat":"POSIX","pid":"7","tid":"14","ts":"1698975745977017","dur":"1",'
            '"ph":"X","args":{"hostname":"h","ret":"4096","whence":0,"offset":"4096","fname":"/data/a"}}',
            '{"id":"2","name":"read","cat":"POSIX","pid":"7","tid":"14","ts":"1698975745977020","dur":"3",'
            '"ph":"X","args":{"hostname":"h","ret":"100","count":"4096","fname":"/data/a"}}',
            '{"id":"3","name":"close","cat":"POSIX","pid":"7","tid":"14","ts":"1698975745977030","dur":"2","ph":"X"}',
            '{"id":"4","name":"open64","cat":"POSIX","pid":"7","tid":"14","ts":"1698975745977032","dur":"2",'
            '"ph":"X","args":{"hostname":"h","ret":"-1","fname":"/data/none"}}',
        ],
    )
    frame = found.events.frame
    assert list(frame["op"]) == ["open", "lseek", "read", "close", "failed_open"]
    assert list(frame["bytes"]) == [-1, -1, 100, -1, -1]
    assert list(frame["offset"]) == [-1, 4096, -1, -1, -1]
    assert list(frame["file"])[:3] == ["/data/a"] * 3
    assert list(frame["start_ns"]) == [0, 39_000, 42_000, 52_000, 54_000]
    assert (set(frame["rank"]), set(frame["tid"])) == ({0}, {14})
    # What carries no arguments is a call of the same process.
    assert len(found.events.processes) == 1


def test_the_newest_version_writes_phases_as_numbers(tmp_path: Path) -> None:
    found = read(
        tmp_path / "t-app.pfw",
        [
            event("start", 1000 * T0, 0, "dftracer", ph=1, version="2.1", cmd_hash="c"),
            named("SH", "python;train.py", "c", ph=4),
            named("rank", "rank", "3", ph=4),
            # A name may come after the event that refers to it.
            event("pread64", 1000 * T0 + 9, 7, ph=1, fhash="f", ret=64, offset=128),
            named("FH", "/data/x", "f", ph=4),
            json.dumps({"name": "cpu", "cat": "sys", "ts": 1, "ph": 2, "pid": 7, "tid": 0, "args": {"user_pct": 12.5}}),
            event("read", 1000 * T0, 0, ph=3, dft_cnt=2, ret_sum=7),
        ],
    )
    (row,) = found.io.to_dict("records")
    assert (row["file"], row["rank"], row["offset"], row["bytes"]) == ("/data/x", 3, 128, 64)
    # Stamps of this size are nanoseconds.
    assert (row["start_ns"], row["end_ns"]) == (9, 16)
    assert found.facts["command"] == "python train.py"
    assert any("1 aggregated records" in note for note in found.notes)
    assert any("1 counter records" in note for note in found.notes)


def test_workers_have_the_rank_of_their_trainer(tmp_path: Path) -> None:
    files = []
    for pid, parent in ((20, 1), (10, 1), (31, 20), (32, 31)):
        files.append(tmp_path / f"t-{pid}.pfw")
        lines = [
            event("start", T0, 0, "dftracer", pid=pid, ppid=parent),
            event("read", T0 + pid, pid=pid, fname="/d", ret=1),
        ]
        files[-1].write_text("\n".join(lines))
    found = read_dftracer(tmp_path, files)
    assert dict(zip(found.io["pid"], found.io["rank"], strict=True)) == {10: 0, 20: 1, 31: 1, 32: 1}
    assert found.world_size == 2
    assert any("numbered in the order of their ids" in note for note in found.notes)


def test_buffered_and_mpi_calls_have_layers_of_their_own(tmp_path: Path) -> None:
    found = read(
        tmp_path / "a.pfw",
        [
            event("fread", T0, cat="STDIO", fname="/d", size=8, count=100, ret=50),
            event("fseek", T0 + 10, cat="STDIO", fname="/d", offset=77, whence=0, ret=0),
            event("fgets", T0 + 20, cat="STDIO", fname="/d", num=100, ret_len=12),
            event("MPI_File_read_at", T0 + 30, cat="MPIIO", filename="/d", offset=5),
        ],
    )
    rows = found.events.frame[["layer", "op", "offset", "bytes"]].values.tolist()
    assert rows == [
        ["stdio", "fread", -1, 400],
        ["stdio", "fseek", 77, -1],
        ["stdio", "fgets", -1, 12],
        ["mpiio", "file_read", 5, -1],
    ]
    assert any("some reads and writes lack their sizes" in note for note in found.notes)


def test_a_trace_of_spans_saw_no_call(tmp_path: Path) -> None:
    found = read(tmp_path / "a.pfw", [event("loop.iter", T0, cat="data_loader", step="4")])
    (row,) = found.spans.to_dict("records")
    assert (row["op"], row["step"], row["layer"]) == ("fetch", 4, "app")
    assert found.sees == frozenset()


@pytest.mark.parametrize(
    ("category", "name", "span"),
    [
        ("data_loader", "loop.iter", "fetch"),
        ("dataloader", "fetch.iter", "fetch"),
        ("reader", "NPZReader.get_sample", "read"),
        ("ai_framework", "TFFramework.compute", "compute"),
        ("compute", "backward", "compute"),
        ("data_loader", "loop.yield", "loop.yield"),
        ("reader", "NPZReader.close", "NPZReader.close"),
    ],
)
def test_spans_of_equal_meaning_have_our_names(category: str, name: str, span: str) -> None:
    assert span_name(category, name) == span


def test_damage_is_counted_and_the_rest_is_read(tmp_path: Path) -> None:
    path = tmp_path / "a.pfw"
    good = event("read", T0, fname="/data/\udcff", ret=4).encode("ascii")
    raw = event("read", T0 + 9, fname="/data/b", ret=4).encode().replace(b"/data/b", b"/data/\xff")
    bad = [b"{", b'{"ph":"X"}', b"\x00\x01\xff", b"[]", event("read", 10**30, ret=1).encode(), b'"x"', b"7"]
    path.write_bytes(b"\n".join([b"[", good, *bad, raw, good[:50]]))
    found = read_dftracer(path, [path])
    assert list(found.io["file"]) == [r"/data/\xff"] * 2
    assert found.notes[0] == "a.pfw: 8 damaged lines are ignored"


@pytest.mark.parametrize("kept", [0.5, 0.98])
def test_a_compressed_trace_may_have_members_and_be_cut(tmp_path: Path, kept: float) -> None:
    path = tmp_path / "a.pfw.gz"
    lines = [event("read", T0 + i, fname=f"/{i * 7919 % 1000}", ret=i) + "\n" for i in range(3000)]
    whole = b"".join(gzip.compress("".join(lines[at : at + 500]).encode()) for at in range(0, 3000, 500))
    path.write_bytes(whole)
    assert len(read_dftracer(path, [path]).events.frame) == 3000
    path.write_bytes(whole[: int(kept * len(whole))])
    found = read_dftracer(path, [path])
    assert 500 <= len(found.events.frame) < 3000
    assert any("the compressed data ends or is damaged after" in note for note in found.notes)


@pytest.mark.parametrize("text", ["", "[\n", "[\n]\n", named("HH", "node", "1") + "\n", "no json\n" * 9])
def test_nothing_is_an_error_with_its_reason(tmp_path: Path, text: str) -> None:
    path = tmp_path / "a.pfw"
    path.write_text(text)
    with pytest.raises(DataError, match=r"a\.pfw contains no DFTracer event"):
        read_dftracer(path, [path])
