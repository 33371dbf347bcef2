"""Checks of ``loader.engine=decoupled``: what it cannot do is refused, never done otherwise in silence."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from dlio_torch.config.extensions import format_facts
from dlio_torch.config.schema import Config, LoaderConfig

Fail = Callable[[list[str], str, str], None]

_OWN = ("prefetch_bytes", "transfer_size")


@dataclass(frozen=True)
class Foreign:
    """An option that says how other engines read.

    Attributes:
        key: its key.
        value: what stands for "not set".
        instead: what this engine does.
        way_out: what to write to be rid of it.
    """

    key: str
    value: Any
    instead: str
    way_out: str


_AHEAD = "it reads ahead by bytes (loader.prefetch_bytes)"
_FOREIGN = (
    Foreign("loader.prefetch_factor", None, _AHEAD, "set loader.prefetch_factor=null"),
    Foreign("loader.prefetch_batches", 1, _AHEAD, "set loader.prefetch_bytes instead"),
    Foreign(
        "loader.in_memory", False, "it reads while the training goes on, in each epoch", "set loader.in_memory=false"
    ),
)


def foreign(config: Config) -> Iterator[Foreign]:
    """Options that are set and have no meaning for the decoupled engine."""
    facts = format_facts(config)
    of_format = [
        Foreign(facts.key(one.option), one.only, one.instead, f"set {facts.key(one.option)}={one.only}")
        for one in facts.unused_by_decoupled(config)
        if one.only is not None
    ]
    for option in (*_FOREIGN, *of_format):
        if attrgetter(option.key)(config) != option.value:
            yield option


def check_decoupled(config: Config, fail: Fail) -> None:
    """Refuse options that the engine, or only another engine, has.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    loader = config.loader
    if loader.engine != "decoupled":
        for name in _OWN:
            if getattr(loader, name) != getattr(LoaderConfig(), name):
                fail(
                    [f"loader.{name}", "loader.engine"],
                    "only the decoupled engine has that",
                    f"set loader.engine=decoupled, or leave loader.{name} out",
                )
        return
    if loader.style == "pipe" and loader.num_workers and config.access.pattern == "samples":
        fail(
            ["loader.style", "loader.num_workers", "loader.engine"],
            "workers share out groups of batches, which a DataPipe does not",
            "set loader.style=map, or loader.num_workers=0 and loader.read_threads",
        )
    for option in foreign(config):
        fail([option.key, "loader.engine"], option.instead, f"{option.way_out}, or loader.engine=dataloader")
    if loader.replay == "samples":
        fail(["loader.replay", "loader.engine"], "kept samples have no places in files", "set loader.replay=reads")
    facts = format_facts(config)
    if config.dataset.direct_io and not facts.ranges_past_cache(config):
        fail(
            ["dataset.direct_io", "dataset.format", "loader.engine"],
            "such files are read whole, or their framing with them, through the page cache",
            "set dataset.direct_io=false, or loader.engine=dataloader",
        )
    facts.check_decoupled(config, fail)
