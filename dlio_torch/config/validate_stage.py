"""Checks of ``stage``: options without a folder say nothing, and would be taken for a copy that is not made."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config, StageConfig


def check_stage(config: Config, fail: Fail) -> None:
    """Refuse options of a copy that is not made, and names that are no folder.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and remedy.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    stage, usual = config.stage, StageConfig()
    if stage.dir is None:
        for name in ("per", "every_epoch", "keep", "num_workers"):
            if getattr(stage, name) != getattr(usual, name):
                fail(
                    [f"stage.{name}", "stage.dir"],
                    "without stage.dir nothing is copied",
                    "set stage.dir to a folder on node-local storage",
                )
        return
    if not stage.dir.strip():
        fail(["stage.dir"], "not the name of a folder", "name one, /local/scratch, or set stage.dir=null")
    if stage.every_epoch and config.loader.in_memory:
        fail(
            ["stage.every_epoch", "loader.in_memory"],
            "all data are read before the first epoch",
            "set stage.every_epoch=false",
        )
