"""Recipes from recordings without a loader: a program that reads by itself, and a log of another tool."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import clean_environ
from real_data import real_input

from dlio_torch.fit.fit_recording import fit_training
from dlio_torch.fit.fit_result import FitRequest, FitResult, make_result
from dlio_torch.fit.recorded_training import read_training
from dlio_torch.formats.extents.recorded_calls import requests_of_calls

PROGRAM = Path(__file__).parents[1] / "support" / "plain_programs" / "hand_written_loop.py"


def _run(command: list[str]) -> None:
    ended = subprocess.run(command, env=clean_environ(), capture_output=True, text=True, check=False, timeout=300)
    assert not ended.returncode, f"{ended.stdout}{ended.stderr}"


@pytest.fixture(scope="session")
def loop(tmp_path_factory: pytest.TempPathFactory) -> FitResult:
    """The result of a recorded loop over four files, whose batches a thread reads ahead.

    With this seed the first epoch reads the files in ascending order by chance, the second one does not.
    """
    folder = tmp_path_factory.mktemp("hand_written_loop")
    script = [sys.executable, str(PROGRAM), "--data", str(folder / "data")]
    _run([*script, "--make", "--samples", "256"])
    recorder = [sys.executable, "-m", "dlio_torch", "trace", "--output", str(folder / "rec"), "--"]
    _run([*recorder, *script, "--step-ms", "60", "--batch-size", "16", "--seed", "6"])
    return make_result(FitRequest(folder / "rec", folder / "mine"), lambda line: None)


def test_a_loop_without_loader_is_told_from_its_calls(loop: FitResult) -> None:
    values = {
        "dataset.num_files": 4,
        "dataset.samples_per_file": 4,
        "access.pattern": "stream",
        "access.order": "shuffled",
        "loader.num_workers": 0,
        "loader.read_threads": 1,
        "train.batch_size": 1,
        "train.epochs": 2,
    }
    assert {key: loop.fitted.findings.value(key) for key in values} == values


def test_the_recipe_of_a_loop_makes_the_calls_of_the_loop(loop: FitResult) -> None:
    assert loop.folder.requests.is_file()
    assert loop.score is not None
    far = {entry.name: entry.detail for entry in loop.score.comparison.components if entry.distance > 0.05}
    assert not far
    assert {"read sizes", "operations", "files", "read count"} <= {
        entry.name for entry in loop.score.comparison.components
    }


def test_a_log_of_another_tool_becomes_a_recipe() -> None:
    pytest.importorskip("darshan")
    training = read_training(real_input("cosmic_tagger_8ranks.darshan"))
    fitted = fit_training(training)
    values = {"access.order": "sequential", "access.partition": "batches", "train.epochs": 1, "train.batch_size": 1}
    assert {key: fitted.findings.value(key) for key in values} == values
    assert fitted.ranks == 8
    assert fitted.findings.value("compute.step_s") == pytest.approx(3.94, rel=0.01)  # as the shipped recipe has it
    assert fitted.data.replayed is not None
    requests = requests_of_calls(fitted.data.replayed)
    assert requests.num_samples == 8 * 151  # 150 steps, after the first batches
    reads = training.calls[training.calls["file"].isin(fitted.data.files)]
    assert int(requests.sample_bytes.sum()) == int(reads["bytes"].sum())
    assert int(np.count_nonzero(requests.reads)) == len(reads)


def test_samples_of_a_log_that_are_opened_one_by_one_have_batches() -> None:
    fitted = fit_training(read_training(real_input("dlio_unet3d_8ranks_dftracer.tar.gz")))
    values = {
        "dataset.num_files": 160,
        "dataset.samples_per_file": 1,
        "access.order": "sequential",  # each rank reads its 20 files by name in each epoch
        "access.partition": "slices",
        "train.batch_size": 4,
        "train.epochs": 5,
    }
    assert {key: fitted.findings.value(key) for key in values} == values
    assert fitted.ranks == 8
    assert fitted.findings.value("compute.step_s") == pytest.approx(1.42, rel=0.01)
    assert not fitted.findings.gaps
