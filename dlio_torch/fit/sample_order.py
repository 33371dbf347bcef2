"""Which samples a recorded training reads, and in which order."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from dlio_torch.fit.calls_without_loader import order_of_reads
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining

_DISTRIBUTED = "DistributedSampler"


def fit_order(training: RecordedTraining, data: DataFit) -> Findings:
    """Options of the group ``access``."""
    recorded = training.training
    if recorded is None:
        return findings(order_of_reads(training, data))
    if recorded.dataset is not None and recorded.dataset.style != "map":
        return findings(_stream(recorded))
    return findings(_samples(recorded, training.world_size))


def _samples(recorded: RecordedLoader, ranks: int) -> Iterator[Finding]:
    """Order of a map-style data set."""
    sampler = recorded.loader.sampler
    name = str(sampler.get("class", "")).rpartition(".")[2]
    yield Finding("access.pattern", "samples", "the data set is read by index")
    order, evidence = _order(recorded, name)
    yield Finding("access.order", order, evidence)
    if ranks > 1:
        if name == _DISTRIBUTED:
            yield Finding("access.partition", "batches", f"{name} deals the samples to {ranks} ranks")
        else:
            yield Finding("access.partition", "none", f"each rank has a {name} over all samples")


def _order(recorded: RecordedLoader, sampler: str) -> tuple[str, str]:
    """Value of ``access.order`` and its evidence: what the sampler gave."""
    first = recorded.indices
    if first.empty:
        return ("shuffled", f"the sampler is {sampler}")
    rank = first["rank"].min()
    indices = first[(first["rank"] == rank) & (first["epoch"] == 0)]["index"].to_numpy()
    steps = np.diff(indices.astype(np.int64))
    if len(steps) == 0 or (steps[0] > 0 and (steps == steps[0]).all()):
        return "sequential", f"{sampler} gave {len(indices)} ascending indices"
    return "shuffled", f"{sampler} gave {len(indices)} indices in random order"


def _stream(recorded: RecordedLoader) -> Iterator[Finding]:
    """Order of an iterable data set."""
    assert recorded.dataset is not None
    yield Finding("access.pattern", "stream", f"{recorded.dataset.class_name} is an iterable data set")
