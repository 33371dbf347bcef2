"""Simulated storage: which reads it delays, that the recorder sees them, and that a run tells what it allows."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.data.engines.delayed_reads import DelayedReads, StorageDelay, delayed_environment, delayed_reads
from dlio_torch.native.build import find_compiler

pytestmark = pytest.mark.skipif(find_compiler() is None, reason="no C compiler")
PROGRAM = """
import os, sys
from dlio_torch.data.engines.delayed_reads import delayed_reads
from dlio_torch.data.engines.replay_reads import serve
from pathlib import Path

path, folder = Path(sys.argv[1]), Path(sys.argv[2])
counts = []

def count():
    counts.append(delayed_reads(folder).count)

with path.open("rb", buffering=0) as file:
    content = file.read(1000) + file.read(2000)
    count()
    assert file.tell() == os.lseek(file.fileno(), 0, os.SEEK_CUR) == 3000
    os.readv(file.fileno(), [bytearray(100), bytearray(200)])
    count()
    if not os.fork():
        os._exit(os.pread(file.fileno(), 10, 5) != content[5:15])
    assert os.wait()[1] == 0
    count()
    os.pread(file.fileno(), 10, 1 << 30)
    count()
Path(sys.argv[3]).read_bytes()
count()
serve([path])
assert path.read_bytes()[:3000] == content
count()
print(counts)
"""


def test_each_read_of_a_listed_file_asks_the_storage_once(tmp_path: Path) -> None:
    """Not at the end of the file, not of other files, and not where reads are replayed."""
    path, other = tmp_path / "listed.bin", tmp_path / "other.bin"
    path.write_bytes(os.urandom(5000))
    other.write_bytes(b"other")
    environment = delayed_environment(StorageDelay(1e-4, 1e8, 1e-4), [path], tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(path), str(tmp_path), str(other)],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [2, 3, 4, 4, 4, 4]
    assert delayed_reads(tmp_path) == DelayedReads(4, 1000 + 2000 + 300 + 10)


def test_a_run_says_what_the_storage_allows_from_its_recorded_calls(tmp_path: Path) -> None:
    arguments = [
        "recipe=minimal", "scale=paper", "dataset.num_files=24", "dataset.samples_per_file=1", "train.batch_size=1",
        "compute.step_s=1ms", "cache=as_is", "checkpoint=none", f"dataset.root={tmp_path / 'data'}",
    ]  # fmt: skip
    program = [sys.executable, "-m", "dlio_torch"]
    subprocess.run([*program, "generate", *arguments], check=True, capture_output=True)
    files = sorted((tmp_path / "data").rglob("*.h5"))
    run = tmp_path / "run"
    done = subprocess.run(
        [*program, *arguments, "trace.posix=true", f"output.dir={run}"],
        env={**os.environ, **delayed_environment(StorageDelay(1e-3), files, tmp_path)},
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr
    summary = json.loads((run / "summary.json").read_text())
    assert summary["au_of_storage"]["why"] is None
    assert summary["au_of_storage"]["source"] == "calls"
    assert 0 < summary["au_of_storage"]["min"] <= summary["au_of_storage"]["mean"] < 0.5  # each sample is several reads
    calls = open_recording(run).io
    reads = calls[calls["op"].isin(["read", "pread"]) & (calls["bytes"] > 0) & calls["file"].isin(map(str, files))]
    assert delayed_reads(tmp_path) == DelayedReads(len(reads), int(reads["bytes"].sum()))
    assert len(reads) % len(files) == 0
