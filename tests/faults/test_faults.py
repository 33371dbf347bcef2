"""Calls of the system go wrong under command lines: one line, the right exit code, nothing lost, a rerun completes."""

from __future__ import annotations

import errno
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from faults import BASE, ROOMY, FaultServer, check, rule
from optional_parts import formats

from dlio_torch.iotrace.events.event_table import read_events
from dlio_torch.run_directory import run_state
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.train.steps import read_steps

CHECKPOINT = ("checkpoint=torch_save", "checkpoint.every_steps=2", "checkpoint.state_bytes=100KiB")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[FaultServer]:
    with FaultServer(tmp_path_factory.mktemp("faults")) as made:
        yield made


@pytest.mark.parametrize(
    ("dataset", "fault", "code", "line"),
    [
        (
            "hdf5",
            ("write", "/train/.train", errno.ENOSPC, 2),
            3,
            r"\.h5 could not be written: No space.*; free space on the file system, or",
        ),
        ("hdf5", ("open", ".part", errno.EACCES), 3, "cannot be written to .*: Permission denied; get the permissions"),
        ("csv", ("write", "/train/.train", errno.EIO), 1, r"\.csv could not be written: Input/output error; check the"),
        ("npz", ("rename", "/train/train", errno.EDQUOT), 3, r"\.npz could not be written: Disk quota exceeded; free"),
        ("npz", ("open", "/train/.train", errno.EMFILE), 3, "Too many open files; raise the limit of open files"),
        ("parquet", ("fsync", "/train/.train", errno.EIO), 1, r"\.parquet could not be written: Input/output error"),
    ],
)
def test_generation(
    dataset: str, fault: tuple[Any, ...], code: int, line: str, server: FaultServer, tmp_path: Path
) -> None:
    what = ["generate", *BASE[:-1], f"dataset={dataset}"]
    calls, path, number, *first = fault
    ended, again = server.run(tmp_path, *what, faults=[rule(calls, path, number, *first)], then=[what])
    check(ended, code, line)
    assert again.code == 0, again.err
    assert not list(tmp_path.rglob("*.part*"))


@pytest.mark.parametrize("dataset", formats(["netcdf", "netcdf_classic", "silo", "adios2", "hdf5", "tfrecord"]))
def test_a_library_meets_a_full_disk(dataset: str, server: FaultServer, tmp_path: Path) -> None:
    """Also those that keep to themselves what the system said."""
    what = ["generate", *BASE[:-1], f"dataset={dataset}", "dataset.root=small"]
    mounts = [{"at": str(tmp_path / "small"), "options": "size=150k"}]
    (ended,) = server.run(tmp_path, *what, mounts=mounts, patch=[ROOMY])
    check(
        ended,
        3,
        "could not be written: No space left on device; free space on the file system, or choose "
        "another dataset.root; finished",
    )


def test_a_library_that_tries_a_file_out_without_room(server: FaultServer, tmp_path: Path) -> None:
    (ended,) = server.run(tmp_path, "generate", *BASE[:-1], "dataset=adios2", limits={"RLIMIT_FSIZE": 20_000})
    check(
        ended,
        3,
        "a trial file to measure the file size cannot be written to .*: File too large; raise the limit of file sizes",
    )


@pytest.mark.parametrize(
    ("options", "fault", "code", "line"),
    [
        (
            ["dataset=npz"],
            ("open", "/train_", errno.EMFILE, 6),
            3,
            "Too many open files; .*lower loader.max_open_files",
        ),
        (
            ["loader.num_workers=1"],
            ("read", "/train_", errno.EIO, 8),
            3,
            r"\.h5 cannot be read: Input/output error; ",
        ),
        (
            ["loader=decoupled", "dataset=npy"],
            ("read", "/train_", errno.ESTALE, 2),
            3,
            "cannot be read: Stale file handle",
        ),
        (["loader=decoupled", "dataset=tfrecord"], ("read", "/train_", "short"), 0, ""),
        (["dataset=tfrecord"], ("read", "/train_", "short"), 0, ""),
        (["dataset=indexed_binary"], ("read", "/train_", errno.EINTR, 5, 1), 0, ""),
    ],
)
def test_reading(
    options: list[str], fault: tuple[Any, ...], code: int, line: str, server: FaultServer, tmp_path: Path
) -> None:
    made, *_ = server.run(tmp_path, "generate", *BASE[:-1], *options)
    assert made.code == 0, made.err
    calls, path, number, *rest = fault
    faults = [rule(calls, path, number, *rest)]
    (ended,) = server.run(tmp_path, "train", *BASE, *options, "verify=true", faults=faults)
    check(ended, code, line)
    assert "damaged" not in ended.err


