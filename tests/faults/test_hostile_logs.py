"""Logs and archives, cut, damaged and hostile: read as far as they go, or refused, in bounded time and memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from log_archives import archive

from benchmarks.harm import logs
from benchmarks.harm.child import SOUND, run_cases
from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.analysis.step_metrics import SCHEMA, VERSION
from dlio_torch.errors import DataError
from dlio_torch.iotrace.events.call_names import printable
from dlio_torch.iotrace.importers import log_archive, strace_lines
from dlio_torch.report.html import report_run
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.run_dir import RunDir

CASES = 40


def refusals(path: Path, whole: bytes, step: int, most: int) -> list[str]:
    """What is said of a file that ends after 0, ``step``, ... bytes; where it is read, with ``most`` events."""
    said = []
    for end in range(0, len(whole), step):
        path.write_bytes(whole[:end])
        try:
            assert len(open_recording(path).events.frame) <= most
        except DataError as error:
            said.append(str(error))
    return said


def test_a_log_of_strace_cut_anywhere(tmp_path: Path) -> None:
    whole = logs.strace_log()
    path = tmp_path / "x.strace"
    assert all(str(path) in line for line in refusals(path, whole, 7, 12))


def test_a_trace_of_dftracer_cut_anywhere(tmp_path: Path) -> None:
    whole = logs.dftracer_log()
    path = tmp_path / "x.pfw"
    assert all(str(path) in line for line in refusals(path, whole, 19, 8))


@pytest.mark.parametrize("kind", ["strace log", "DFTracer log", "DFTracer log, gzip"])
def test_damaged_logs_are_read_or_refused(kind: str, tmp_path: Path) -> None:
    name, content = ("x.strace", logs.strace_log()) if kind == "strace log" else ("x.pfw", logs.dftracer_log())
    target = logs.LogTarget(kind, tmp_path, 2, {name: content}, lambda folder, _: _open(folder))
    assert not [one for one in run_cases(range(CASES), target, 300) if one.outcome not in SOUND]


def _open(folder: Path) -> None:
    open_recording(next(folder.iterdir()))


@pytest.mark.parametrize(
    "line",
    [
        b"read(3</d/" + b"a" * 40 + b"\xff" * 40 + b", 1) = 1",
        b"read(3<" + b"ab" * 20000 + b', "x", 1) = 1',
        b"read(3, " + b'\\"' * 50000 + b") = 1",
        b"read(3, " + b" " * 200000 + b"x) = 1",
        b" " * 200000 + b"<unfinished ...>",
    ],
)
def test_the_time_for_a_line_grows_as_the_line(line: bytes) -> None:
    """Each of these took minutes or centuries where a pattern repeats what repeats itself."""
    strace_lines.is_begin(line)
    call = strace_lines.call(line)
    arguments = line if call is None else call.arguments
    strace_lines.descriptor(arguments)
    strace_lines.mapping(arguments)
    strace_lines.string(arguments)


def test_members_of_an_archive_stay_in_its_folder(tmp_path: Path) -> None:
    path = archive(tmp_path / "x.tar", {"../../up.strace": logs.strace_log()})
    assert len(open_recording(path).events.frame) > 0
    assert [entry.name for entry in tmp_path.iterdir()] == ["x.tar"]


def test_an_archive_that_would_fill_the_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_archive, "_UNPACKED_BYTES", 1000)
    path = archive(tmp_path / "x.tar", {"a.strace": bytes(999), "b.strace": bytes(2)})
    with pytest.raises(DataError, match=r"x\.tar is too large to unpack: it contains more than"):
        open_recording(path)


def test_json_that_nests_without_end_is_damage(tmp_path: Path) -> None:
    path = tmp_path / "summary.json"
    path.write_text("[" * 200_000)
    with pytest.raises(DataError, match=r"summary\.json is damaged"):
        RunDir(tmp_path).read_json(path)
    assert run_state.read(path) is None


@pytest.mark.parametrize("key", ["pid", "created", "host", "line", "exit_code", "world_size"])
def test_a_state_of_other_types_is_none(key: str, tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    run_state.begin(path, 1)
    value = json.loads(path.read_text())
    path.write_text(json.dumps({**value, key: [1, {}]}))
    assert run_state.read(path) is None


def test_names_that_would_command_a_terminal_are_written_out() -> None:
    assert str(DataError("/d/\x1b[31mred\u202e.h5 is damaged")) == "/d/\\x1b[31mred\\u202e.h5 is damaged"
    assert printable("/d/ü \x1b]0;title\x07") == "/d/ü \\x1b]0;title\\x07"


def test_a_report_leaves_out_what_no_run_writes(tmp_path: Path) -> None:
    (tmp_path / "events").mkdir()
    (tmp_path / "config.yaml").write_text("seed: 1\n")
    (tmp_path / "environment.json").write_text(json.dumps({"cpu": 3, "mounts": [1], "not_measured": 7, "x": None}))
    (tmp_path / "summary.json").write_text(json.dumps({"schema": SCHEMA, "version": VERSION, "epochs": [3]}))
    text = report_run(tmp_path).read_text()
    assert "contains an invalid value" in text
