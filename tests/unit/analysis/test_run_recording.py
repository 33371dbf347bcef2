"""Anything that tells about I/O is opened by one call, and anything else is refused in one line."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from log_archives import archive
from real_data import real_input

from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.errors import DataError, DlioError
from dlio_torch.iotrace.events.call_names import CLASSES
from dlio_torch.iotrace.recorder.spans import Recorder
from dlio_torch.run_directory.run_dir import RunDir

STRACE = '7 1700000000.1 openat(AT_FDCWD, "/d", O_RDONLY) = 3 <0.1>\n7 1700000000.3 read(3, "", 5) = 5 <0.1>\n'
PFW = '[\n{"name":"read","cat":"POSIX","pid":7,"tid":7,"ts":1744611912980013,"dur":5,"ph":"X","args":{"ret":4}}\n'


def run(path: Path, summary: bool = True) -> RunDir:
    """A run directory of two ranks."""
    directory = RunDir(path)
    for rank in (0, 1):
        recorder = Recorder(directory.events, rank)
        recorder.add("read", 1_000, 2_000, file="/d/x", bytes=7)
        recorder.add("fetch", 3_000, 1_000_003_000, step=1)
        recorder.close()
    directory.config.write_text("recipe: x\n")
    directory.write_json(directory.environment, {"host": "here"})
    if summary:
        directory.write_json(directory.summary, {"recipe": "x", "world_size": 2})
    return directory


def test_a_run_directory_is_opened(tmp_path: Path) -> None:
    directory = run(tmp_path / "run")
    found = open_recording(str(directory.path))
    assert (found.kind, found.path, found.world_size) == ("run", directory.path, 2)
    assert found.runtime_s == pytest.approx(1.000002)
    # Spans alone do not tell of calls.
    assert found.sees == frozenset()
    assert (len(found.io), len(found.spans)) == (0, 4)
    assert found.facts == {"environment": {"host": "here"}, "recipe": "x"}
    assert found.notes == ()


def test_the_known_utilisations_of_a_run_are_facts(tmp_path: Path) -> None:
    directory = run(tmp_path / "run")
    known = {"au": {"mean": 0.5}, "au_limit_of_loader": {"mean": 0.9}, "au_of_storage": {"mean": None}}
    directory.write_json(directory.summary, {"recipe": "x", "world_size": 2, **known})
    assert open_recording(directory.path).facts["utilisation"] == {"au": 0.5, "au_limit_of_loader": 0.9}


def test_the_known_figures_on_checkpoints_are_facts(tmp_path: Path) -> None:
    directory = run(tmp_path / "run")
    known = {"checkpoints": {"save": {"stall_s": {"mean": 0.5}, "fsync_s": None}, "slowdown": 0.0}}
    directory.write_json(directory.summary, {"recipe": "x", "world_size": 2, **known})
    expected = {"checkpoints.save.stall_s.mean": 0.5, "checkpoints.slowdown": 0.0}
    assert open_recording(directory.path).facts["figures"] == expected


def test_a_broken_run_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    directory = run(tmp_path / "run", summary=False)
    next(directory.events.glob("rank1*.names")).unlink()
    directory.environment.write_text("{")
    found = open_recording(directory.path)
    assert len(found.spans) == 2
    assert found.world_size == 1
    text = " ".join(found.notes)
    for part in ("environment.json is damaged", "it has no summary", "the table of names is missing"):
        assert part in text
    for child in directory.events.iterdir():
        child.unlink()
    assert "no event was recorded" in open_recording(directory.path).notes


@pytest.mark.parametrize("known", [True, False])
def test_the_events_folder_alone_is_enough(tmp_path: Path, known: bool) -> None:
    directory = run(tmp_path / "run")
    if not known:
        directory.config.unlink()
    found = open_recording(directory.events)
    assert (found.kind, len(found.spans)) == ("run", 4)
    assert found.path == (directory.path if known else directory.events)


def test_a_folder_of_trace_is_opened(tmp_path: Path) -> None:
    directory = RunDir(tmp_path)
    directory.events.mkdir()
    for pid in (7, 8):
        (directory.events / f"strace.{pid}").write_text(STRACE.replace("7 1", "1"))
    about = {"command": ["python", "x.py"], "method": "strace", "runtime_s": 2.5, "notes": ["strace is slow"]}
    directory.write_json(directory.command, about)
    found = open_recording(tmp_path)
    assert (found.kind, found.path, found.trusted_times, found.runtime_s) == ("strace", tmp_path, False, 2.5)
    assert found.sees == frozenset(CLASSES)
    assert found.facts["command"] == ["python", "x.py"]
    assert found.notes[0] == "strace is slow"
    assert sorted(found.io["pid"].unique()) == [7, 8]


def test_logs_are_known_by_their_content(tmp_path: Path) -> None:
    for name, data, kind in (
        ("a.log", STRACE.encode(), "strace"),
        ("b", gzip.compress(STRACE.encode()), "strace"),
        ("c.txt", PFW.encode(), "dftracer"),
        ("d.pfw", gzip.compress(PFW.encode()), "dftracer"),
        ("e.json", PFW.replace("[\n", "").encode(), "dftracer"),
    ):
        (tmp_path / name).write_bytes(data)
        found = open_recording(tmp_path / name)
        assert (found.kind, found.path) == (kind, tmp_path / name)
        assert len(found.io) >= 1
    darshan = tmp_path / "f.log"
    darshan.write_bytes(real_input("nonmpi_dxt.darshan").read_bytes())
    assert open_recording(darshan).kind == "darshan"


def test_a_folder_of_logs_is_one_program(tmp_path: Path) -> None:
    (tmp_path / "inner").mkdir()
    for number in range(3):
        (tmp_path / "inner" / f"t-{number}-of-3.pfw").write_text(PFW.replace('"pid":7', f'"pid":{number + 70}'))
    (tmp_path / "README").write_text("about them\n")
    found = open_recording(tmp_path)
    assert found.world_size == 3
    assert dict(zip(found.io["pid"], found.io["rank"], strict=True)) == {70: 0, 71: 1, 72: 2}
    assert "README was ignored: it is not a dftracer log" in found.notes
    (tmp_path / "s.txt").write_text(STRACE)
    with pytest.raises(DataError, match=r"several tools: strace \(s\.txt\) and dftracer \(t-0-of-3\.pfw\)"):
        open_recording(tmp_path)


def test_an_archive_of_logs_is_opened(tmp_path: Path) -> None:
    found = open_recording(real_input("dlio_unet3d_8ranks_dftracer.tar.gz"))
    assert (found.kind, found.world_size, int((found.io["op"] == "pread").sum())) == ("dftracer", 8, 7200)
    assert found.path.name == "dlio_unet3d_8ranks_dftracer.tar.gz"
    path = archive(tmp_path / "a.tgz", {"../../up.7": STRACE.encode(), "/x/s.8": STRACE.encode()})
    found = open_recording(path)
    assert (found.kind, len(found.io)) == ("strace", 4)
    assert not (tmp_path.parent / "up.7").exists()
    with pytest.raises(DataError, match=r"a\.tgz is not a recording: it looks like a folder in which x is text"):
        open_recording(archive(path, {"x": b"hello\n"}))
    whole = archive(path, {f"s.{n}": STRACE.encode() * 5000 for n in range(3)}).read_bytes()
    path.write_bytes(whole[: len(whole) // 2])
    with pytest.raises(DataError, match=r"a\.tgz is a damaged archive"):
        open_recording(path)


@pytest.mark.parametrize(
    ("data", "looks"),
    [
        (b"", "an empty file"),
        (b"\x89HDF\r\n\x1a\n" + bytes(100), "an HDF5 file"),
        (b"PK\x03\x04" + bytes(100), "a zip archive"),
        (b"\x1f\x8b" + b"rubbish" * 9, "a gzip file that cannot be decompressed"),
        (json.dumps({"traceEvents": [{"ph": "X", "name": "a", "pid": 1}]}).encode(), "a Perfetto trace"),
        (b"# darshan log version: 3.10\n", "the text output of darshan-parser"),
        (b"DLIOSPAN" + bytes(40), "the spans of one process"),
        (bytes(range(256)) * 40, "a binary file"),
        (b"epoch,loss\n1,2\n", "text that begins with 'epoch,loss'"),
        (b"def main():\n    return read(3) = 4\n" * 9, "text that begins with 'def main"),
    ],
)
def test_what_is_no_recording_is_refused_in_one_line(tmp_path: Path, data: bytes, looks: str) -> None:
    path = tmp_path / "given"
    path.write_bytes(data)
    for given in (path, tmp_path):
        with pytest.raises(DataError) as caught:
            open_recording(given)
        text = str(caught.value)
        assert looks in text
        assert str(given) in text
        assert "give the path of a run directory" in text
        assert caught.value.exit_code == 3


def test_what_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="does not exist"):
        open_recording(tmp_path / "none")
    with pytest.raises(DataError, match="an empty folder"):
        open_recording(tmp_path)
    with pytest.raises(DlioError, match="not a regular file"):
        open_recording("/dev/null")


def test_a_trace_that_was_killed_says_so(tmp_path: Path) -> None:
    directory = RunDir(tmp_path)
    recorder = Recorder(directory.events, 0)
    recorder.add("read", 1_000, 2_000, file="/d/x", bytes=7)
    recorder.close()
    directory.write_json(directory.command, {"command": ["python", "x.py"], "cwd": "/", "started_time_ns": 1})
    found = open_recording(tmp_path)
    assert (found.kind, found.runtime_s) == ("trace", None)
    assert "the recording stops before the end of the program" in found.notes


def test_a_folder_of_runs_names_them(tmp_path: Path) -> None:
    for name in ("x/1", "x/2"):
        run(tmp_path / name)
    for folder, names in ((tmp_path, "x/1, x/2"), (tmp_path / "x", "1, 2")):
        with pytest.raises(DataError, match=f"holds 2 runs; give the path of one run: {names}$"):
            open_recording(folder)
