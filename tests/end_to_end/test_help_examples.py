"""The examples in the help of each verb work, one after the other, in an empty folder."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from ranks import clean_environ

from dlio_torch.commands.command_line import FLAGS
from dlio_torch.commands.verbs import VERBS

DRY = ("sweep", "tune", "headspace", "node")  # they take minutes: their plans are made
ELSEWHERE = ("doctor", "predict", "run", "generate", "compare", "import-dlio", "trace")  # pages of docs/ have the same
PROGRAM = """
import numpy, torch
class Arrays(torch.utils.data.Dataset):
    def __len__(self): return 8
    def __getitem__(self, index): return numpy.load(f"arrays/{index}.npy")
for batch in torch.utils.data.DataLoader(Arrays(), batch_size=2): pass
"""
WORKLOAD = """
model: {name: mine}
framework: pytorch
dataset: {format: npz, num_files_train: 8, record_length_bytes: 150000}
reader: {batch_size: 4, read_threads: 2}
train: {epochs: 1, computation_time: 0.01}
"""


@pytest.mark.ranks
@pytest.mark.parametrize("verb", [verb for verb in VERBS if verb not in ELSEWHERE])
def test_examples_work(verb: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "arrays").mkdir()
    for number in range(8):
        np.save(tmp_path / f"arrays/{number}.npy", np.zeros((16, 16), np.float32))
    (tmp_path / "workload.yaml").write_text(WORKLOAD)
    environ = clean_environ()
    environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), environ["PATH"]])  # of "python"
    for example in VERBS[verb].examples:
        words = shlex.split(example)
        if verb in DRY:
            words.append("--dry-run")
        elif words[0] == "clean" and "--yes" not in words:
            words.append("--yes")  # there is no terminal to ask on
        done = subprocess.run(
            [sys.executable, "-m", "dlio_torch", *words],
            cwd=tmp_path,
            env=environ,
            capture_output=True,
            text=True,
            timeout=200,
            check=False,
        )
        assert done.returncode == 0, f"{example}: {done.stderr}"
        assert "Traceback" not in done.stderr


def test_verbs_that_only_make_a_plan_know_the_flag() -> None:
    assert set(DRY) <= set(FLAGS["--dry-run"].verbs)
