"""Number of samples, steps and epochs of a recorded training: batch size, iterations, steps of an iteration."""

from __future__ import annotations

from collections.abc import Iterator

import pandas as pd

from dlio_torch.fit.calls_without_loader import amount_of_reads
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Confidence, Finding, Findings, findings
from dlio_torch.fit.index_order import whole_indices
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.fit.stream_order import is_stream, samples_of_an_item
from dlio_torch.units import counted


def fit_amounts(training: RecordedTraining, data: DataFit) -> Findings:
    """``train.batch_size``, ``train.epochs``, ``train.steps`` and ``access.tail``."""
    recorded = training.training
    if recorded is None:
        return findings(amount_of_reads(training, data))
    size, evidence, confidence = batch_size(training, recorded)
    epochs, rest = _batches_of_epochs(recorded), last_batch(training, recorded, size)
    given = ((int(epochs.max()) - 1) * size + rest) * _sharing_ranks(training, recorded)
    steps = [*_steps(training, recorded, data, epochs, size, given)]
    steps = steps or [*_steps_without_rest(training, recorded, data, int(epochs.max()), size)]
    values = [
        Finding("train.batch_size", size, evidence, confidence),
        Finding("train.epochs", len(epochs), f"the loader was iterated {counted(len(epochs), 'time')}"),
        *steps,
        *_tail(recorded, rest, size),
    ]
    return findings(values, [*_gaps(epochs), *(_gap_of_tail(rest, size) if steps else ())])


def _batches_of_epochs(recorded: RecordedLoader) -> pd.Series[int]:
    """Number of batches that the first rank fetched in each iteration that gave any."""
    sizes: pd.Series[int] = recorded.fetches.groupby("offset").size()
    return sizes


def batch_size(training: RecordedTraining, recorded: RecordedLoader) -> tuple[int, str, Confidence]:
    """Samples of a full batch of one rank, with evidence and confidence."""
    loader = recorded.loader
    if loader.batch_size is not None:
        return loader.batch_size, f"the loader has batch_size={loader.batch_size}", "certain"
    indices = whole_indices(recorded.indices)
    if loader.batch_sampler is not None and not indices.empty:
        sizes = indices[indices["rank"] == indices["rank"].min()].groupby(["epoch", "batch"]).size()
        size = int(sizes.mode().iloc[0])
        return size, f"{(sizes == size).mean():.0%} of {len(sizes)} batches of {loader.batch_sampler} have it", "likely"
    size = samples_of_an_item(training, recorded)
    return size, f"batch_size=None: the data set gives batches, whose arrays begin with {size}", "likely"


def _steps(
    training: RecordedTraining,
    recorded: RecordedLoader,
    data: DataFit,
    epochs: pd.Series[int],
    size: int,
    given: int,
) -> Iterator[Finding]:
    """``train.steps``, where an epoch, in which the sampler has ``given`` samples, is not one pass over all samples."""
    most = int(epochs.max())
    if not all(epoch.exhausted for epoch in recorded.epochs if epoch.batches):
        yield Finding("train.steps", most, f"{most} batches were fetched in an iteration that did not reach its end")
        return
    if is_stream(recorded):
        return
    # A sampler may give fewer samples, or more, than there are.
    if most and abs(given - data.samples) >= size * training.world_size:
        evidence = f"the sampler gives {counted(most, 'batch', 'batches')} of {data.samples} samples in an iteration"
        yield Finding("train.steps", most, evidence)


def _steps_without_rest(
    training: RecordedTraining, recorded: RecordedLoader, data: DataFit, most: int, size: int
) -> Iterator[Finding]:
    """``train.steps``, where the recipe's data would end in a smaller batch that the program has not."""
    if is_stream(recorded) or recorded.loader.drop_last or not most:
        return
    files, per_file = (data.findings.value(f"dataset.{key}") for key in ("num_files", "samples_per_file"))
    samples = files * per_file if files and per_file else data.samples
    if most < -(-samples // (size * _sharing_ranks(training, recorded))):
        evidence = f"the sampler gives {counted(most, 'batch', 'batches')} in an iteration"
        yield Finding("train.steps", most, evidence)


def last_batch(training: RecordedTraining, recorded: RecordedLoader, size: int) -> int:
    """Samples of the smallest batch that an iteration ends with; ``size``: all are full.

    Args:
        training: the recording.
        recorded: the loader.
        size: samples of a full batch.
    """
    indices = whole_indices(recorded.indices)
    if not indices.empty:
        sizes = indices.groupby(["rank", "epoch", "batch"]).size().groupby(["rank", "epoch"]).last()
        return min(size, int(sizes.min()))
    loader = recorded.loader
    heads = [
        entry.arrays[0].shape[0]
        for entry in training.torch.arrays
        if (entry.pid, entry.loader) == (loader.pid, loader.id) and entry.arrays and entry.arrays[0].shape
    ]
    return min([size, *(head for head in heads if head)])


def _tail(recorded: RecordedLoader, rest: int, size: int) -> Iterator[Finding]:
    """``access.tail``: by the loader's own option, or by the last batch of one that the program makes batches for."""
    loader = recorded.loader
    if loader.batch_size is not None:
        value = "drop" if loader.drop_last else "keep"
        yield Finding("access.tail", value, f"the loader has drop_last={loader.drop_last}", "certain")
    elif rest < size:
        evidence = f"the last batch of an iteration has {rest} of {size} samples"
        yield Finding("access.tail", "keep", evidence, "likely")


def _gap_of_tail(rest: int, size: int) -> Iterator[str]:
    """A smaller batch that ends an iteration over fewer samples than there are."""
    if rest < size:
        yield f"the last batch of an iteration has {rest} of {size} samples; those of the recipe are all full"


def _sharing_ranks(training: RecordedTraining, recorded: RecordedLoader) -> int:
    """Ranks that share the samples of an epoch: 1 if each reads all."""
    first = whole_indices(recorded.indices)
    of_epoch = first[first["epoch"] == first["epoch"].min()]
    sizes = of_epoch.groupby("rank")["index"].nunique()
    if sizes.empty:
        return 1
    sharing = round(float(of_epoch["index"].nunique()) / float(sizes.mean()))
    return min(training.world_size, max(1, int(sharing)))


def _gaps(epochs: pd.Series[int]) -> Iterator[str]:
    if epochs.nunique() > 1:
        yield (
            f"iterations over the loader have {int(epochs.min())} to {int(epochs.max())} batches; those of the recipe "
            "are alike"
        )
