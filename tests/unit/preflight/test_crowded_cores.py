"""Far more workers than cores are a warning, with the ranks of the node counted."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlio_torch import cli
from dlio_torch.config.schema import Config, LoaderConfig
from dlio_torch.preflight import crowded_cores as module
from dlio_torch.preflight.crowded_cores import crowded_cores


def line(workers: int, ranks: int = 1, threads: int = 0) -> str | None:
    loader = LoaderConfig(num_workers=workers, read_threads=threads)
    return crowded_cores(Config(loader=loader), ranks, {"loader.num_workers": "command line"})


def test_cores_of_this_process_and_ranks_of_the_node_count(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    assert line(8) is None
    assert line(4, ranks=2) is None
    warning = line(500)
    assert warning is not None
    assert warning.startswith("warning: loader.num_workers=500 (command line): 500 workers")
    assert "the 2 cores that this process may use" in warning
    many = line(4, ranks=4)
    assert many is not None
    assert "16 workers and reader threads of 4 ranks share the 2 cores" in many
    assert "about 1 per rank" in many
    monkeypatch.setattr(module, "usable_cores", lambda: 0.5)
    assert "0.5 cores" in str(line(3))


def test_the_plan_warns(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 2)
    root = f"dataset.root={tmp_path}"
    assert cli.main(["recipe=minimal", "scale=tiny", root, "loader.num_workers=500", "--dry-run"]) == 0
    assert "warning: loader.num_workers=500" in capsys.readouterr().out


def test_a_run_warns_once_even_if_it_is_quiet(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.setattr(module, "usable_cores", lambda: 0.1)
    monkeypatch.chdir(tmp_path)
    words = ["recipe=minimal", "scale=tiny", "loader.num_workers=1", "storage.limits=off", "cache=as_is", "--quiet"]
    assert cli.main(words) == 0
    lines = capsys.readouterr().err.splitlines()
    assert len([line for line in lines if line.startswith("warning: loader.num_workers=1 (command line): 1 ")]) == 1
