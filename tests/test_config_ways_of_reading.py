"""Workers and reader threads exclude each other: what the command line asks for wins over the recipe."""

from __future__ import annotations

from pathlib import Path

import pytest

from dlio_torch.config.compose import compose
from dlio_torch.errors import ConfigError


def test_workers_replace_the_recipes_reader_thread(tmp_path: Path) -> None:
    found = compose(["recipe=cosmic_tagger", "loader.num_workers=2", "loader.prefetch_factor=4"], cwd=tmp_path)
    assert (found.config.loader.num_workers, found.config.loader.read_threads) == (2, 0)
    assert found.adjusted == ["loader.read_threads 1 -> 0, since loader.num_workers is set"]
    assert "loader.num_workers" in found.sources["loader.read_threads"]


def test_reader_threads_replace_the_recipes_workers(tmp_path: Path) -> None:
    found = compose(["recipe=minimal", "loader=workers", "loader.read_threads=1"], cwd=tmp_path)
    loader = found.config.loader
    assert (loader.num_workers, loader.read_threads, loader.prefetch_factor) == (0, 1, None)
    assert not loader.persistent_workers
    assert found.adjusted


def test_both_asked_for_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="choose one"):
        compose(["recipe=minimal", "loader.num_workers=2", "loader.read_threads=1"], cwd=tmp_path)


def test_what_agrees_is_left_alone(tmp_path: Path) -> None:
    assert compose(["recipe=cosmic_tagger"], cwd=tmp_path).adjusted == []
    assert compose(["recipe=minimal", "loader.num_workers=2"], cwd=tmp_path).adjusted == []
