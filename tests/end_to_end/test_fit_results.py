"""The result of fit: anonymised on demand, runnable as a folder, and equal to the recipe of an emulated run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from ranks import clean_environ

from dlio_torch.cli import main
from dlio_torch.config.compose import compose

PROGRAM = '''
"""Trains on songs."""
import sys
from pathlib import Path

import numpy as np
import torch
from torch.utils.data import DataLoader, Dataset


class WhaleSongs(Dataset):
    def __init__(self, folder):
        self.paths = sorted(folder.glob("*.npz"))

    def __len__(self):
        return len(self.paths)

    def __getitem__(self, index):
        with np.load(self.paths[index]) as archive:
            return {"spermaceti": torch.from_numpy(archive["spermaceti"]), "wake": torch.from_numpy(archive["wake"])}


for _ in range(2):
    for batch in DataLoader(WhaleSongs(Path(sys.argv[1])), batch_size=4, shuffle=True):
        batch["spermaceti"].sum()
'''
SECRETS = ("pequod", "melville", "nantucket", "ahab_", "hunt", "whalesongs", "spermaceti", "wake")
RECIPE: dict[str, Any] = {
    "dataset": {
        "format": "npy", "num_files": 12, "samples_per_file": 1,
        "fields": [{"name": "data", "dtype": "float32", "shape": [64, 64]}],
    },
    "access": {"pattern": "samples", "order": "shuffled"},
    "loader": {"num_workers": 1, "prefetch_factor": 3, "multiprocessing_context": "fork"},
    "train": {"batch_size": 2, "epochs": 2},
    "compute": {"step_s": 0.002},
}  # fmt: skip


def traced(output: Path, *command: str) -> None:
    trace = [sys.executable, "-m", "dlio_torch", "trace", "--output", str(output), "--", sys.executable, *command]
    done = subprocess.run(trace, env=clean_environ(), capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr


@pytest.fixture(scope="module")
def songs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Recording of a program on files whose names are unique words."""
    folder = tmp_path_factory.mktemp("songs") / "melville"
    data = folder / "nantucket"
    data.mkdir(parents=True)
    program = folder / "hunt.py"
    program.write_text(PROGRAM, encoding="utf-8")
    rng = np.random.default_rng(1)
    for number in range(16):
        arrays = {"spermaceti": rng.random((32, 32), np.float32), "wake": rng.random(16, np.float32)}
        np.savez(data / f"ahab_{number:03d}.npz", **arrays)
    traced(folder / "pequod", str(program), str(data))
    return folder / "pequod"


def test_an_anonymised_result_has_no_name_of_the_recording_and_its_folder_is_a_recipe(
    songs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    result = tmp_path / "mine"
    assert main(["fit", str(songs), "--output", str(result), "--anonymise", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    host = os.uname().nodename
    files = [path for path in result.rglob("*") if path.is_file()]
    assert {path.name for path in files} == {"recipe.yaml", "evidence.json", "score.json", "dlio_torch.json"}
    for path in files:
        content = path.read_text(encoding="utf-8").lower()
        assert [secret for secret in SECRETS if secret in content] == [], path
        assert str(songs.parent).lower() not in content
        assert len(host) < 4 or host.lower() not in content
    assert printed["score"] == json.loads((result / "score.json").read_text(encoding="utf-8"))
    assert printed["score"]["unexplained"]["bytes_share"] == pytest.approx(0, abs=0.01)
    assert {component["name"] for component in printed["score"]["components"]} >= {"read sizes", "files", "open count"}
    config = compose([f"recipe={result}/"]).config
    assert (config.recipe, config.train.batch_size, config.dataset.num_files) == ("mine", 4, 16)
    assert [len(field.name) for field in config.dataset.fields] == [len("spermaceti"), len("wake")]


def test_a_rerun_gives_the_noise_and_force_replaces(
    songs: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    arguments = ["fit", str(songs), "--output", str(tmp_path / "mine"), "--quiet"]
    assert main([*arguments, "--no-score"]) == 0
    assert main(arguments) == 2
    assert "add --force to replace it" in capsys.readouterr().err
    assert main([*arguments, "--force", "--rerun", str(songs), "--rerun", str(songs)]) == 0
    assert "recordings of the program differ by 0.000" in capsys.readouterr().out
    score = json.loads((tmp_path / "mine/score.json").read_text(encoding="utf-8"))
    assert score["rerun_noise"] == 0
    assert not (tmp_path / "mine/.data").exists()
    assert main(["report", str(tmp_path / "mine")]) == 3
    assert f"its compared run is {tmp_path / 'mine/emulation'}" in capsys.readouterr().err
    assert main(["clean", str(tmp_path / "mine"), "--yes"]) == 0
    assert not (tmp_path / "mine").exists()


def test_the_recipe_of_an_emulated_run_comes_back(tmp_path: Path) -> None:
    recipe = tmp_path / "small.yaml"
    recipe.write_text(yaml.safe_dump(RECIPE), encoding="utf-8")
    run = [f"recipe={recipe}", f"dataset.root={tmp_path / 'data'}", f"output.dir={tmp_path / 'run'}"]
    assert main(["generate", *run[:2], "--quiet"]) == 0
    traced(tmp_path / "rec", "-m", "dlio_torch", "train", *run)
    assert main(["fit", str(tmp_path / "rec"), "--output", str(tmp_path / "mine"), "--no-score", "--quiet"]) == 0
    written = yaml.safe_load((tmp_path / "mine/recipe.yaml").read_text(encoding="utf-8"))
    for group in ("dataset", "access", "loader", "train"):
        shown = {name: written[group].get(name) for name in RECIPE[group]}
        assert shown == RECIPE[group]
    assert written["compute"]["step_s"] >= 0.99 * 0.002  # a sleep is not shorter
