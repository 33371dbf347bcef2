"""The verbs trace, report and compare, and runs with trace.posix=true, as a user calls them."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from figure_checks import check_figures
from ranks import clean_environ
from strace import need_strace

from dlio_torch import cli
from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.iotrace.recorder.self_recording import is_waiting, patterns, recording

PROGRAM = """
import os, sys
data = os.urandom(3000)
with open("data.bin", "wb", buffering=0) as file:
    file.write(data)
with open("data.bin", "rb", buffering=0) as file:
    for _ in range(3):
        file.read(1000)
sys.stdout.write("its own output")
sys.exit(int(sys.argv[1]))
"""
RUN = ("recipe=minimal", "scale=tiny", "trace.posix=true", "output.dir=recorded", "loader.num_workers=2")


def call(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The tool in a process of its own."""
    command = [sys.executable, "-m", "dlio_torch", *arguments]
    return subprocess.run(
        command, cwd=cwd, env=clean_environ(), capture_output=True, text=True, timeout=200, check=False
    )


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a recorded program, ``mine``, and a recorded run, ``recorded``."""
    path = tmp_path_factory.mktemp("recorded")
    (path / "program.py").write_text(PROGRAM)
    traced = call("trace", "--output", "mine", "--", sys.executable, "program.py", "7", cwd=path)
    assert (traced.returncode, traced.stdout) == (7, "its own output"), traced.stderr
    assert "data.bin" in traced.stderr
    assert "report" in traced.stderr
    run = call(*RUN, cwd=path)
    assert run.returncode == 0, run.stderr
    assert "I/O calls" in run.stdout
    return path


def test_a_recorded_program_leaves_its_calls_and_a_timeline(folder: Path) -> None:
    found = open_recording(folder / "mine")
    rows = found.io[found.io["file"].astype(str).str.endswith("data.bin") & (found.io["bytes"] > 0)]
    assert list(rows["op"]) == ["write", "read", "read", "read"]
    assert list(rows["bytes"]) == [3000, 1000, 1000, 1000]
    assert list(rows["offset"]) == [0, 0, 1000, 2000]
    command = json.loads((folder / "mine" / "command.json").read_text())
    assert command["command"][1:] == ["program.py", "7"]
    assert command["exit_code"] == 7
    with gzip.open(folder / "mine" / "trace.json.gz", "rt") as file:
        events = json.load(file)["traceEvents"]
    drawn = [event for event in events if event["ph"] == "X" and event["args"].get("file", "").endswith("data.bin")]
    assert {event["cat"] for event in drawn} == {"posix"}
    assert len(drawn) >= 8  # two opens and closes beside them


def test_a_run_has_calls_of_trainer_and_workers_in_one_table(folder: Path) -> None:
    found = open_recording(folder / "recorded")
    assert set(found.events.frame["layer"].cat.categories) == {"app", "posix"}
    data = found.io[found.io["file"].astype(str).str.contains("/train/train_")]
    reads = data[data["op"] == "pread"]
    roles = {process.pid: process.role for process in found.events.processes}
    assert {roles[pid] for pid in reads["pid"]} == {"loader worker 0", "loader worker 1"}
    # Each call lies within a span of the thread that made it: one clock, one row of Perfetto.
    spans = found.spans
    for _, call in reads.iloc[:: max(1, len(reads) // 20)].iterrows():
        mine = spans[(spans["pid"] == call["pid"]) & spans["op"].isin(["open", "read", "decode"])]
        assert ((mine["start_ns"] <= call["start_ns"]) & (mine["end_ns"] >= call["end_ns"])).any()
    summary: dict[str, Any] = json.loads((folder / "recorded" / "summary.json").read_text())
    check_figures(summary)
    assert summary["posix"]["io"]["classes"]["read"]["calls"] == len(found.io[found.io["op"].isin(["pread", "read"])])
    assert summary["posix"]["untraced"]["complete"]
    assert summary["stalls"]["steps"] > 0
    assert [row["rank"] for row in summary["overlap"]] == [0, -1]
    # Neither generation nor the tool's own files are among the calls.
    files = set(found.io["file"].dropna().astype(str))
    assert not [name for name in files if name.startswith(str(folder / "recorded")) and "/checkpoints" not in name]
    assert not found.io["op"].isin(["write", "pwrite"]).any()


def test_report_of_a_run_a_trace_and_json(folder: Path) -> None:
    done = call("report", "recorded", cwd=folder)
    assert done.returncode == 0, done.stderr
    assert (folder / "recorded" / "report.html").stat().st_size > 10_000
    done = call("report", "mine", "--json", cwd=folder)
    assert json.loads(done.stdout)["schema"] == "dlio_torch.io"


def test_compare_says_what_differs_and_keeps_the_limits(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine, recorded = str(folder / "mine"), str(folder / "recorded")
    assert cli.main(["compare", mine, mine]) == 0
    assert "Alike" in capsys.readouterr().out
    assert cli.main(["compare", mine, recorded, "--json", "--scale-free", "--repeat", f"A={mine}"]) == 0
    assert json.loads(capsys.readouterr().out)["headline"].startswith("Not alike")
    assert cli.main(["compare", mine, recorded, "--fail", "worst:0.1"]) == 4
    assert "dlio_torch: error:" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "code", "named"),
    [
        (["trace"], 2, "trace -- python"),
        (["trace", "python", "x.py"], 2, "the argument before -- is not a flag"),
        (["trace", "--method", "magic", "--", "true"], 2, "preload, strace"),
        (["trace", "--limit", "much", "--", "true"], 2, "--limit 4GiB"),
        (["trace", "--limit", "4KiB", "--", "true"], 2, "64KiB or more"),
        (["trace", "--", "no-such-program"], 3, "cannot be started"),
        (["show", "recipe=minimal", "--", "true"], 2, "only the verb trace runs a program"),
        (["report", "a", "b"], 2, "exactly one path is needed"),
        (["report"], 3, "no run below output.root=runs"),
        (["report", "nothing"], 3, "does not exist"),
        (["compare", "one"], 2, "needs exactly two paths"),
        (["compare", ".", ".", "--repeat", "."], 2, "--repeat A=PATH"),
        (["compare", ".", ".", "--storage", "x"], 2, "same or --storage other"),
        (["compare", ".", ".", "--fail", "nonsense:1"], 2, "nonsense"),
        (["compare", ".", ".", "--fail"], 2, "--fail worst:0.1"),
        (["recipe=minimal", "trace.posix=true"], 3, "python -m dlio_torch"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    code: int,
    named: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "100")
    assert cli.main(arguments) == code
    error = capsys.readouterr().err
    assert error.startswith("dlio_torch: error: ")
    assert error.count("\n") == 1
    assert named in error


def test_the_program_finds_its_signals_as_without_us(tmp_path: Path) -> None:
    # Python ignores SIGPIPE; a program that inherited that would not end when its reader does.
    pipe = "yes | head -1; echo ${PIPESTATUS[0]}"
    done = call("trace", "--output", "s", "--", "bash", "-c", pipe, cwd=tmp_path)
    assert done.stdout.split() == ["y", "141"]


def test_a_recording_that_is_killed_says_what_it_was_of(tmp_path: Path) -> None:
    program = "import os, signal; open('f', 'wb').write(b'1' * 5000); os.kill(os.getppid(), signal.SIGKILL)"
    done = call("trace", "--output", "k", "--", sys.executable, "-c", program, cwd=tmp_path)
    assert done.returncode == -9
    assert json.loads((tmp_path / "k" / "command.json").read_text())["command"][-1] == program
    found = open_recording(tmp_path / "k")
    assert found.kind == "trace"
    assert 5000 in set(found.io["bytes"])


def test_under_strace_where_asked(tmp_path: Path) -> None:
    need_strace()
    (tmp_path / "program.py").write_text(PROGRAM)
    done = call("trace", "--method", "strace", "--output", "s", "--", sys.executable, "program.py", "0", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    found = open_recording(tmp_path / "s")
    rows = found.io[found.io["file"].astype(str).str.endswith("data.bin") & (found.io["bytes"] > 0)]
    assert list(rows["bytes"]) == [3000, 1000, 1000, 1000]
    assert not found.trusted_times


PROGRAM_OF_MANY_FILES = """
import os
os.makedirs("data/sub", exist_ok=True)
for name in ("data/a.bin", "data/sub/b.bin", "data/c.txt", "other"):
    with open(name, "wb", buffering=0) as file:
        file.write(bytes(10))
