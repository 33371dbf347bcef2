"""Numbers that are right each for itself and lead nowhere: refused before anything is written or allocated."""

from __future__ import annotations

import errno
import itertools
import os
import resource
import shutil
import socket
import subprocess
import sys
from pathlib import Path

import pytest
from checkpointers import checkpointer
from overrides import overridden
from ranks import clean_environ

from dlio_torch import cli
from dlio_torch.checkpoint.saves import saves
from dlio_torch.config.schema import CheckpointConfig

RANK = ("RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
SMALL = ("recipe=minimal", "scale=tiny", "storage.limits=off")
JOB = (
    "model.hidden_size=8192", "model.num_layers=800", "model.num_heads=64", "model.ffn_hidden_size=28672",
    "model.vocab_size=128256", "checkpoint.every_steps=1",
)  # fmt: skip
HUGE = [
    (2, ["compute.step_s=1e300"], ["compute.step_s=1e300 (command line)", "at most 277777 h"]),
    (2, ["compute.step_s=1e400"], ["compute.step_s=1e400 (command line)", "too large"]),
    (2, ["train.epochs=1000000000000000000"], ["train.epochs=1000000000000000000 (command line)", "more than a year"]),
    (2, ["compute.step_s=100000h"], ["compute.step_s=", "more than a year"]),
    (2, ["compute.preprocess_s=100000h"], ["compute.preprocess_s=", "more than a year"]),
    (2, ["dataset.num_files=4611686018427387904"], ["dataset.num_files=4611686018427387904", "a data set has at most"]),
    (3, ["dataset.num_files=100000000000"], ["dataset.num_files=100000000000", "file system"]),
    (2, ["train.batch_size=1000000000"], ["train.batch_size=1000000000 (command line)", "is larger than the data set"]),
    (3, ["train.batch_size=1000000000", "access.tail=pad"], ["train.batch_size=1000000000", "this machine has"]),
    (2, ["loader.num_workers=1000000"], ["loader.num_workers=1000000 (command line)", "must be at most 65536"]),
    (3, ["loader.num_workers=65536"], ["loader.num_workers=65536 (command line)"]),
    (3, ["dataset.fields=[{name: x, shape: [1152921504606846976]}]"], ["train.batch_size", "this machine has"]),
    (2, ["access.hold_steps=4611686018427387904"], ["access.hold_steps", "must be at most"]),
    (2, ["train.steps=9223372036854775807"], ["train.steps=9223372036854775807"]),
    (2, ["dataset=tfrecord", "dataset.tfrecord.transfer_size=1TB"], ["transfer_size=1TB", "must be at most"]),
    (
        3,
        ["checkpoint.layout=torch_save", "checkpoint.every_steps=1", "checkpoint.state_bytes=1024PiB"],
        ["checkpoint.state_bytes", "of checkpoint content in memory"],
    ),
    *(
        (
            3,
            [*JOB, f"checkpoint.layout={layout}"],
            ["model.num_layers=800 (command line)", "a rank keeps ", "fewer ranks"],
        )
        for layout in ("dcp", "megatron_deepspeed", "torch_save")
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
    assert out.count("not possible on this machine: ") == 2
    assert "train.batch_size=1000000000 (command line)" in out
    assert "dataset.num_files=10000000000" in out


CHECKPOINTS = ("checkpoint=torch_save", "checkpoint.every_steps=1", "checkpoint.state_bytes=1MiB")
FILES = ("checkpoint.layout=files", "checkpoint.state_bytes=0")


@pytest.mark.parametrize(
    ("options", "size"),
    [
        (["checkpoint.keep=1"], "2 MiB"),  # the old one goes when the new one is there
        (["checkpoint.keep=0"], "8 MiB"),
        (["checkpoint.keep=0", "checkpoint.restore=true"], "9 MiB"),
        (["checkpoint.keep=20"], "8 MiB"),
        (["checkpoint.keep=0", "checkpoint.every_steps=3", "train.epochs=3"], "10 MiB"),  # of steps 3, 6, 8, 9 ... 24
        (
            [*FILES, "checkpoint.files=[{name: a, bytes: 3MiB}, {name: 'b-{step}', bytes: 1MiB}]"],
            "8 MiB",  # a is replaced, b is kept once, and both are there twice for a moment
        ),
    ],
)
def test_a_dry_run_says_what_checkpoints_take(
    options: list[str], size: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    settings = overridden(*SMALL, *CHECKPOINTS, f"output.root={tmp_path}", "train.epochs=1", *options)
    assert cli.main([*settings, "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert f"up to {size} of disk space at a time in {tmp_path}/minimal\n" in out
    assert "not possible on this machine" not in out


def test_checkpoints_are_counted_as_they_are_written(tmp_path: Path) -> None:
    for epochs, steps, every_steps, every_epochs in itertools.product(range(1, 5), range(1, 5), range(5), range(4)):
        saved = CheckpointConfig("files", every_steps, every_epochs)
        due = checkpointer(saved, tmp_path, 0).due
        written = sum(
            due(epoch + 1, epoch * steps + step, step == steps)
            for epoch in range(epochs)
            for step in range(1, steps + 1)
        )
        assert saves(saved, steps, epochs) == written


def test_checkpoints_without_room_are_refused_before_anything_is_written(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    free = shutil.disk_usage(tmp_path).free
    words = overridden(*SMALL, *CHECKPOINTS, *FILES, "checkpoint.keep=0")
    words.append(f"checkpoint.files=[{{name: 'c-{{step}}', bytes: {free // 4}, write_bytes: 1MiB}}]")
    assert cli.main([*words, "--dry-run"]) == 0
    line = "checkpoint.keep=0: 8 checkpoints of "
    assert f"not possible on this machine: {line}" in capsys.readouterr().out
    assert cli.main(words) == 3
    errors = [one for one in capsys.readouterr().err.splitlines() if "error" in one]
    assert len(errors) == 1
    assert line in errors[0]
    assert list(tmp_path.iterdir()) == []


def test_a_dry_run_says_that_fewer_ranks_were_started(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*SMALL, "system.world_size=512", "dist.backend=torch", "--dry-run"]) == 0
    out = capsys.readouterr().out
    assert "ranks: 1; the published run had 512 (system.world_size); start more ranks with a launcher\n" in out
    assert (
        "not possible on this machine: dist.backend=torch needs a launcher, but no launcher started this "
        "process; start the ranks with torchrun" in out
    )
    assert cli.main([*SMALL, "--dry-run"]) == 0
    assert "ranks: 1\n" in capsys.readouterr().out


def test_a_gradient_that_no_memory_holds_is_refused_in_the_plan(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    words = [*SMALL, "train.allreduce_bytes=1024PiB"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    for name, text in {"RANK": 0, "LOCAL_RANK": 0, "WORLD_SIZE": 1, "MASTER_PORT": port}.items():
        monkeypatch.setenv(name, str(text))
    monkeypatch.setenv("MASTER_ADDR", "127.0.0.1")
    line = "train.allreduce_bytes=1152921504606846976 (command line): a rank would hold 1024 PiB of gradient in memory"
    assert cli.main([*words, "--dry-run"]) == 0
    assert f"not possible on this machine: {line}" in capsys.readouterr().out
    done = subprocess.run(
        [sys.executable, "-m", "dlio_torch", *words], env=clean_environ() | {name: os.environ[name] for name in RANK},
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 3, done.stderr
    assert f"dlio_torch: error: {line}" in done.stderr
    assert list(tmp_path.iterdir()) == []
    for name in RANK:  # a process alone reduces nothing
        monkeypatch.delenv(name)
    assert cli.main([*words, "--dry-run"]) == 0
    assert "not possible on this machine" not in capsys.readouterr().out


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


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError("Caught in a worker.\nOriginal Traceback:\n  File x\nUnable to allocate 1.02 GiB\n"), "1.02 GiB)"),
        (RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried 8"), "you tried 8)"),
        (RuntimeError("can't start new thread"), "can't start new thread)"),
        (ImportError("libtorch.so: failed to map segment from shared object"), "from shared object)"),
        (OSError(errno.ENOMEM, os.strerror(errno.ENOMEM)), "Cannot allocate memory)"),
    ],
)  # fmt: skip
def test_running_out_of_memory_is_no_bug(
    error: Exception, said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def fail(*_: object) -> int:
        try:
            raise error
        finally:
            raise RuntimeError("what a clean-up makes of it")

    monkeypatch.setattr(cli, "_dispatch", fail)
    assert cli.main(["ls"]) == 1
    line = capsys.readouterr().err
    assert "error: not enough memory (" in line
    assert f"{said}; use smaller batches" in line
    assert "bug" not in line


def test_a_limit_of_memory_is_named() -> None:
    """Where not even torch can be loaded."""
    program = "ulimit -v 400000 && exec python -m dlio_torch recipe=minimal scale=tiny --dry-run"
    environ = clean_environ() | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["sh", "-c", program], env=environ, capture_output=True, text=True, timeout=120, check=False
    )  # fmt: skip
    assert done.returncode == 1
    [line] = done.stderr.splitlines()
    assert line.startswith("dlio_torch: error: not enough memory (")
    assert "the limit of a process is 400000 KiB (ulimit -v); raise the limit" in line
