"""Limit of the loader: the accelerator utilisation of the same steps if reads cost nothing (``loader.replay=reads``).

The loader still opens files, decodes, collates and transfers batches, and the trainer does its work; only the storage
is gone.  A run that reaches no more than this limit would gain nothing from faster storage.

::

    mean, min, ci95    as of ``au``, in the run that measured the limit
    read_s_per_batch   time in read spans / batches of that run: the share of reading that is not the storage's
    why, hint          reason why the limit is not known, and the option that has it measured; null where there is none
"""

from __future__ import annotations

import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pandas as pd

from dlio_torch.analysis.cache import maps_files
from dlio_torch.config.schema import (
    CacheConfig,
    CheckpointConfig,
    Config,
    OutputConfig,
    StageConfig,
    StorageConfig,
    TraceConfig,
    TrainConfig,
)

UNKNOWN: Mapping[str, Any] = dict.fromkeys(
    ("mean", "min", "ci95", "read_s_per_batch", "how", "measured_at", "why", "hint")
)
"""Part ``au_limit_of_loader`` of ``summary.json`` before anything is known."""


@dataclass(frozen=True)
class LoaderLimit:
    """Measured limit of a loader.

    Attributes:
        mean: utilisation (0 to 1), mean of ranks.
        min: smallest utilisation of a rank.
        ci95: bounds of the 95 % confidence interval of the mean; None: too few steps.
        steps: measured steps of the run.
        read_s_per_batch: seconds in read spans per batch; None: not recorded.
        host: name of the machine.
        measured_at: end of the run, ISO 8601 in UTC.
    """

    mean: float
    min: float
    ci95: list[float] | None
    steps: int
    read_s_per_batch: float | None
    host: str
    measured_at: str

    @classmethod
    def of_run(cls, summary: Mapping[str, Any], events: pd.DataFrame) -> LoaderLimit:
        """Returns the limit that a run with ``loader.replay=reads`` has just measured on this machine.

        Args:
            summary: of that run, with a utilisation.
            events: of that run.
        """
        au, steps, read_s = summary["au"], summary["train"]["steps"], _read_s_per_batch(events)
        now = datetime.now(UTC).isoformat(timespec="seconds")
        return cls(au["mean"], au["min"], au["ci95"], steps, read_s, socket.gethostname(), now)

    def __str__(self) -> str:
        return f"{self.steps} steps with loader.replay=reads"

    def figures(self) -> dict[str, Any]:
        """Returns the part ``au_limit_of_loader`` of ``summary.json``."""
        known = asdict(self)
        return {**UNKNOWN, **{name: known[name] for name in UNKNOWN if name in known}, "how": str(self)}


def is_measured_by(config: Config, summary: Mapping[str, Any]) -> bool:
    """Whether a finished run has measured the limit: reads were replayed, and nothing but training took time."""
    trace, cache = config.trace, summary["cache"]
    return (
        config.loader.replay == "reads"
        and summary["au"]["mean"] is not None
        and summary["resumed"] is None
        and cache is not None
        and cache["machines"] == 1
        and not summary["eval"]["steps"]
        and config.checkpoint.layout == "none"
        and not (config.verify or trace.profiler or trace.horovod)
    )


def why_no_limit(config: Config, summary: Mapping[str, Any]) -> str | None:
    """Reason why a run has no limit of its loader, measured or not; None if it has one."""
    loader, cache = config.loader, summary["cache"]
    if loader.limit == "off":
        return "loader.limit=off"
    if loader.replay != "none":
        return f"loader.replay={loader.replay} leaves out costs of loading in this run"
    if summary["au"]["mean"] is None:
        return str(summary["au"]["why"])
    if cache is None:
        return "no files are read"
    if loader.in_memory:
        return "the data are read into memory before training (loader.in_memory=true)"
    if config.access.io != "posix":
        return "reads through MPI-IO cannot be answered from memory"
    if maps_files(config):
        return "the format maps its files into memory, so there are no read calls to answer from memory"
    if cache["machines"] > 1:
        return f"the ranks run on {cache['machines']} machines, but the limit is measured on one machine"
    return None


def measuring_config(config: Config) -> Config:
    """Configuration of the run that measures the limit: the same training, and nothing else that takes time."""
    return replace(
        config,
        verify=False,
        expect=[],
        dataset=replace(config.dataset, direct_io=False),
        loader=replace(config.loader, replay="reads", limit="off"),
        stage=StageConfig(),
        cache=CacheConfig(state="as_is"),
        storage=StorageConfig(limits="off"),
        train=replace(config.train, eval_every_epochs=0, eval_every_steps=0, resume=None, min_au=0.0),
        checkpoint=CheckpointConfig(),
        trace=TraceConfig(spans=config.trace.spans),
        output=OutputConfig(progress=False, patience_s=0.0),
    )


def bounded(train: TrainConfig, steps: int, most: int) -> TrainConfig:
    """Training with fewer epochs, or with one epoch of fewer steps, if it measures more steps than ``most``.

    Args:
        train: the training.
        steps: all its steps on a rank, those of warm-up included.
        most: largest number of measured steps.
    """
    allowed, per_epoch = train.warmup_steps + most, -(-steps // train.epochs)
    if per_epoch > allowed:
        return replace(train, epochs=1, steps=allowed)
    return replace(train, epochs=min(train.epochs, allowed // per_epoch))


def _read_s_per_batch(events: pd.DataFrame) -> float | None:
    spans = events[events["layer"] == "app"]
    reads, batches = spans[spans["op"] == "read"], int((spans["op"] == "batch").sum())
    if not batches or not len(reads):
        return None
    return float((reads["end_ns"] - reads["start_ns"]).sum()) * 1e-9 / batches
