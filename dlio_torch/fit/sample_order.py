"""Which samples a recorded training reads, and in which order."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pandas as pd

from dlio_torch.fit.calls_without_loader import order_of_reads
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Finding, Findings, findings
from dlio_torch.fit.index_order import IndexOrder, RankShares, order_of, rank_shares, whole_indices
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.fit.stream_order import fit_stream, is_stream
from dlio_torch.iotrace.figures.call_selection import within
from dlio_torch.units import counted

_DISTRIBUTED = "DistributedSampler"
_SEQUENTIAL = "SequentialSampler"
_REPEATED = 0.02
"""Share of repeated samples of an epoch from which on they are a gap."""


def fit_order(training: RecordedTraining, data: DataFit) -> Findings:
    """Options of the group ``access``."""
    recorded = training.training
    if recorded is None:
        return findings(order_of_reads(training, data))
    if is_stream(recorded):
        return fit_stream(training, recorded, data)
    return _samples(training, recorded, data)


def _samples(training: RecordedTraining, recorded: RecordedLoader, data: DataFit) -> Findings:
    """Order of a map-style data set."""
    indices = whole_indices(recorded.indices)
    order, shares = order_of(indices), rank_shares(indices, _files_of_ranks(training, data))
    values = [Finding("access.pattern", "samples", "the data set is read by index")]
    values += _order(recorded, order, shares, training.world_size)
    values += _partition(recorded, shares, training.world_size)
    values += _unit(training, recorded, order)
    return findings(values, _gaps(recorded, order, shares, training.world_size))


def sampler_name(recorded: RecordedLoader) -> str:
    """Class of the sampler without its module; of the batch sampler, if the program has one of its own."""
    batches = str(recorded.loader.batch_sampler or "")
    if recorded.loader.batch_size is None and batches:
        return batches.rpartition(".")[2]
    return str(recorded.loader.sampler.get("class", "")).rpartition(".")[2]


def _files_of_ranks(training: RecordedTraining, data: DataFit) -> Sequence[frozenset[str]]:
    """Files of the data set that each rank read."""
    calls = training.calls[within(training.calls, data.files)]
    return [frozenset(map(str, calls["file"][calls["rank"] == rank].unique())) for rank in range(training.world_size)]


def _order(
    recorded: RecordedLoader, order: IndexOrder | None, shares: RankShares | None, ranks: int
) -> Iterator[Finding]:
    name = sampler_name(recorded)
    if order is None:
        value = "sequential" if name == _SEQUENTIAL else "shuffled"
        yield Finding("access.order", value, f"the sampler is {name}, and its indices are not known", "assumed")
        return
    if _is_dealt_in_turn(order, shares, ranks):
        yield Finding("access.order", "sequential", f"{name} deals consecutive samples to {ranks} ranks in turn")
        return
    yield Finding("access.order", order.order, f"{name}: {order.text}")
    if order.order == "strided":
        yield Finding("access.stride", order.stride, f"{name}: {order.text}")


def _is_dealt_in_turn(order: IndexOrder, shares: RankShares | None, ranks: int) -> bool:
    """Whether the samples are read in sequence, each by the next rank."""
    return order.order == "strided" and order.stride == ranks and shares is not None and shares.partition == "batches"


def _partition(recorded: RecordedLoader, shares: RankShares | None, ranks: int) -> Iterator[Finding]:
    name = sampler_name(recorded)
    if ranks < 2:
        return
    if shares is None:
        value = "batches" if name == _DISTRIBUTED else "none"
        yield Finding("access.partition", value, f"each rank has a {name}; its indices are not known", "assumed")
        return
    evidence = f"{shares.common:.0%} of the samples of a rank are read by another one in the same epoch"
    yield Finding("access.partition", shares.partition, evidence)


def _unit(training: RecordedTraining, recorded: RecordedLoader, order: IndexOrder | None) -> Iterator[Finding]:
    """``block``, if the program asks its data set for the consecutive samples of a batch at once."""
    if order is None or order.order not in ("sequential", "random_blocks"):
        return
    spans = training.recording.spans
    mine = spans[spans["file"] == f"dataset {recorded.loader.dataset}"]
    items, batches = int((mine["op"] == "sample").sum()), int((mine["op"] == "batch").sum())
    if batches and items <= batches < order.count:
        evidence = f"{counted(items, 'request')} to the data set for {counted(batches, 'batch', 'batches')}"
        yield Finding("access.unit", "block", evidence)


def _gaps(recorded: RecordedLoader, order: IndexOrder | None, shares: RankShares | None, ranks: int) -> Iterator[str]:
    name = sampler_name(recorded)
    if order is None:
        return
    if order.repeated > _REPEATED:
        yield f"{name} gives {order.repeated:.0%} of the indices of an epoch again; the recipe reads each sample once"
    if order.is_fixed and order.order in ("shuffled", "random_blocks"):
        yield f"{name} gives the same random order in every epoch; the recipe has another one in each epoch"
    if shares is not None and shares.partition == "none" and not shares.same_order and order.order == "shuffled":
        yield "each rank reads all samples in an order of its own; the recipe's ranks have the same order"
    if _is_dealt_in_turn(order, shares, ranks):
        yield f"{name} deals single samples to ranks in turn; the recipe deals a batch of consecutive samples to each"
    if order.order != "sequential" and _is_subset(recorded):
        yield f"{name} gives the same part of the samples in every epoch; the recipe draws as many from all samples"


def _is_subset(recorded: RecordedLoader) -> bool:
    """Whether all epochs together leave out samples that a sampler of all would have given."""
    length = recorded.dataset.length if recorded.dataset is not None else None
    indices = whole_indices(recorded.indices)
    if not length or indices["epoch"].nunique() < 2 or sampler_name(recorded) == _DISTRIBUTED:
        return False
    by_epoch: pd.Series[int] = indices.groupby("epoch")["index"].nunique()
    return bool(by_epoch.max() < length and indices["index"].nunique() == by_epoch.max())