open("/etc/passwd").close()
open(os.devnull, "wb", buffering=0).write(b"1")
"""


@pytest.mark.parametrize("options", [(), ("--include", "data", "--exclude", "*.txt")])
def test_both_methods_choose_the_same_files(options: tuple[str, ...], tmp_path: Path) -> None:
    need_strace()
    (tmp_path / "program.py").write_text(PROGRAM_OF_MANY_FILES)
    files = {}
    for method in ("preload", "strace"):
        command = ("--method", method, "--output", method, *options, "--", sys.executable, "-S", "program.py")
        done = call("trace", *command, cwd=tmp_path)
        assert done.returncode == 0, done.stderr
        found = open_recording(tmp_path / method)
        moved = found.io[found.io["op"].isin(["open", "write"])]
        files[method] = {str(name).removeprefix(f"{tmp_path}/") for name in moved["file"]}
        assert ("that the patterns exclude" in " ".join(found.notes)) == (method == "strace")
    assert files["preload"] == files["strace"]
    assert files["preload"] == {"data/a.bin", "data/sub/b.bin"} | (set() if options else {"data/c.txt", "other"})


PROGRAM_OF_ODD_NAMES = """
import os
os.mkdir(b"\\xe9")
for name in (b"f\\xff<b>", "é𝄞\\n".encode(), b"\\xe9/x"):
    with open(name, "wb", buffering=0) as file:
        file.write(bytes(3000))
    with open(name, "rb", buffering=0) as file:
        file.read()
