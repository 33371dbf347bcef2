"""Options that reads to a GPU's memory (``loader.read_to=device``) cannot follow."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dlio_torch.config.check import Fail
    from dlio_torch.config.schema import Config

_KEY = "loader.read_to"


def check_read_to_device(config: Config, fail: Fail) -> None:
    """Refuse options that do not fit reads to a GPU's memory.

    Args:
        config: a complete configuration with ``loader.read_to=device``.
        fail: raises the error; called with keys, problem and remedy.
    """
    from dlio_torch.formats.core.registry import facts

    for key, fits, problem, remedy in _conflicts(config):
        if not fits:
            fail([_KEY, key], problem, f"set {remedy}, or {_KEY}=host")
    if not facts(config.dataset.format).plain_ranges(config):
        fail(
            [_KEY, "dataset.format"],
            "samples of this format, with these options, are not stored as they are used: the CPU must decode them, or "
            "take them out of records or of small files that are read whole",
            f"set {_KEY}=host, or use a format of plain byte ranges, for example dataset=npy or dataset=indexed_binary",
        )


def _conflicts(config: Config) -> Iterator[tuple[str, bool, str, str]]:
    """Yields option, whether it fits, the problem and the value to set."""
    loader = config.loader
    there = "batches are in the GPU's memory when they are read"
    yield "train.device", config.train.device == "cuda", f"{there}, so the training uses a GPU", "train.device=cuda"
    yield (
        "loader.num_workers",
        not loader.num_workers,
        "worker processes cannot read to the trainer's GPU memory",
        ("loader.num_workers=0 and loader.read_threads"),
    )
    yield "loader.style", loader.style == "map", "a DataPipe delivers batches in main memory", "loader.style=map"
    yield (
        "access.pattern",
        config.access.pattern == "samples",
        "batches are cut from samples by the CPU",
        ("access.pattern=samples"),
    )
    yield "loader.pin_memory", not loader.pin_memory, f"{there}, past main memory", "loader.pin_memory=false"
    yield "loader.prefetch_to_device", not loader.prefetch_to_device, f"{there}", "loader.prefetch_to_device=0"
    yield "loader.replay", loader.replay == "none", "a replay delivers what is in main memory", "loader.replay=none"
