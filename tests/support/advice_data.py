"""Made-up evidence for tests of advice: a run of twenty steps that waits a little, and what changes it."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np

from dlio_torch.analysis.advice.batch_times import RankTimes
from dlio_torch.analysis.advice.evidence import Evidence, changed
from dlio_torch.analysis.advice.loader_model import LoaderModel
from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.analysis.advice.transfer_times import TransferTime
from dlio_torch.config.schema import Config, DatasetConfig, FieldConfig

SAMPLE = 4 * 64 * 64


def rank_times(
    production: float | list[float] = 0.002,
    rest: float | list[float] = 0.01,
    *,
    steps: int = 20,
    fetch: float | None = None,
    asleep: float = 0.0,
    delay: float = 0.0,
    read: float = 0.0,
    preprocess: float = 0.0,
    idle: float | None = 0.1,
    by_trainer: bool = False,
    latency: float = 0.0001,
    serial: float | None = None,
    reduce: float = 0.0,
    turns: bool = False,
) -> RankTimes:
    """Steps of one epoch; single numbers stand for all of them, those of ``production`` for their share of it."""

    def each(value: float | list[float]) -> Any:
        return np.resize(np.asarray(value, dtype=float), steps)

    makes, rests = each(production), each(rest)
    if serial is None:  # how it divides did not show
        transfer = TransferTime(0.0, latency), TransferTime(latency, 0.0)
    else:
        transfer = (TransferTime(serial, max(0.0, latency - serial)),) * 2
    return RankTimes(
        epoch=np.ones(steps, np.int64),
        measured=np.ones(steps, bool),
        steps=np.ones(steps, np.int64),
        fetch=np.maximum(makes + latency - rests, latency) if fetch is None else each(fetch),
        before=rests,
        reduce=each(reduce),
        after=np.zeros(steps),
        production=makes,
        asleep=makes * asleep,
        delay=makes * delay,
        read=makes * read,
        preprocess=makes * preprocess,
        transfer=None if by_trainer else transfer,
        begun=np.zeros(steps),
        idle=None if by_trainer else idle,
        producers=0 if by_trainer else 1,
        by_trainer=by_trainer,
        turns=turns,
    )


def summary(**figures: Any) -> dict[str, Any]:
    """The figures that rules look at; keys with ``__`` for dots change them."""
    found: dict[str, Any] = {
        "world_size": 1,
        "train": {"steps": 20, "samples": 80, "bytes": 80 * SAMPLE, "elapsed_s": 1.0, "why": None},
        "eval": {"steps": 0, "elapsed_s": None},
        "au": {"mean": 0.95},
        "compute_error": {"relative_total": 0.001, "requested_s": {"mean": 0.01}},
        "shares": {
            "fetch": 0.02, "compute": 0.95, "allreduce": None, "checkpoint": None, "other": 0.01, "between_epochs": 0.0,
        },
        "checkpoints": {"measured": 0, "duration_s": None},
        "saved": {"bytes": 0},
        "reads": {"bytes_per_sample": float(SAMPLE), "calls_per_sample": 2.0, "mean_bytes": SAMPLE / 2},
        "io": {"rchar_bytes": 80 * SAMPLE, "device_read_share": 1.0, "cached_share_before": 0.0},
        "stalls": {"wait_s": 0.02, "ahead_s": 0.0, "parts": {}, "shares": {}},
        "ranks": [{"rank": 0, "steps": 20, "allreduce_s": None}],
        "storage": {"share": None, "share_of_most": None},
        "cache": {"warnings": []},
    }  # fmt: skip
    found = copy.deepcopy(found)
    for path, value in figures.items():
        node, names = found, path.split("__")
        for name in names[:-1]:
            node = node[name]
        node[names[-1]] = value
    return found


CONFIG = Config(
    dataset=DatasetConfig(
        format="hdf5", num_files=1, samples_per_file=80, fields=[FieldConfig("data", "float32", [64, 64])]
    )
)
MACHINE = {"cpu": {"cores_usable": 4}, "memory": {"available_bytes": 1 << 30, "limit_bytes": None}}


def evidence(
    settings: dict[str, Any] | None = None,
    times: RankTimes | list[RankTimes] | None = None,
    *,
    setup: LoaderSetup | None = None,
    cores: float | None = 4,
    one_lock: bool = False,
    environment: dict[str, Any] | None = None,
    ranks_here: int = 1,
    **figures: Any,
) -> Evidence:
    """A run that nothing is wrong with, but for what is given."""
    config = changed(CONFIG, settings or {})
    model = None
    if times is not None:
        loader = config.loader
        if setup is None:
            setup = LoaderSetup("trainer")
            if loader.num_workers:
                depth = loader.num_workers * (loader.prefetch_factor or 2)
                setup = LoaderSetup("workers", loader.num_workers, depth)
            elif loader.read_threads:
                setup = LoaderSetup("threads", loader.read_threads, loader.prefetch_batches)
        model = LoaderModel(times if isinstance(times, list) else [times], setup, cores, one_lock)
        measured = model.measured
        figures.setdefault("shares__fetch", measured.fetch_s / measured.step_s)
    return Evidence(summary(**figures), config, MACHINE if environment is None else environment, model, ranks_here)


def without(found: Evidence, path: str) -> Evidence:
    """The same evidence, this figure not measured."""
    changed_summary: dict[str, Any] = copy.deepcopy(dict(found.summary))
    node, names = changed_summary, path.split(".")
    for name in names[:-1]:
        node = node[name]
    node[names[-1]] = None
    return replace(found, summary=changed_summary)
