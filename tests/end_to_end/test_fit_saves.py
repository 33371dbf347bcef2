"""Plain programs that save and evaluate are recorded, and the run of the fitted recipe does the same I/O."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

PROGRAMS = Path(__file__).parents[1] / "support" / "plain_programs"
OF_TIME = ("overlap", "exposed I/O")
"""Components that a busy machine changes."""
FLAGS = {
    "evaluation_loop": ("--samples", "32", "--step-ms", "1"),
    "dcp_checkpoints": ("--samples", "48", "--step-ms", "1", "--epochs", "1", "--save-every", "2", "--workers", "0"),
}
"""Flags of the recorded programs, which keep them short."""

Fit = Callable[[str], tuple[dict[str, Any], dict[str, Any]]]


@pytest.fixture(scope="session")
def fit(tmp_path_factory: pytest.TempPathFactory) -> Fit:
    """Makes the data of a program, records it, fits a recipe; returns recipe and score.  A program is recorded once."""
    results: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {}

    def fit(name: str) -> tuple[dict[str, Any], dict[str, Any]]:
        if name not in results:
            results[name] = _fitted(name, tmp_path_factory.mktemp(name))
        return results[name]

    return fit


def _fitted(name: str, folder: Path) -> tuple[dict[str, Any], dict[str, Any]]:
    words = [sys.executable, PROGRAMS / f"{name}.py", "--data", folder / "data", "--output", folder / "saved"]
    words += FLAGS[name]
    _run([*words, "--make"])
    _run([sys.executable, "-m", "dlio_torch", "trace", "--output", folder / "rec", "--", *words])
    _run([sys.executable, "-m", "dlio_torch", "fit", folder / "rec", "--output", folder / "mine"])
    recipe: dict[str, Any] = yaml.safe_load((folder / "mine" / "recipe.yaml").read_text())
    score: dict[str, Any] = json.loads((folder / "mine" / "score.json").read_text())
    return recipe, score


def _run(words: list[Any]) -> None:
    result = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=False)
    assert result.returncode == 0, result.stderr


def _unlike(score: dict[str, Any]) -> dict[str, str]:
    """Components that do not agree, without those of time, and their figures."""
    return {
        component["name"]: component["figures"]
        for component in score["components"]
        if not component["agrees"] and component["name"] not in OF_TIME
    }


def test_evaluation_and_saves_after_each_epoch(fit: Fit) -> None:
    recipe, score = fit("evaluation_loop")
    assert _unlike(score) == {}
    assert recipe["train"]["eval_every_epochs"] == 1
    assert (recipe["dataset"]["num_files"], recipe["dataset"]["num_files_eval"]) == (24, 8)
    saved = recipe["checkpoint"]
    assert {name: saved[name] for name in ("layout", "every_epochs", "keep", "rename")} == {
        "layout": "torch_save",
        "every_epochs": 1,
        "keep": 1,
        "rename": False,
    }
    assert any(tensor["shape"] == [4096, 16] for tensor in saved["tensors"])


def test_distributed_checkpoints_of_any_state(fit: Fit) -> None:
    recipe, score = fit("dcp_checkpoints")
    assert _unlike(score) == {}
    saved = recipe["checkpoint"]
    assert (saved["layout"], saved["every_steps"], saved["sync_files"], saved["keep"]) == ("dcp", 2, True, 0)