@pytest.mark.parametrize(
    ("fault", "code", "line"),
    [
        (
            ("open", "/.summary.json", errno.ENOSPC),
            3,
            r"summary.json cannot be written: No space.*figures are printed above",
        ),
        (
            ("open", "/run/.", errno.ENOSPC, 6),
            3,
            "these files cannot be written either: steps.csv, trace.json.gz; the figures are",
        ),
        (("fsync", "/.summary.json", errno.EIO), 1, r"summary.json cannot be written: Input/output error; the figures"),
        (
            ("write", "steps.rank0", errno.EDQUOT, 2),
            0,
            "warning: step times cannot be written to .*: Disk quota exceeded",
        ),
        (
            ("fallocate", "/events/", errno.ENOSPC),
            0,
            "warning: spans cannot be recorded in .*: No space left on device",
        ),
    ],
)
def test_what_cannot_be_written_costs_nobody_the_figures(
    fault: tuple[Any, ...], code: int, line: str, server: FaultServer, tmp_path: Path
) -> None:
    calls, path, number, *first = fault
    (ended,) = server.run(tmp_path, *BASE, faults=[rule(calls, path, number, *first)])
    check(ended, code, line)
    assert "throughput" in ended.out
    directory = RunDir(tmp_path / "run")
    state = run_state.read(directory.state)
    assert state is not None
    assert (state.state, state.exit_code) == ("failed" if code else "done", code)
    if path == "/events/":  # nothing is said of what was not recorded
        assert directory.read_json(directory.summary)["stalls"] is None
        assert len(read_events(directory.events).frame) == 0
    if not code:
        assert len(read_steps(directory.steps())[0]) == 8


@pytest.mark.parametrize(
    ("options", "fault", "code", "line"),
    [
        (
            CHECKPOINT,
            ("rename", "/checkpoints/", errno.EDQUOT),
            3,
            "checkpoint file .* cannot be written .*: Disk quota",
        ),
        (
            CHECKPOINT,
            ("fsync", "/checkpoints", errno.EIO, 2),
            1,
            "checkpoints.* Input/output error; check the file system",
        ),
        (
            ["stage.dir=local"],
            ("write,sendfile", "local/", errno.ENOSPC, 2),
            3,
            "stage.dir=local on host .*: No space left",
        ),
        (
            ["stage.dir=local"],
            ("rename", "local/", errno.EIO),
            1,
            "could not be copied to stage.dir=local .*: Input/output",
        ),
        (
            [],
            ("mkdir", "/run", errno.EROFS),
            3,
            "output.dir=.* cannot be made: Read-only file system; have the file system mounted",
        ),
    ],
)
def test_writing_beside_the_results(
    options: list[str], fault: tuple[Any, ...], code: int, line: str, server: FaultServer, tmp_path: Path
) -> None:
    calls, path, number, *first = fault
    (ended,) = server.run(tmp_path, *BASE, *options, faults=[rule(calls, path, number, *first)])
    check(ended, code, line)
    if options:
        state = run_state.read(tmp_path / "run/state.json")
        assert state is not None
        assert (state.state, state.exit_code) == ("failed", code)
        assert not list(tmp_path.glob("local/*"))


def test_a_program_whose_recording_has_no_room_ends_as_it_would_without(server: FaultServer, tmp_path: Path) -> None:
    program = "for _ in range(3000): open('/etc/hostname').close()\nprint('the program is done')"
    words = ["trace", "--output", "small/recorded", "--", sys.executable, "-S", "-E", "-c", program]
    mounts = [{"at": str(tmp_path / "small"), "options": "size=60k"}]
    (ended,) = server.run(tmp_path, *words, mounts=mounts)
    assert ended.out == "the program is done\n"
    check(
        ended, 3, "summary.json cannot be written: No space left .* the program ended with 0, its figures are printed"
    )


def test_a_folder_of_results_that_is_removed(server: FaultServer, tmp_path: Path) -> None:
    patch = f"""
import shutil
from dlio_torch.train.trainer import Trainer
record, left = Trainer._record, iter([False, False, True, *[False] * 99])
def remove(*arguments):
    if next(left): shutil.rmtree({str(tmp_path / "run")!r})
    return record(*arguments)
Trainer._record = remove
"""
    (ended,) = server.run(tmp_path, *BASE, patch=[patch])
    check(
        ended,
        0,
        "warning: step times cannot be written to .*: No such file or directory; another program removed the file",
    )
    assert "throughput" in ended.out


HANG = [rule("read", "/train_0000002", "hang")]
SOON = ("loader.timeout_s=2", "output.patience_s=0.5")


def test_a_worker_that_hangs_is_named(server: FaultServer, tmp_path: Path) -> None:
    options = (*BASE, "dataset=npz", "loader.num_workers=1", *SOON)
    (ended,) = server.run(tmp_path, *options, faults=HANG)
    worker = r"worker 0 \(pid \d+\) reads .*/never.fifo \(asleep"
    check(ended, 1, f"no batch came from the loader workers for 2 s: {worker}")
    assert re.search(f"dlio_torch: waiting for the batch of step \\d of epoch 1 for \\d s: {worker}", ended.err)


@pytest.mark.parametrize("options", [["dataset=npz"], ["dataset=hdf5"], ["dataset=hdf5", "loader=threads"]])
def test_a_read_of_the_process_itself_that_never_returns(
    options: list[str], server: FaultServer, tmp_path: Path
) -> None:
    """h5py holds the interpreter lock meanwhile: no thread of Python can say or end anything."""
    (ended,) = server.run(tmp_path, *BASE, *options, *SOON, faults=HANG)
    check(ended, 1, r"reads .*/never.fifo \(asleep.*; check the file system, or raise loader.timeout_s")
    state = run_state.read(tmp_path / "run/state.json")
    assert state is not None
    assert (state.state, state.exit_code) == ("failed", 1)
    assert "/never.fifo" in state.line
