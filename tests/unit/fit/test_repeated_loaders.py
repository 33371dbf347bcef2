"""A loader that a program makes again for each epoch is one loader; that of an evaluation stays its own."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pandas as pd
import pytest
from hand_made_trainings import MS, PID, loader
from span_events import Span, recorded

from dlio_torch.fit.recorded_training import with_samples
from dlio_torch.fit.repeated_loaders import join_repeated_loaders
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.events.torch_calls import (
    BATCH_COLUMNS,
    LoaderEpoch,
    TorchCalls,
    TorchDataset,
    TorchLoader,
    TorchProcess,
)

WORKER = TorchProcess(0, 7, PID, "loader worker 0", "3.11", "2", None, None, None, 1, 0)


def iteration(number: int, begin: int, folder: str) -> list[Span]:
    """Two batches of one sample each, which data set ``number`` reads from ``folder``."""
    spans = []
    for batch in range(2):
        start = begin + batch * MS
        spans += [
            Span("fetch", start, start + 90, pid=PID, step=batch, offset=0, file=f"loader {number}"),
            Span("sample", start + 10, start + 50, pid=PID, step=batch, offset=batch, file=f"dataset {number}"),
            Span("read", start + 20, start + 30, pid=PID, bytes=8, file=f"{folder}/{batch}", layer="posix"),
        ]
    return spans


def program(
    *, folder: str = "/train", begin: int = 10 * MS, ended: bool = True, length: int = 2, **changes: Any
) -> tuple[Recording, TorchCalls]:
    """A program with two loaders, the second one as requested."""
    first: TorchLoader = loader(0)
    second = replace(loader(1), **changes)
    datasets = [TorchDataset(0, PID, number, "program.Samples", "map", size) for number, size in ((0, 2), (1, length))]
    begins = (0, begin)
    epochs = [
        LoaderEpoch(0, PID, number, 0, start, start + 2 * MS if ended else None, 2, True)
        for number, start in enumerate(begins)
    ]
    rows = [(0, PID, number, 0, batch, 0, batch) for number in (0, 1) for batch in (0, 1)]
    batches = pd.DataFrame(rows, columns=list(BATCH_COLUMNS))
    spans = [*iteration(0, 0, "/train"), *iteration(1, begin, folder)]
    calls = TorchCalls((WORKER,), tuple(datasets), (first, second), tuple(epochs), batches, (), (), ())
    return recorded(spans), calls


def joined(given: tuple[Recording, TorchCalls]) -> tuple[Recording, TorchCalls]:
    recording, torch = given
    return join_repeated_loaders(recording, torch, with_samples(recording))


def test_a_loader_that_is_made_for_each_epoch_has_several_epochs() -> None:
    recording, torch = joined(program())
    assert [made.id for made in torch.loaders] == [dataset.id for dataset in torch.datasets] == [0]
    assert [(epoch.loader, epoch.epoch) for epoch in torch.epochs] == [(0, 0), (0, 1)]
    assert torch.batches["loader"].tolist() == [0, 0, 0, 0]
    assert torch.batches["epoch"].tolist() == [0, 0, 1, 1]
    assert torch.processes[0].loader == 0
    fetches = recording.spans[recording.spans["op"] == "fetch"]
    assert set(fetches["file"]) == {"loader 0"}
    assert fetches["offset"].tolist() == [0, 0, 1, 1]
    samples = recording.spans[recording.spans["op"] == "sample"]
    assert set(samples["file"]) == {"dataset 0"}
    assert samples["offset"].tolist() == [0, 1, 0, 1]  # of its data set
    assert set(recording.io["file"]) == {"/train/0", "/train/1"}


def test_one_data_set_is_the_same_without_a_look_at_its_files() -> None:
    _, torch = joined(program(dataset=0, folder="/elsewhere"))
    assert len(torch.loaders) == 1


def test_the_epoch_of_a_sampler_makes_no_other_loader() -> None:
    recording, torch = program()
    loaders = [replace(made, sampler={"class": "DistributedSampler", "epoch": made.id}) for made in torch.loaders]
    _, torch = joined((recording, replace(torch, loaders=tuple(loaders))))
    assert len(torch.loaders) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"folder": "/evaluation"},
        {"length": 3},
        {"batch_size": 8},
        {"sampler": {"class": "torch.utils.data.sampler.SequentialSampler"}},
        {"begin": MS},  # before the first iteration ends
        {"ended": False},
    ],
)
def test_other_data_options_or_times_are_of_another_loader(changes: dict[str, Any]) -> None:
    given = program(**changes)
    recording, torch = joined(given)
    assert torch is given[1]
    assert recording is given[0]
