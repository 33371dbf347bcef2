"""Checks of ``stage``: staging options without a folder for the copy are refused."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import Config, StageConfig


def check_stage(config: Config, fail: Fail) -> None:
    """Refuse staging options without ``stage.dir``, and an empty ``stage.dir``.

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
                    "without stage.dir no data are copied, so this option has no effect",
                    "set stage.dir to a folder on node-local storage",
                )
        return
    if not stage.dir.strip():
        fail(
            ["stage.dir"],
            "the name of the folder is empty",
            "name a folder, for example stage.dir=/local/scratch, or set stage.dir=null",
        )
    if stage.every_epoch and config.loader.in_memory:
        fail(
            ["stage.every_epoch", "loader.in_memory"],
            "loader.in_memory reads all data before the first epoch, so later epochs read no copies",
            "set stage.every_epoch=false",
        )
