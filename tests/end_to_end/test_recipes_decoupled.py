"""``loader=decoupled`` is the one key that shows what decoupling would bring: every recipe takes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from figure_checks import check_figures
from ranks import REPO

from dlio_torch import cli
from dlio_torch.config.compose import compose
from dlio_torch.formats.core import registry

RECIPES = sorted(path.stem for path in (REPO / "recipes").glob("*.yaml") if path.stem != "custom")  # which has no data


@pytest.mark.parametrize(("scale", "key"), [("tiny", "loader=decoupled"), ("laptop", "loader.engine=decoupled")])
@pytest.mark.parametrize("recipe", RECIPES)
def test_every_recipe_takes_it(recipe: str, scale: str, key: str) -> None:
    config = compose([f"recipe={recipe}", f"scale={scale}", key]).config
    assert config.loader.engine == "decoupled"
    assert registry.create(config.dataset, config.seed, layout=True).has_layout


# What makes the runs short, and options that a run says that it does not use.
RUNS: dict[str, tuple[list[str], list[str]]] = {
    "cdb": (
        ["dataset.num_files=2"],
        [
            "dataset.hdf5.driver=core (recipes/cdb.yaml:26) is not used by",
            "dataset.hdf5.reopen=file (recipes/cdb.yaml:27) is not used by",
        ],
    ),
    "megatron_gpt": ([], ["dataset.binary.access=mmap (recipes/megatron_gpt.yaml:30) is not used by"]),
    "cosmic_tagger": (["dataset.samples_per_file_eval=2"], []),
    "ffn": (["dataset.samples_per_file=200"], []),
    "l2hmc": ([], []),
    "self_test": ([], []),
}


@pytest.mark.parametrize("recipe", RUNS)
def test_runs_deliver_what_was_generated_and_say_what_is_not_used(
    recipe: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    options, unused = RUNS[recipe]
    monkeypatch.chdir(tmp_path)
    arguments = [f"recipe={recipe}", "loader=decoupled", "scale=tiny", "verify=true", *options]
    assert cli.main([*arguments, "--dry-run"]) == 0
    planned = capsys.readouterr().err
    quick = ["compute=none", "checkpoint=none", "storage.limits=off", "output.dir=run", "output.progress=false"]
    assert cli.main([*arguments, *quick]) == 0
    said = capsys.readouterr().err
    summary: dict[str, Any] = json.loads(Path("run/summary.json").read_text(encoding="utf-8"))
    check_figures(summary)
    assert summary["reads"]["samples"] > 0
    assert len(summary["adjusted"]) == len(unused)
    for line, word in zip(summary["adjusted"], unused, strict=True):
        assert word in line
        assert f"adjusted: {line}" in planned
        assert f"adjusted: {line}" in said