"""


@pytest.mark.parametrize("method", ["preload", "strace"])
def test_names_that_are_no_text_harm_nothing(
    method: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    if method == "strace":
        need_strace()
    monkeypatch.chdir(tmp_path)
    (tmp_path / "program.py").write_text(PROGRAM_OF_ODD_NAMES)
    command = ["--method", method, "--output", "odd", "--include", "*", "--exclude", "/usr"]
    assert cli.main(["trace", *command, "--", sys.executable, "-S", "program.py"]) == 0
    capfd.readouterr()
    assert cli.main(["report", "odd", "--json"]) == 0
    files = {row["file"] for row in json.loads(capfd.readouterr().out)["files"]["rows"]}
    assert files >= {f"{tmp_path}/{name}" for name in (r"f\xff<b>", r"é𝄞\n", r"\xe9/x")}
    assert cli.main(["report", "odd"]) == 0
    assert cli.main(["compare", "odd", "odd"]) == 0
    assert "Alike" in capfd.readouterr().out


def test_recording_needs_the_library_from_the_start(tmp_path: Path) -> None:
    from dlio_torch.errors import PreconditionError

    assert not is_waiting()
    with (
        pytest.raises(PreconditionError, match="started without the recorder's library"),
        recording(tmp_path / "e", rank=0),
    ):
        pass


def test_places_are_named_as_programs_and_the_kernel_do(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    assert patterns([tmp_path / "link", "/data/*.h5"]) == [
        str(tmp_path / "link"),
        str((tmp_path / "real").resolve()),
        "/data/*.h5",
    ]
