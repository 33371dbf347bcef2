"""Computes the accelerator utilisation that the storage alone would allow, ``au_of_storage`` of ``summary.json``.

The run's steps are simulated again with readers that cost nothing (:mod:`dlio_torch.analysis.storage_queue`): the same
batches, requests, compute times, barriers, number of readers and prefetch window; decoding, transfers between processes
and the tool itself take no time.  Requests take the times that were recorded, without the waits for each other, which
the simulation adds again, and pass a pipe that is as fast as the storage was seen to be at its fastest
(:mod:`dlio_torch.analysis.storage_peak`)::

    au_of_storage   sum of the requested compute times / simulated time of the measured steps

Of a long run only the first batches are simulated, from shortly before the first measured one.

Source ``calls``: recorded opens, reads, closes and queries of attributes of data files (``trace.posix=true``).  Source
``spans``: spans of reads, which contain the work of the format's library; the figure is then a lower bound.

Limits: data in the page cache count as storage; a recorded time contains the wait for a core after it, so that a run
with more busy threads than cores makes the storage look slower; and see the limits of the estimate of the pipe.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from dlio_torch.analysis.batch_means import ratio_interval
from dlio_torch.analysis.cache import maps_files
from dlio_torch.analysis.producers import Floats
from dlio_torch.analysis.storage_peak import latencies, seconds_per_byte
from dlio_torch.analysis.storage_queue import Lane, RankLoad, simulate
from dlio_torch.analysis.storage_requests import (
    RankBatches,
    Source,
    StorageRequests,
    rank_batches,
    requests_of_calls,
    requests_of_spans,
)
from dlio_torch.config.schema import Config
from dlio_torch.data.engines import registry as engines
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.figures.intervals import Ints
from dlio_torch.train.steps import Steps

_MOST_REQUESTS = 40_000  # that are simulated: about a second
_LEAST_BATCHES = 100  # of a rank that are simulated; long lanes are shortened for them
_BEFORE = 50  # batches that are simulated before the first measured one


def au_of_storage(
    summary: Mapping[str, Any],
    config: Config,
    recording: Recording | None,
    steps: Mapping[int, Steps],
    data: Iterable[Path | str],
) -> dict[str, Any]:
    """Computes the part ``au_of_storage`` of ``summary.json``.

    Args:
        summary: with ``au`` and ``reads``.
        config: the resolved configuration.
        recording: the events of the run; None where spans are missing.
        steps: its records of steps, by rank.
        data: the data set, or the copies of it that were read.

    Returns:
        ``mean`` and ``min`` over ranks, ``ci95`` of the mean, ``source`` of the times of requests (``calls`` or
        ``spans``), each None where it is not known, and then ``why``.
    """
    why = _why_not(summary, config)
    batches = rank_batches(recording, steps) if why is None and recording is not None else None
    if recording is None or batches is None:
        return _unknown(why or "the production of some batches was not recorded")
    source, requests = _requests(config, recording, data)
    if not (requests.batch >= 0).any():
        return _unknown("no request to the storage was recorded while batches were produced")
    figures = _simulated(config, batches, requests)
    if figures is None:
        return _unknown("some rank has no measured step that all ranks have")
    return {**figures, "source": source, "why": None}


def _unknown(why: str) -> dict[str, Any]:
    return {"mean": None, "min": None, "ci95": None, "source": None, "why": why}


def _why_not(summary: Mapping[str, Any], config: Config) -> str | None:
    """Reason for which the figure cannot be computed, from the configuration and the measured steps."""
    loader = config.loader
    if summary["au"]["why"] is not None:
        return str(summary["au"]["why"])
    if loader.replay != "none":
        return f"loader.replay={loader.replay} leaves out the storage"
    if loader.in_memory:
        return "the epochs read no files (loader.in_memory=true)"
    if summary["dataset"]["path"] is None or not summary["cache"]:
        return "the epochs read no files"
    if maps_files(config):
        return "samples are read by page faults of mapped files, which are not recorded"
    if not config.trace.spans:
        return "the production of batches was not recorded (trace.spans=false)"
    return None


def _requests(config: Config, recording: Recording, data: Iterable[Path | str]) -> tuple[Source, StorageRequests]:
    if config.trace.posix:
        calls = requests_of_calls(recording, data)
        if (calls.batch >= 0).any():
            return "calls", calls
    return "spans", requests_of_spans(recording)


def _simulated(config: Config, ranks: Sequence[RankBatches], requests: StorageRequests) -> dict[str, Any] | None:
    per_byte = seconds_per_byte(requests)
    latency, transfer = latencies(requests, per_byte), requests.bytes.astype(np.float64) * per_byte
    each = max(1.0, np.count_nonzero(requests.batch >= 0) / sum(rank.rows.size for rank in ranks))
    ranks = _part(ranks, int(_MOST_REQUESTS / each / len(ranks)))
    joined = math.ceil(each * _LEAST_BATCHES * len(ranks) / _MOST_REQUESTS)
    lanes = _lanes(requests, latency, transfer, np.concatenate([rank.rows for rank in ranks]), joined)
    loads = [_load(config, rank, lanes) for rank in ranks]
    request_times = simulate(loads, barrier=config.train.allreduce_bytes > 0)
    spent, computed = [], []
    for rank, times in zip(ranks, request_times, strict=True):
        measured = rank.measured[: len(times) - 1]
        spent.append(np.diff(times)[measured])
        computed.append(rank.compute_s[: measured.size][measured])
    if not all(took.sum() > 0 for took in spent):
        return None
    au = [float(min(1.0, done.sum() / took.sum())) for done, took in zip(computed, spent, strict=True)]
    mean = float(np.mean(au))
    interval = ratio_interval(computed, spent, mean)
    return {"mean": mean, "min": min(au), "ci95": interval and [min(1.0, bound) for bound in interval]}


def _part(ranks: Sequence[RankBatches], most: int) -> list[RankBatches]:
    """The batches that are simulated: some before the first measured one, and about ``most`` of each rank."""
    first = max(0, min(int(rank.measured.argmax()) for rank in ranks) - _BEFORE)
    return [_cut(rank, slice(first, first + _BEFORE + max(_LEAST_BATCHES, most))) for rank in ranks]


def _cut(rank: RankBatches, part: slice) -> RankBatches:
    names = ("rows", "epoch", "measured", "compute_s", "bytes")
    columns: dict[str, Any] = {name: getattr(rank, name)[part] for name in names}
    return replace(rank, **columns)


def _lanes(
    requests: StorageRequests, latency: Floats, transfer: Floats, batches: Ints, joined: int
) -> dict[int, list[Lane]]:
    """Lanes of each batch, one for each thread; ``joined`` requests in a row become one."""
    rows = np.flatnonzero(np.isin(requests.batch, batches))
    rows = rows[np.lexsort((requests.start[rows], requests.lane[rows], requests.batch[rows]))]
    batch, lane = requests.batch[rows], requests.lane[rows]
    begins = np.flatnonzero((np.diff(batch) != 0) | (np.diff(lane) != 0)) + 1
    lanes: dict[int, list[Lane]] = {}
    for some in np.split(rows, begins):
        cuts = np.arange(0, some.size, joined)
        sums = (np.add.reduceat(values[some], cuts).tolist() for values in (latency, transfer))
        lanes.setdefault(int(requests.batch[some[0]]), []).append(list(zip(*sums, strict=True)))
    return lanes


def _load(config: Config, rank: RankBatches, lanes: Mapping[int, list[Lane]]) -> RankLoad:
    readers, depth = _readers(config, rank)
    return RankLoad(
        batches=[lanes.get(row, []) for row in rank.rows.tolist()],
        compute=rank.compute_s.tolist(),
        epoch=rank.epoch.tolist(),
        readers=readers,
        depth=depth,
    )


def _readers(config: Config, rank: RankBatches) -> tuple[int, int]:
    """Number of readers and prefetch window of a rank, in batches; none where the trainer's thread reads."""
    demand = engines.facts(config.loader.engine).demand(config.loader)
    if rank.by_trainer:
        return 0, 0
    return max(1, demand.readers), max(1, demand.window(float(rank.bytes.mean())))
