"""Recordings of the plain training programs become recipes that say how they read.

Each program is recorded once in a session, with few samples.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from ranks import clean_environ

from dlio_torch.config.compose import compose
from dlio_torch.fit.fit_recording import FittedTraining, fit_training
from dlio_torch.fit.recipe_text import recipe_text
from dlio_torch.fit.recorded_training import read_training

PROGRAMS = Path(__file__).parents[1] / "support" / "plain_programs"

Fit = Callable[..., FittedTraining]


@pytest.fixture(scope="session")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Fit:
    """Records a program with a number of samples and with flags, and fits the recording."""

    @cache
    def fit(name: str, samples: int, *flags: str, ranks: int = 1) -> FittedTraining:
        folder = tmp_path_factory.mktemp(name)
        script = [str(PROGRAMS / f"{name}.py"), "--data", str(folder / "data"), "--output", str(folder / "checkpoints")]
        _run([sys.executable, *script, "--make", "--samples", str(samples)])
        launcher = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={ranks}"] if ranks > 1 else []
        recorder = [sys.executable, "-m", "dlio_torch", "trace", "--output", str(folder / "rec"), "--"]
        _run([*recorder, sys.executable, *launcher, *script, "--step-ms", "1", *flags])
        return fit_training(read_training(folder / "rec"))

    return fit


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, env=clean_environ(), capture_output=True, text=True, check=False, timeout=300)
    assert not ended.returncode, f"{ended.stdout}{ended.stderr}"


# --- order, division, batches ---------------------------------------------------------------------------------

READS: list[tuple[str, str, int, tuple[str, ...], int, dict[str, Any]]] = [
    (
        "parquet_rows", "pyarrow", 1024, ("--batch-size", "32"), 1,
        {
            "access.pattern": "stream", "access.order": "shuffled", "access.unit": "block",
            "access.block_samples": 64, "loader.num_workers": 2, "train.batch_size": 32, "train.steps": None,
        },
    ),
    (
        "memmap_tokens", "torch", 60, (), 1,
        {
            "access.pattern": "samples", "access.order": "shuffled", "loader.num_workers": 2,
            "train.batch_size": 12, "train.epochs": 2, "train.steps": 4,
        },
    ),
    (
        "distributed_sampler", "torch", 128, ("--workers", "0"), 2,
        {
            "access.order": "shuffled", "access.partition": "batches", "loader.num_workers": 0,
            "train.batch_size": 8, "train.steps": None,
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "library", "samples", "flags", "ranks", "values"), READS, ids=[case[0] for case in READS]
)
def test_the_recipe_reads_as_the_program(
    name: str,
    library: str,
    samples: int,
    flags: tuple[str, ...],
    ranks: int,
    values: dict[str, Any],
    fit: Fit,
    tmp_path: Path,
) -> None:
    pytest.importorskip(library)
    fitted = fit(name, samples, *flags, ranks=ranks)
    assert {key: fitted.findings.value(key) for key in values} == values
    assert fitted.ranks == ranks
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(recipe_text(fitted.findings, name))
    compose([f"recipe={recipe}"])


# --- data set -------------------------------------------------------------------------------------------------

DATA: list[tuple[str, str, int, dict[str, Any]]] = [
    (
        "hdf5_crops", "h5py", 64,
        {
            "dataset.format": "hdf5_crops", "dataset.hdf5.crop": [32, 32, 32], "dataset.hdf5.reopen": "array",
            "dataset.hdf5.compression": "gzip", "dataset.num_files": 2, "dataset.samples_per_file": 32,
        },
    ),
    (
        "csv_in_memory", "pandas", 512,
        {
            "dataset.format": "csv", "dataset.csv.header": True, "loader.in_memory": True, "dataset.num_files": 1,
            "dataset.samples_per_file": 512,
        },
    ),
]  # fmt: skip


@pytest.mark.parametrize(("name", "library", "samples", "values"), DATA, ids=[case[0] for case in DATA])
def test_the_recipe_generates_data_like_those_of_the_program(
    name: str, library: str, samples: int, values: dict[str, Any], fit: Fit, tmp_path: Path
) -> None:
    pytest.importorskip(library)
    fitted = fit(name, samples, "--workers", "0")
    assert {key: fitted.findings.value(key) for key in values} == values
    recipe = tmp_path / "recipe.yaml"
    recipe.write_text(recipe_text(fitted.findings, name))
    config = compose([f"recipe={recipe}"]).config
    assert config.dataset.path is None  # it needs no data of the program
