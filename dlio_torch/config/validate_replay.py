"""Checks of ``loader.replay``: what cannot be left out of a run."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config


def check_replay(config: Config, fail: Fail) -> None:
    """Refuse replays that would be something else than they say.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and remedy.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    replay = config.loader.replay
    if replay in ("samples", "batches") and config.verify:
        fail(
            ["loader.replay", "verify"],
            "a replay delivers other samples than the access pattern requests",
            "set verify=false, or loader.replay=none",
        )
    if replay in ("reads", "samples") and config.loader.in_memory:
        fail(
            ["loader.replay", "loader.in_memory"],
            "all samples are in memory, so no batch reads anything",
            "set loader.replay=batches or none, or loader.in_memory=false",
        )
    if replay == "reads" and config.trace.posix:
        fail(
            ["loader.replay", "trace.posix"],
            "calls that are answered from memory cannot be recorded",
            "set trace.posix=false, or loader.replay=none",
        )
    if replay == "reads" and config.dataset.direct_io:
        fail(
            ["loader.replay", "dataset.direct_io"],
            "reading past the page cache is the opposite of reading from memory",
            "set dataset.direct_io=false, or loader.replay=none",
        )
