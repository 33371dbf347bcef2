"""Programs that load data with torch, as their users write them: ``python torch_programs.py NAME RESULT``.

Each writes to the file RESULT, as JSON, which samples its batches had, by loader.
"""

from __future__ import annotations

import io
import json
import os
import pickle
import signal
import sys
import traceback
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, IterDataPipe, RandomSampler, random_split
from torch.utils.data.datapipes.iter import IterableWrapper


class Numbers(Dataset[tuple[torch.Tensor, int]]):
    """A map-style data set whose sample number 13 cannot be read, if ``fails``."""

    def __init__(self, length: int, fails: bool = False) -> None:
        self.length, self.fails = length, fails

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> tuple[torch.Tensor, int]:
        if self.fails and index == 13:
            raise ValueError("sample 13 is broken")
        return torch.full((3,), float(index)), index


class Endless(IterableDataset[int]):
    """An iterable data set without end."""

    def __iter__(self) -> Iterator[int]:
        number = 0
        while True:
            yield number
            number += 1


class Named(Dataset[str]):
    """A data set with names as keys, that reads whole batches."""

    def __len__(self) -> int:
        return 2

    def __getitems__(self, keys: list[str]) -> list[str]:
        return [key.upper() for key in keys]


class OwnLoader(DataLoader[Any]):
    """A loader with an iterator of its own."""

    def __iter__(self) -> Any:
        for batch in super().__iter__():
            yield batch[1].tolist()


def numbers_of(loader: Iterable[Any]) -> list[list[int]]:
    """Samples of each batch of one epoch."""
    return [batch[1].tolist() if isinstance(batch, list) else batch.tolist() for batch in loader]


def many() -> dict[str, Any]:
    """All kinds of loaders in one program, with workers that are forked."""
    from torchdata import nodes
    from torchdata.stateful_dataloader import StatefulDataLoader

    data = Numbers(12)
    shuffled = DataLoader(data, batch_size=5, shuffle=True)
    batches: dict[str, Any] = {"shuffled": [numbers_of(shuffled), numbers_of(shuffled)]}
    persistent = DataLoader(data, 4, shuffle=True, num_workers=2, persistent_workers=True)
    batches["persistent"] = [numbers_of(persistent), numbers_of(persistent)]
    subset, _ = random_split(data, [8, 4], generator=torch.Generator().manual_seed(1))
    batches["subset"] = [numbers_of(StatefulDataLoader(subset, 3, num_workers=1))]
    del persistent

    training, testing = iter(DataLoader(Endless(), 2, num_workers=1)), DataLoader(data, 6)
    batches["endless"], batches["testing"] = [[]], []
    for _ in range(3):
        batches["endless"][0].append(next(training).tolist())
        batches["testing"].append(numbers_of(testing))
    del training

    batches["own_batches"] = [numbers_of(DataLoader(data, batch_sampler=[[3, 1], [2]]))]
    batches["single"] = [[[item[1]] for item in DataLoader(Numbers(3), batch_size=None)]]
    batches["own_loader"] = [list(OwnLoader(data, 5))]
    batches["named"] = list(DataLoader(Named(), sampler=["a", "b"], batch_size=2))  # type: ignore[arg-type]
    pipe: IterDataPipe[int] = IterableWrapper(range(7)).map(int)
    batches["pipe"] = [numbers_of(DataLoader(pipe, 3))]
    node = nodes.SamplerWrapper(RandomSampler(data))
    node = nodes.ParallelMapper(node, data.__getitem__, num_workers=2, method="thread")
    node = nodes.Mapper(nodes.Batcher(node, 4), torch.utils.data.default_collate)
    batches["nodes"] = [numbers_of(nodes.Loader(node))]
    for broken in (DataLoader(Numbers(14, fails=True), 7), DataLoader(Numbers(14, fails=True), 7, num_workers=1)):
        try:
            numbers_of(broken)
        except ValueError as error:
            batches.setdefault("errors", []).append("sample 13 is broken" in str(error))
    for _ in DataLoader(data, 5):
        break
    state = {"weights": torch.zeros(10, 10), "same": None, "step": 3}
    state["same"] = state["weights"]
    torch.save(state, "state.pt")
    torch.save([torch.ones(3)], io.BytesIO())
    torch.load("state.pt")
    return batches


def failing() -> dict[str, Any]:
    """Loaders whose data set fails, and an interrupt."""
    for workers in (0, 1):
        try:
            numbers_of(DataLoader(Numbers(14, fails=True), 7, num_workers=workers))
        except ValueError:
            traceback.print_exc()
    try:
        numbers_of(DataLoader([1, 2], collate_fn=lambda samples: signal.raise_signal(signal.SIGINT)))
    except KeyboardInterrupt:
        traceback.print_exc()
    copy = pickle.loads(pickle.dumps(DataLoader(Numbers(3), 2)))
    try:
        torch.load("missing")
    except FileNotFoundError:
        traceback.print_exc()
    sys.stderr.flush()
    return {"copy": numbers_of(copy)}


def copied() -> dict[str, Any]:
    """Loaders whose workers are spawned and come from a fork server."""
    return {
        method: [numbers_of(DataLoader(Numbers(6), 2, shuffle=True, num_workers=1, multiprocessing_context=method))]
        for method in ("spawn", "forkserver")
    }


def without_loader() -> dict[str, Any]:
    """A program that uses torch, but no loader."""
    return {"sum": float(torch.ones(3).sum())}


if __name__ == "__main__":
    result = {"many": many, "copied": copied, "failing": failing, "without_loader": without_loader}[sys.argv[1]]()
    with open(sys.argv[2], "w", encoding="utf-8") as file:
        json.dump(result, file)
    os._exit(3)
