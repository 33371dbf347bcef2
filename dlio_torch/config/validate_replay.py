"""Checks of ``loader.replay``: options with which a cost of loading cannot be left out."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config


def check_replay(config: Config, fail: Fail) -> None:
    """Refuse options that contradict a replay.

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
            "a replay delivers other samples than the access pattern requests, so verification would fail",
            "set verify=false, or loader.replay=none",
        )
    if replay in ("reads", "samples") and config.loader.in_memory:
        fail(
            ["loader.replay", "loader.in_memory"],
            "all samples are in memory already, so there are no reads that a replay could leave out",
            "set loader.replay=batches or none, or loader.in_memory=false",
        )
    if replay == "reads" and config.trace.posix:
        fail(
            ["loader.replay", "trace.posix"],
            "read calls that are answered from memory cannot be recorded",
            "set trace.posix=false, or loader.replay=none",
        )
    if replay == "reads" and config.dataset.direct_io:
        fail(
            ["loader.replay", "dataset.direct_io"],
            "direct reads bypass memory, but this replay answers reads from memory",
            "set dataset.direct_io=false, or loader.replay=none",
        )
