"""Checks of ``loader.engine``: options that the engine does not support are refused, never ignored silently."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.extensions import all_engines, engine_facts
from dlio_torch.config.schema import Config, LoaderConfig


def check_engine(config: Config, fail: Fail) -> None:
    """Refuse options that the engine does not support, or that only another engine has.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and remedy.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    chosen = engine_facts(config)
    for other in all_engines():
        for name in other.own_options:
            if other.name != chosen.name and getattr(config.loader, name) != getattr(LoaderConfig(), name):
                fail(
                    [f"loader.{name}", "loader.engine"],
                    f"only loader.engine={other.name} has this option",
                    f"set loader.engine={other.name}, or leave loader.{name} out",
                )
    if config.loader.affinity != "none" and not chosen.demand(config.loader).readers:
        fail(
            ["loader.affinity", "loader.num_workers", "loader.read_threads"],
            "this option places worker processes and reader threads, and this loader has none",
            "set loader.affinity=none, or loader.num_workers=1 or loader.read_threads=1",
        )
    chosen.check(config, fail)
