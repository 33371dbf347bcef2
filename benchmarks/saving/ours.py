"""Saves of this tool on one rank, through its checkpointer."""

from __future__ import annotations

import shutil
from dataclasses import replace
from itertools import count
from pathlib import Path

from benchmarks.harness.rounds import Unavailable
from benchmarks.saving.own_time import OwnTime
from benchmarks.saving.save import Save, measured
from dlio_torch.checkpoint.base import SaverSetup
from dlio_torch.checkpoint.checkpointer import open_checkpointer
from dlio_torch.checkpoint.registry import BUILTIN
from dlio_torch.config.compose import compose
from dlio_torch.dist.base import SingleCommunicator
from dlio_torch.errors import DlioError
from dlio_torch.iotrace.recorder.spans import NULL


class Ours:
    """Saves the checkpoints of a layout.

    Args:
        layout: its name.
        words: options of a command line.
        folder: for its files.

    Raises:
        Unavailable: the layout or one of the options is not there, or a library is missing.
    """

    def __init__(self, layout: str, words: list[str], folder: Path) -> None:
        if layout not in BUILTIN:
            raise Unavailable(f"the layout {layout} is not one of {', '.join(BUILTIN)}")
        settings = ["recipe=minimal", "scale=paper", "checkpoint=none", f"checkpoint.layout={layout}", *words]
        saving = ["checkpoint.every_steps=1", "checkpoint.keep=0", "checkpoint.fsync=true"]
        self._folder, self._steps = folder / "checkpoints", count(1)
        try:
            config = compose([*settings, *saving]).config
            self._checkpointer = open_checkpointer(SaverSetup(config, self._folder, SingleCommunicator(), NULL))
        except DlioError as error:
            raise Unavailable(error.message) from error

    def save(self) -> Save:
        """Saves one checkpoint, waits until it is durable, and deletes it."""
        step = next(self._steps)
        save = measured(self._folder, lambda: self._checkpointer.save(step), lambda: self._checkpointer.end(step))
        shutil.rmtree(self._folder)
        return replace(save, plan_s=self._checkpointer.times[-1].plan_s)

    def own_s(self) -> float:
        """Seconds of a save, until the caller may go on, in which this tool's own code runs in this thread, at most."""
        step, own = next(self._steps), OwnTime()
        own.measure(lambda: self._checkpointer.save(step))
        self._checkpointer.end(step)
        shutil.rmtree(self._folder)
        return own.own_s

    def close(self) -> None:
        """Closes what is open between checkpoints."""
        self._checkpointer.close()
