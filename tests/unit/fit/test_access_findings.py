"""Findings on order, batches and loader, from small tables of indices, fetches and calls."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from dlio_torch.fit.batch_amounts import fit_amounts
from dlio_torch.fit.data_set import DataFit
from dlio_torch.fit.finding import Findings
from dlio_torch.fit.loader_options import fit_loader
from dlio_torch.fit.recorded_training import RecordedLoader, RecordedTraining
from dlio_torch.fit.sample_order import fit_order
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.events.torch_calls import (
    BatchArray,
    BatchArrays,
    LoaderEpoch,
    TorchCalls,
    TorchDataset,
    TorchLoader,
)

TRAINER, WORKER = 10, 11
FIRST_FETCH = 1000
LOADER = TorchLoader(
    rank=0, pid=TRAINER, id=0, class_name="torch.utils.data.dataloader.DataLoader", dataset=0, batch_size=4,
    drop_last=False, sampler={"class": "torch.utils.data.sampler.RandomSampler"},
    batch_sampler="torch.utils.data.sampler.BatchSampler", num_workers=1, prefetch_factor=2, pin_memory=False,
    start_method="fork", persistent_workers=False, in_order=True, timeout_s=0, collate=None,
)  # fmt: skip
DATASET = TorchDataset(rank=0, pid=TRAINER, id=0, class_name="__main__.Rows", style="map", length=24)
DATA = DataFit(Findings(), "npz", ("/data/a", "/data/b"), 24, None)


def shuffled(count: int, epochs: int = 2, size: int = 4) -> list[list[list[int]]]:
    """Batches of permutations."""
    orders = [np.random.default_rng(epoch).permutation(24)[:count].tolist() for epoch in range(epochs)]
    return [[order[first : first + size] for first in range(0, count, size)] for order in orders]


def recorded(
    epochs: Sequence[Sequence[Sequence[int]]],
    calls: Sequence[tuple[int, str, str, int, int, int]] = (),
    *,
    exhausted: bool = True,
    dataset: TorchDataset = DATASET,
    arrays: Sequence[int] = (),
    **loader: Any,
) -> RecordedTraining:
    """A training of one rank.

    Args:
        epochs: indices of each batch of each iteration; an iterable data set gives none of them.
        calls: pid, name, file, offset, bytes, begin.
        exhausted: whether iterations came to their end.
        dataset: the data set.
        arrays: samples of recorded batches.
        loader: options of the loader that are not the usual ones.
    """
    rows = [
        (0, epoch, batch, position, index)
        for epoch, batches in enumerate(epochs)
        for batch, indices in enumerate(batches)
        for position, index in enumerate(indices)
    ]
    indices = pd.DataFrame(rows, columns=["rank", "epoch", "batch", "position", "index"])
    fetches = pd.DataFrame(
        [(epoch, FIRST_FETCH + batch) for epoch, batches in enumerate(epochs) for batch, _ in enumerate(batches)],
        columns=["offset", "start_ns"],
    )
    ends = tuple(
        LoaderEpoch(0, TRAINER, 0, number, FIRST_FETCH, batches=len(batches), exhausted=exhausted)
        for number, batches in enumerate(epochs)
    )
    options = replace(LOADER, **loader)
    mine = RecordedLoader(options, dataset, ends, fetches, indices[:0] if dataset.style == "iterable" else indices)
    shapes = tuple(BatchArrays(0, TRAINER, 0, 0, (BatchArray("0", (size, 3), "float32"),)) for size in arrays)
    torch = TorchCalls((), (dataset,), (options,), ends, indices, shapes, (), ())
    spans = pd.DataFrame({"file": ["dataset 0"], "op": ["sample"], "pid": [WORKER], "start_ns": [1], "end_ns": [2]})
    return RecordedTraining(
        cast(Recording, SimpleNamespace(spans=spans)), torch, table_of(calls), mine, None, world_size=1
    )


def table_of(calls: Sequence[tuple[int, str, str, int, int, int]]) -> pd.DataFrame:
    table = pd.DataFrame(calls, columns=["pid", "op", "file", "offset", "bytes", "start_ns"])
    table = table.assign(rank=0, end_ns=table["start_ns"], dataset=np.where(table["pid"] == WORKER, 0, -1))
    return table.astype({"op": "category", "file": "category"})


def test_a_permutation_of_all_samples_needs_no_steps() -> None:
    training = recorded(shuffled(24))
    assert fit_order(training, DATA).value("access.order") == "shuffled"
    amounts = fit_amounts(training, DATA)
    assert (amounts.value("train.batch_size"), amounts.value("train.epochs")) == (4, 2)
    assert amounts.value("train.steps") is None


def test_a_sampler_that_gives_fewer_samples_sets_the_steps() -> None:
    assert fit_amounts(recorded(shuffled(12)), DATA).value("train.steps") == 3


def test_an_iteration_that_stops_early_sets_the_steps() -> None:
    amounts = fit_amounts(recorded([shuffled(24)[0][:5], shuffled(24)[1][:4]], exhausted=False), DATA)
    assert amounts.value("train.steps") == 5
    assert any("4 to 5 batches" in gap for gap in amounts.gaps)


@pytest.mark.parametrize("samples", [24, 23, 21, 3])
@pytest.mark.parametrize(("drop_last", "tail"), [(True, "drop"), (False, "keep")])
def test_the_last_batch_is_treated_as_by_the_loader(samples: int, drop_last: bool, tail: str) -> None:
    batches = [[batch for batch in epoch if len(batch) == 4 or not drop_last] for epoch in shuffled(samples)]
    if not batches[0]:
        return
    amounts = fit_amounts(recorded(batches, drop_last=drop_last), replace(DATA, samples=samples))
    assert amounts.value("access.tail") == tail
    assert amounts.value("train.steps") is None
    assert not amounts.gaps


def test_a_smaller_last_batch_of_a_part_of_the_samples_is_a_gap() -> None:
    amounts = fit_amounts(recorded(shuffled(14)), DATA)
    assert amounts.value("train.steps") == 4
    assert any("has 2 of 4 samples" in gap for gap in amounts.gaps)


def test_the_batch_of_a_programs_batch_sampler_is_that_of_most_batches() -> None:
    batches = [[0, 1, 2, 3, 4, 5], [12, 13, 14, 15, 16, 17], [3, 4, 5, 6, 7, 8], [18, 19]]
    training = recorded([batches], batch_size=None, batch_sampler="__main__.Blocks")
    assert fit_amounts(training, DATA).value("train.batch_size") == 6
    assert fit_order(training, DATA).value("access.order") == "random_blocks"


def test_a_data_set_that_gives_batches_has_the_batch_of_its_arrays() -> None:
    stream = replace(DATASET, style="iterable", length=None)
    options = {"batch_size": None, "batch_sampler": None}
    training = recorded([[[0]] * 3], dataset=stream, arrays=[8, 8, 5], **options)
    amounts = fit_amounts(training, DATA)
    assert (amounts.value("train.batch_size"), amounts.value("access.tail")) == (8, "keep")


def test_a_subset_that_never_changes_and_samples_drawn_again_are_gaps() -> None:
    half = shuffled(12, epochs=1)[0]
    subset = fit_order(recorded([half, half[::-1]]), DATA)
    assert any("same part of the samples" in gap for gap in subset.gaps)
    again = fit_order(recorded([[[3, 9, 3, 20], [3, 9, 11, 20]]]), DATA)
    assert any("gives 50% of the indices of an epoch again" in gap for gap in again.gaps)


def test_files_that_are_mapped_before_the_first_batch_alone_are_inherited_by_workers() -> None:
    before = [(TRAINER, "mmap", "/data/a", 0, 100, 5)]
    later = (TRAINER, "mmap", "/data/b", 0, 100, FIRST_FETCH + 1)
    assert fit_loader(recorded(shuffled(24), before), DATA).value("loader.opened_by") == "main"
    assert fit_loader(recorded(shuffled(24), [*before, later]), DATA).value("loader.opened_by") is None
    spawned = recorded(shuffled(24), before, start_method="spawn")
    assert fit_loader(spawned, DATA).value("loader.opened_by") is None


def test_data_that_are_read_before_the_first_batch_alone_are_in_memory() -> None:
    before = [(TRAINER, "read", "/data/a", 0, 4096, 5)]
    after = (WORKER, "read", "/data/a", 0, 4096, FIRST_FETCH + 1)
    assert fit_loader(recorded(shuffled(24), before), DATA).value("loader.in_memory") is True
    assert fit_loader(recorded(shuffled(24), [*before, after]), DATA).value("loader.in_memory") is None
    mapped = (TRAINER, "mmap", "/data/a", 0, 4096, 6)
    assert fit_loader(recorded(shuffled(24), [*before, mapped]), DATA).value("loader.in_memory") is None


@pytest.mark.parametrize(("files", "value"), [("", None), ("a", "first"), ("ab", "all")])
def test_files_that_the_trainer_opens_before_its_workers_do_are_probed(files: str, value: str | None) -> None:
    before = [(TRAINER, "open", f"/data/{name}", -1, -1, 5) for name in files]
    later = [(WORKER, "open", f"/data/{name}", -1, -1, FIRST_FETCH + 1) for name in "ab"]
    assert fit_loader(recorded(shuffled(24), [*before, *later]), DATA).value("loader.probe_files") == value
    alone = fit_loader(recorded(shuffled(24), before), DATA)  # such as a mapping that workers inherit
    assert alone.value("loader.probe_files") is None


def test_a_pipe_that_is_asked_by_index_is_no_stream() -> None:
    training = recorded(shuffled(24), dataset=replace(DATASET, style="datapipe"))
    assert fit_order(training, DATA).value("access.pattern") == "samples"
    assert fit_loader(training, DATA).value("loader.style") == "pipe"


def test_threads_of_nodes_are_reader_threads() -> None:
    nodes = replace(DATASET, style="nodes")
    options: dict[str, Any] = {"class_name": "torchdata.nodes.loader.Loader", "start_method": "thread"}
    loader = fit_loader(recorded(shuffled(24), dataset=nodes, num_workers=3, **options), DATA)
    assert loader.value("loader.engine") == "nodes"
    assert (loader.value("loader.num_workers"), loader.value("loader.read_threads")) == (0, 3)


def test_a_sampler_that_leaves_no_smaller_batch() -> None:
    """The recipe's 25 samples would end in a batch of one sample, which the program does not have."""
    found = fit_amounts(recorded(shuffled(24)), replace(DATA, samples=25))
    assert found.value("train.steps") == 6
    assert fit_amounts(recorded(shuffled(22)), replace(DATA, samples=22)).value("train.steps") is None
