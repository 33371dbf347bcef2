"""The verb node: refused arguments, the plan, and the commands of docs/node.md, from data to system file."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from page_commands import run_page
from ranks import REPO

from dlio_torch import cli

PAGE = (REPO / "docs/node.md").read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        (["--accelerators", "0"], 2, ["--accelerators 0 (command line)", "a number from 1 to"]),
        (["--accelerators", "many"], 2, ["--accelerators many (command line)", "--accelerators 8"]),
        (["--seconds", "0"], 2, ["--seconds 0 (command line)", "from 0.05 s to 60 s"]),
        (["--seconds", "soon"], 2, ["--seconds soon (command line)", "expected a duration"]),
        (["--output", "node.txt"], 2, ["--output node.txt (command line)", "the name of a system must end in .yaml"]),
        (["--output", "there.yaml"], 2, ["--output there.yaml (command line): the file exists", "--force"]),
        (["repeats=3"], 2, ["repeats=3 (command line): the verb node has no such key", "sweep"]),
        (["loader.workers=3"], 2, ["loader.workers=3 (command line)", "did you mean loader.num_workers"]),
        (["recipe=minimal", "accelerator=h100"], 2, ["accelerator=h100 (command line)", "has no variants"]),
        (["output.root=there.yaml"], 3, ["output.root=there.yaml (command line)", "the path is a file"]),
        (["dataset.path=nowhere"], 3, ["nowhere"]),
    ],
)
def test_mistakes_are_refused_in_one_line(
    arguments: list[str],
    code: int,
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "there.yaml").write_text("mine")
    assert cli.main(["node", *arguments]) == code
    text = capsys.readouterr().err
    assert text.count("\n") == 1
    for word in words:
        assert word in text
    assert [path.name for path in tmp_path.iterdir()] == ["there.yaml"]
    assert (tmp_path / "there.yaml").read_text() == "mine"


def test_the_plan_says_what_takes_how_long_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main(["node", "accelerator=h100", "--accelerators", "8", "--dry-run"]) == 0
    text = capsys.readouterr().out
    assert "recipe resnet50, accelerator=h100, scale laptop: " in text
    assert "8 accelerators (--accelerators): 14,286 samples/s" in text  # 8 x 400 / 0.224 s
    assert "time: about " in text
    assert list(tmp_path.iterdir()) == []


@pytest.mark.timeout(300)
def test_the_commands_of_the_page_measure_a_small_node(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for package in ("simpy", "matplotlib", "jinja2"):
        pytest.importorskip(package, reason=f"{package} is not installed")
    done = run_page(PAGE, tmp_path, 280)
    [directory] = (tmp_path / "runs/node").iterdir()
    record = json.loads((directory / "node.json").read_text())
    check_record(record)
    assert record["verdict"]["sentence"] in " ".join(done.stdout.split())
    assert "time: about" in done.stderr
    assert "on node" in done.stdout  # the system of the prediction
    assert (directory / "report.html").read_text(encoding="utf-8").count('role="img"') == 1
    monkeypatch.chdir(tmp_path)
    assert cli.main(["clean", str(directory), "--yes"]) == 0
    assert not directory.exists()
    assert list((tmp_path / "data").iterdir())  # the data stay


def check_record(record: dict[str, Any]) -> None:
    """Asserts on the content of the ``node.json`` of the page's example."""
    assert record["schema_version"] == "1"
    assert record["topology"]
    assert record["data"]["samples"] == 32
    assert record["demand"]["samples_per_s"] == pytest.approx(2 * 4 / 0.05)  # the full step time at scale=tiny
    assert [limit["name"] for limit in record["limits"]] == [
        *("storage_large", "storage_recipe", "page_cache", "decode", "worker_transfer"),
        *("copy_pageable", "copy_pinned", "compute", "allreduce"),
    ]
    for limit in (*record["limits"], *record["limits_together"]):
        assert (limit["samples_per_s"] is None) == bool(limit["why"]), limit
    [combination] = record["combinations"]
    assert (combination["loader.engine"], combination["loader.num_workers"]) == ("dataloader", "1")
    assert len(combination["runs_samples_per_s"]) == record["runs"]["repeats"]
    assert record["verdict"]["sentence"].startswith("2 accelerators of minimal need 160 samples/s")
