"""Reads that are answered from memory: the same bytes, and the kernel sees no call."""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from forked_programs import by_itself
from ranks import SUPPORT

from dlio_torch.data.engines import replay_reads
from dlio_torch.errors import PreconditionError
from dlio_torch.native.build import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
PROGRAM = SUPPORT / "memory_programs.py"


def test_every_way_of_reading_gives_the_bytes_of_the_file_without_read_calls(tmp_path: Path) -> None:
    content = os.urandom(1 << 20)
    for name in ("big.bin", "other.bin"):
        (tmp_path / name).write_bytes(content)
    done = subprocess.run(
        [sys.executable, str(PROGRAM), str(tmp_path)],
        env={**os.environ, **replay_reads.waiting_environment()},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found["ways"] == dict.fromkeys(found["ways"], True)
    assert found["size"] == found["whole"] == 1 << 20
    assert found["calls"] < 4096  # the counter's own file is read by calls
    assert found["missing"] == errno.ENOENT
    child = json.loads((tmp_path / "child.json").read_text())
    assert child["right"]
    assert 1 << 20 <= child["calls"] < (1 << 20) + 4096  # the other file only


def test_a_run_with_workers_reads_what_was_generated(tmp_path: Path) -> None:
    summaries = {replay: run(tmp_path, replay) for replay in ("none", "reads")}
    assert all(one["verified_samples"] == 32 for one in summaries.values())
    read = {replay: one["epochs"][0][0]["io"]["rchar"] for replay, one in summaries.items()}
    assert read["reads"] < read["none"] - 0.9 * 32 * 65536
    assert summaries["reads"]["load"]["bytes"][0] > 32 * 65536


def run(folder: Path, replay: str) -> dict[str, Any]:
    arguments = [
        "recipe=minimal",
        "dataset.samples_per_file=8",
        "dataset.fields=[{name: data, shape: [128, 128]}]",
        "loader.num_workers=1",
        "compute.step_s=1ms",
        "verify=true",
        f"loader.replay={replay}",
        f"dataset.root={folder / 'data'}",
        f"output.dir={folder / replay}",
    ]
    command = [sys.executable, "-m", "dlio_torch", *arguments]
    with by_itself():
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=200)
    assert done.returncode == 0, done.stderr
    found: dict[str, Any] = json.loads((folder / replay / "summary.json").read_text())
    return found


def test_a_process_without_the_library_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(PreconditionError, match="when the process starts"):
        replay_reads.serve([tmp_path])
