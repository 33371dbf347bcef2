"""Private names of torch, torchdata and Python that the hook reads and patches; a test forbids others.

They have no public counterpart.  Where a release lacks one, the hook's part that needs it fails, which is noted in the
recording, and the program goes on.  Tried with torch 2.13.0, torchdata 0.11.0 and Python 3.11.7.  The hook cannot use
:mod:`dlio_torch.environment.private_names`: it runs in programs of other environments, on the standard library alone.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any


def dataset_kind(loader: Any) -> int:
    """Kind of a ``DataLoader``'s data set: 0 map-style, 1 iterable."""
    return int(loader._dataset_kind)


def asked_length(loader: Any) -> int | None:
    """Length of a ``DataLoader`` over an iterable data set, if the program has asked for it."""
    length = getattr(loader, "_IterableDataset_len_called", None)
    return length if isinstance(length, int) else None


def fetcher_classes(module: ModuleType) -> tuple[Any, Any]:
    """Fetchers of map-style and of iterable data sets, in ``torch.utils.data._utils.fetch``."""
    return module._MapDatasetFetcher, module._IterableDatasetFetcher


def iterator_base(module: ModuleType) -> Any:
    """Base of the iterators of loaders, in ``torch.utils.data.dataloader``."""
    return module._BaseDataLoaderIter


def mapper_iterator(module: ModuleType) -> Any:
    """Iterator of a mapper without workers, in ``torchdata.nodes.map``."""
    return module._InlineMapperIter


def is_half_imported(module: ModuleType) -> bool:
    """Whether the import of a module has begun and not ended.  In CPython since 3.4."""
    return bool(getattr(getattr(module, "__spec__", None), "_initializing", False))


def calling_frame(depth: int) -> FrameType | None:
    """Frame of the function so many calls above the caller of this function.  In CPython."""
    return sys._getframe(depth + 1)


def local_tensor(value: Any) -> Any:
    """The tensor of this rank in a ``DTensor``; any other tensor itself."""
    return getattr(value, "_local_tensor", value)


def process_configuration() -> dict[str, Any]:
    """Configuration that child processes inherit from this one, in ``multiprocessing``; empty if there is none."""
    configuration: dict[str, Any] = getattr(multiprocessing.current_process(), "_config", {})
    return configuration


def patch_reset(iterator: Any, wrapper: Callable[[Callable[..., None]], Callable[..., None]]) -> None:
    """Replaces the method of a class of loader iterators with which persistent workers begin an epoch."""
    iterator._reset = wrapper(iterator._reset)
