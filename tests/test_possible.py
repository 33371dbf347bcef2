"""Numbers that are right each for itself and lead nowhere: refused before anything is written or allocated."""

from __future__ import annotations

import resource
from pathlib import Path

import pytest

from dlio_torch import cli

SMALL = ("recipe=minimal", "scale=tiny", "storage.limits=off")
HUGE = [
    (2, ["compute.step_s=1e300"], ["compute.step_s=1e300 (command line)", "at most 277777 h"]),
    (2, ["compute.step_s=1e400"], ["compute.step_s=1e400 (command line)", "too large"]),
    (2, ["train.epochs=1000000000000000000"], ["train.epochs=1000000000000000000 (command line)", "more than a year"]),
    (2, ["compute.step_s=100000h"], ["compute.step_s=", "more than a year"]),
    (2, ["compute.preprocess_s=100000h"], ["compute.preprocess_s=", "more than a year"]),
    (2, ["dataset.num_files=4611686018427387904"], ["dataset.num_files=4611686018427387904", "samples are numbered"]),
    (3, ["dataset.num_files=100000000000"], ["dataset.num_files=100000000000", "file system"]),
    (2, ["train.batch_size=1000000000"], ["train.batch_size=1000000000 (command line)", "does not fit"]),
    (3, ["train.batch_size=1000000000", "access.tail=pad"], ["train.batch_size=1000000000", "this machine has"]),
    (2, ["loader.num_workers=1000000"], ["loader.num_workers=1000000 (command line)", "must be at most 65536"]),
    (3, ["loader.num_workers=65536"], ["loader.num_workers=65536 (command line)"]),
    (3, ["dataset.fields=[{name: x, shape: [1152921504606846976]}]"], ["train.batch_size", "this machine has"]),
    (2, ["access.hold_steps=4611686018427387904"], ["access.hold_steps", "must be at most"]),
    (2, ["train.steps=9223372036854775807"], ["train.steps=9223372036854775807"]),
    (2, ["dataset=tfrecord", "dataset.tfrecord.transfer_size=1TB"], ["transfer_size=1TB", "must be at most"]),
    (
        3,
        ["checkpoint.kind=torch", "checkpoint.every_steps=1", "checkpoint.state_bytes=1024PiB"],
        ["checkpoint.state_bytes", "are kept in memory"],
    ),
]


@pytest.mark.parametrize(("code", "arguments", "named"), HUGE, ids=[" ".join(one[1]) for one in HUGE])
def test_is_refused(
    code: int, arguments: list[str], named: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert cli.main([*SMALL, *arguments]) == code
    lines = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert len(lines) == 1
    for text in named:
        assert text in lines[0]
    assert list(tmp_path.iterdir()) == []
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 512 << 10  # KiB


def test_a_dry_run_says_what_this_machine_lacks(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    # Elsewhere there may be room: the plan is still of use.
    settings = ["train.batch_size=1000000000", "access.tail=pad", f"dataset.root={tmp_path}"]
    assert cli.main([*SMALL, *settings, "dataset.num_files=10000000000", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert out.count("not possible here: ") == 2
    assert "train.batch_size=1000000000 (command line)" in out
    assert "dataset.num_files=10000000000" in out


def test_refusals_of_the_plan_come_before_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for arguments in (["recipe=frnn", "dataset=tfrecord", "dataset.fields=[{name: x, shape: [4]}]"],
                      ["recipe=minimal", "train.steps=100"]):  # fmt: skip
        assert cli.main([*arguments, "scale=tiny", "storage.limits=off"]) == 2
        assert list(tmp_path.iterdir()) == []


def test_control_characters_do_not_reach_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["recipe=\x1b[31mred\u202e", "loader.x=\x07"]) == 2
    line = capsys.readouterr().err.rstrip("\n")
    assert line.isprintable()
    assert "\\x1b[31mred" in line


def test_running_out_of_memory_is_no_bug(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(*_: object) -> int:
        raise MemoryError("Caught in a worker.\nOriginal Traceback:\n  File x\nUnable to allocate 1.02 GiB\n")

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert cli.main(["ls"]) == 1
    said = capsys.readouterr().err
    assert "error: not enough memory (Unable to allocate 1.02 GiB); take smaller batches" in said
    assert "bug" not in said
