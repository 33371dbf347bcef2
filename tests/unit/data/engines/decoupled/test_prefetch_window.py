"""The prefetch window fits into the processor's cache, unless it is set."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import LoaderConfig
from dlio_torch.data.engines.decoupled import prefetch_window
from dlio_torch.data.engines.decoupled.prefetch_window import window_of_machine, with_window
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
    assert with_window(loader).prefetch_bytes == window
    assert facts("decoupled").demand(loader).bytes_ahead == window


def test_a_window_that_is_set_is_kept() -> None:
    config = LoaderConfig(engine="decoupled", prefetch_bytes=1)
    assert with_window(config) is config
