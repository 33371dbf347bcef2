"""The plain training programs, which recordings and fits are tried on, read the samples that they should."""

from __future__ import annotations

import json
import runpy
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from ranks import clean_environ

PROGRAMS = Path(__file__).parents[1] / "support" / "plain_programs"
EPOCHS = 2


@dataclass(frozen=True)
class Program:
    """How a program is run.

    Attributes:
        name: of the file.
        samples: written and, in each epoch, read.
        library: that it needs beside torch, NumPy, h5py and pandas.
        workers: of its loader.
        flags: further ones.
        key: name of the sample of this number, as printed.
    """

    name: str
    samples: int = 24
    library: str = "torch"
    workers: int = 0
    flags: Sequence[str] = ()
    key: Callable[[int], object] = int


CASES = [
    Program("image_folder", library="PIL", workers=2),
    Program("hdf5_samples", workers=2),
    Program("hdf5_samples", workers=2, flags=("--open", "worker")),
    Program("hdf5_crops", samples=32),
    Program("webdataset_shards", library="webdataset", key="{:08d}".format),
    Program("arrow_table", library="datasets"),
    Program("parquet_rows", samples=256, library="pyarrow", workers=2),
    Program("npz_volumes", samples=8),
    Program("csv_in_memory"),
    Program("dcp_checkpoints", flags=("--save-every", "5")),
    Program("hand_written_loop"),
    Program("hand_written_loop", workers=1),
]

Run = Callable[..., list[dict[str, Any]]]


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs a program in this process; returns the lines that it prints."""

    def run(name: str, *arguments: object) -> list[dict[str, Any]]:
        script = PROGRAMS / f"{name}.py"
        monkeypatch.setattr(sys, "argv", [str(script), *map(str, arguments)])
        runpy.run_path(str(script), run_name="__main__")
        return [json.loads(line) for line in capsys.readouterr().out.splitlines()]

    batches = torch.utils.data.BatchSampler
    monkeypatch.setattr(batches, "__iter__", batches.__iter__)  # which the programs replace
    monkeypatch.syspath_prepend(PROGRAMS)
    return run


def check(lines: list[dict[str, Any]], samples: int, batch_size: int, keys: list[Any]) -> None:
    """Each epoch has each sample once, and the figures count them all."""
    *batches, figures = lines
    indices = [index for batch in batches for index in batch["indices"]]
    assert sorted(indices) == sorted(keys * EPOCHS)
    assert sorted(indices[:samples]) == keys
    assert figures["samples"] == EPOCHS * samples
    assert figures["steps"] == EPOCHS * samples // batch_size
    assert figures["samples_per_s"] * figures["training_s"] == pytest.approx(EPOCHS * samples - batch_size)


@pytest.mark.filterwarnings("ignore:unclosed file:ResourceWarning")  # webdataset leaves shards to the collector
@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
@pytest.mark.parametrize("program", CASES, ids=lambda case: "-".join([case.name, *case.flags, str(case.workers)]))
def test_a_program_reads_each_sample_once_an_epoch(program: Program, run: Run, tmp_path: Path) -> None:
    pytest.importorskip(program.library, reason=f"{program.name} reads its data through {program.library}")
    run(program.name, "--make", "--data", tmp_path / "data", "--samples", program.samples)
    lines = run(
        program.name, "--data", tmp_path / "data", "--output", tmp_path / "saved", "--print-indices",
        "--batch-size", 2, "--workers", program.workers, "--step-ms", 0, *program.flags,
    )  # fmt: skip
    check(lines, program.samples, 2, [program.key(number) for number in range(program.samples)])


def test_made_data_are_the_same_each_time(run: Run, tmp_path: Path) -> None:
    for folder in ("first", "second"):
        run("hand_written_loop", "--make", "--data", tmp_path / folder, "--samples", 8)
    first, second = (sorted((tmp_path / folder).iterdir()) for folder in ("first", "second"))
    assert [path.read_bytes() for path in first] == [path.read_bytes() for path in second]


def test_windows_of_tokens_are_drawn_with_replacement(run: Run, tmp_path: Path) -> None:
    run("memmap_tokens", "--make", "--data", tmp_path, "--samples", 3)
    lines = run("memmap_tokens", "--data", tmp_path, "--workers", 0, "--print-indices", "--batch-size", 2)
    starts = [index for batch in lines[:-1] for index in batch["indices"]]
    assert len(starts) == EPOCHS * 2
    assert all(0 <= start <= 2 * 1024 for start in starts)
    assert lines[-1]["samples"] == EPOCHS * 2


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_the_checkpoints_hold_model_and_optimizer(run: Run, tmp_path: Path) -> None:
    data, saved = tmp_path / "data", tmp_path / "saved"
    run("dcp_checkpoints", "--make", "--data", data, "--samples", 4)
    run("dcp_checkpoints", "--data", data, "--output", saved, "--batch-size", 1, "--workers", 0, "--save-every", 3)
    assert sorted(path.name for path in saved.iterdir()) == ["step_3", "step_6"]
    names = torch.distributed.checkpoint.FileSystemReader(saved / "step_6").read_metadata().state_dict_metadata
    assert any(name.startswith("model.") for name in names)
    assert any(name.startswith("optimizer.state.") for name in names)


@pytest.mark.ranks
def test_two_ranks_read_each_sample_once_an_epoch(run: Run, tmp_path: Path) -> None:
    run("distributed_sampler", "--make", "--data", tmp_path, "--samples", 256)
    script = [PROGRAMS / "distributed_sampler.py", "--data", tmp_path, "--workers", 0, "--batch-size", 4]
    done = subprocess.run(
        [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]
        + [str(word) for word in (*script, "--step-ms", 0, "--print-indices")],
        env=clean_environ(),
        capture_output=True,
        text=True,
        check=True,
    )
    *batches, figures = sorted((json.loads(line) for line in done.stdout.splitlines()), key=len)
    indices = sorted(index for batch in batches for index in batch["indices"])
    assert indices == sorted([*range(256)] * EPOCHS)
    assert figures["samples"] == EPOCHS * 256
    assert figures["steps"] == EPOCHS * 256 // 8
