"""The prefetch window fits into the processor's cache, unless it is set."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.decoupled import prefetch_window
from dlio_torch.data.engines.decoupled.prefetch_window import window_of, window_of_machine
from dlio_torch.data.engines.registry import facts

MIB = 1 << 20


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    window_of_machine.cache_clear()
    yield
    window_of_machine.cache_clear()


@pytest.mark.parametrize(("cache", "window"), [(64 * MIB, 48 * MIB), (4 * MIB, 16 * MIB), (None, 24 * MIB)])
def test_the_window_follows_the_cache(cache: int | None, window: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefetch_window, "last_level_cache", lambda: cache)
    loader = compose(["recipe=minimal", "loader=decoupled"]).config.loader
    assert window_of(loader, MIB) == window
    assert window_of(loader, 100 * MIB) == window  # of larger batches one is read ahead
    assert window_of(replace(loader, num_workers=4), MIB) == window // 4
    assert facts("decoupled").demand(loader).bytes_ahead == window


def test_each_worker_has_room_for_two_batches() -> None:
    loader = LoaderConfig(engine="decoupled", num_workers=4)
    assert window_of(loader, 100.5 * MIB) == 2 * 100.5 * MIB
    demand = facts("decoupled").demand(loader)
    assert demand.window(100 * MIB) == 8
    assert demand.held_bytes(100 * MIB) == 9 * 100 * MIB


def test_a_window_that_is_set_is_kept() -> None:
    config = LoaderConfig(engine="decoupled", prefetch_bytes=8)
    assert window_of(config, 100) == 8
    assert window_of(replace(config, num_workers=4), 100) == 2
    assert window_of(replace(config, num_workers=16), 100) == 1
    assert facts("decoupled").demand(replace(config, num_workers=4)).window(100) == 4
