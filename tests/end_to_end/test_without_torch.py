"""Recordings need no torch: trace, report and compare in an environment that lacks it, and iotrace alone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from optional_parts import HIDDEN, HIDING
from ranks import clean_environ
from real_data import real_input

CALLS = (
    'openat(AT_FDCWD, "/d/x.bin", O_RDONLY) = 3',
    'read(3, "", 4096) = 4096',
    'read(3, "", 4096) = 1000',
    "close(3) = 0",
)
STRACE = "".join(f"7 170000000{second}.1 {call} <0.1>\n" for second, call in enumerate(CALLS))
PFW = "[\n" + "".join(
    json.dumps(
        {"name": name, "cat": "POSIX", "pid": 7, "tid": 7, "ts": 1744611912980013 + 10 * number, "dur": 5, "ph": "X",
         "args": {"fname": "/d/x.bin", "ret": size, "size": size}}
    ) + "\n"
    for number, (name, size) in enumerate((("open64", 3), ("read", 4096), ("read", 1000), ("close", 0)))
)  # fmt: skip
PROGRAM = "open('data.bin', 'wb').write(bytes(5000)); open('data.bin', 'rb').read()"


def without_torch(*command: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """A Python process that finds no torch and no torchdata."""
    environ = clean_environ() | {HIDDEN: "torch torchdata"}
    environ["PYTHONPATH"] = os.pathsep.join(filter(None, (str(HIDING.parent), environ.get("PYTHONPATH"))))
    return subprocess.run(
        [sys.executable, *command], cwd=cwd, env=environ, capture_output=True, text=True, timeout=200, check=False
    )


def verb(*arguments: str, cwd: Path) -> str:
    """Standard output of a verb that succeeds."""
    done = without_torch("-m", "dlio_torch", *arguments, cwd=cwd)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with recordings: ``mine`` of the recorder, ``strace.txt``, ``dftracer.pfw``."""
    path = tmp_path_factory.mktemp("recordings")
    assert "No module named 'torch'" in without_torch("-c", "import torch", cwd=path).stderr
    verb("trace", "--output", "mine", "--", sys.executable, "-c", PROGRAM, cwd=path)
    (path / "strace.txt").write_text(STRACE)
    (path / "dftracer.pfw").write_text(PFW)
    return path


@pytest.mark.parametrize(
    ("recording", "file", "size"),
    [("mine", "data.bin", 5000), ("strace.txt", "x.bin", 5096), ("dftracer.pfw", "x.bin", 5096)],
)
def test_a_recording_is_reported(recording: str, file: str, size: int, folder: Path) -> None:
    figures = json.loads(verb("report", "--json", recording, cwd=folder))
    assert figures["io"]["bandwidth"]["read"]["bytes"] == size
    verb("report", "--output", f"{recording}.html", recording, cwd=folder)
    assert file in (folder / f"{recording}.html").read_text()


@pytest.mark.parametrize(("recording", "other"), [("mine", "strace.txt"), ("strace.txt", "dftracer.pfw")])
def test_two_recordings_are_compared(recording: str, other: str, folder: Path) -> None:
    comparison = json.loads(verb("compare", "--json", recording, other, cwd=folder))
    assert comparison["components"]


def test_a_darshan_log_is_reported_and_compared(folder: Path) -> None:
    log = str(real_input("nonmpi_dxt.darshan"))
    assert json.loads(verb("report", "--json", log, cwd=folder))
    assert json.loads(verb("compare", "--json", log, log, cwd=folder))["components"]
