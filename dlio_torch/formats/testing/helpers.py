"""Helpers for contract tests and for a format's own tests."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch

from dlio_torch.errors import DataError
from dlio_torch.formats.core.batch import Batch, BatchBuffer, samples_of
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.reader import Reader


def write(fmt: Format, path: Path, first_sample: int, num_samples: int, threads: int = 2) -> Path:
    """Write a file with a pool of ``threads`` threads; returns its path."""
    with ThreadPoolExecutor(threads) as pool:
        fmt.write(path, first_sample, num_samples, pool)
    return path


def read(fmt: Format, reader: Reader, rows: Iterable[int], indices: Sequence[int] | None = None) -> Batch:
    """Reads the samples ``rows`` of a file into a batch, one call each; ``indices``: their numbers in the data set."""
    rows = list(rows)
    buffer = BatchBuffer(fmt.specs(), rows if indices is None else indices)
    for position, row in enumerate(rows):
        reader.read(row, 1, buffer, position)
    return buffer.finish()


def check_batch(fmt: Format, batch: Batch, samples: Iterable[int]) -> None:
    """Assert that the batch holds these generated samples, in this order."""
    samples = list(samples)
    batch_samples = [sample for _, sample in samples_of(batch, fmt.specs())]
    assert len(batch_samples) == len(samples), f"the batch holds {len(batch_samples)} samples, expected {len(samples)}"
    for number, sample in zip(samples, batch_samples, strict=True):
        difference = fmt.differences(number, sample)
        assert difference is None, f"sample {number}: {difference}"


def assert_equal(batch: Batch, other: Batch) -> None:
    """Assert that two batches hold the same tensors."""
    assert list(batch) == list(other), f"the batches have different tensors: {list(batch)} and {list(other)}"
    for name, tensor in batch.items():
        assert tensor.dtype == other[name].dtype, (
            f"tensor {name} has different types: {tensor.dtype} and {other[name].dtype}"
        )
        assert torch.equal(tensor, other[name]), f"{name} differs"


def refusal(attempt: Callable[[], object], closed: Path | None = None) -> str:
    """Returns the message of the DataError that ``attempt()`` raises; fails without an error or with several lines.

    Args:
        attempt: what must fail.
        closed: a file that must not be open any more, even while the error is held.
    """
    try:
        attempt()
    except DataError as error:
        line = str(error)
        assert "\n" not in line, f"the error message has several lines: {line!r}"
        assert closed is None or not is_open(closed), f"{closed} was left open"
        return line
    raise AssertionError("no DataError was raised")


def is_open(path: Path) -> bool:
    """Whether this process has ``path`` open, or a file in it (Linux: by ``/proc``; elsewhere never)."""
    folder = Path("/proc/self/fd")
    if not folder.is_dir():
        return False
    links = []
    for entry in folder.iterdir():
        try:
            links.append(os.readlink(entry))
        except OSError:  # the descriptor of this very listing
            continue
    name = str(path.resolve())
    return any(link == name or link.startswith(f"{name}/") for link in links)
