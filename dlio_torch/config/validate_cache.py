"""Checks of ``cache`` and ``dataset.direct_io``: the state of the page cache, and reads that bypass it."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config


def check_cache(config: Config, fail: Fail) -> None:
    """Refuse combinations of ``cache`` and other options that cannot work.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and remedy.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    cache = config.cache
    if cache.every_epoch and config.loader.in_memory:
        fail(
            ["cache.every_epoch", "loader.in_memory"],
            "loader.in_memory reads the data once, before the first epoch, so later epochs need no page cache",
            "set cache.every_epoch=false",
        )
    if config.dataset.direct_io and cache.state == "warm":
        fail(
            ["dataset.direct_io", "cache.state"],
            "direct reads do not use the page cache",
            "set dataset.direct_io=false, or cache.state=as_is",
        )
