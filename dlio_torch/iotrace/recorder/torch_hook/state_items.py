"""Tensors and other values of a saved state, in the order in which it is written."""

from __future__ import annotations

import pickle
import sys
from collections.abc import Iterator, Mapping
from typing import Any

_MOST = 1024  # items that are described
_DEEPEST = 32
_MOST_VALUES = 10_000  # of a list whose pickled size is taken

Item = list[Any]
"""``[name, shape, dtype, count]``, see :class:`dlio_torch.iotrace.events.state_item.StateItem`."""


def state_items(state: Any) -> list[Item]:
    """Items of a state, each with its name, shape and type; equal ones that follow each other are one.

    Names are the keys of nested containers, as ``torch.distributed.checkpoint`` joins them.

    Args:
        state: containers of tensors and other values; of anything else that has a state, nothing is described.
    """
    items: list[Item] = []
    for name, shape, dtype in _leaves(state, ()):
        if items and items[-1][1:3] == [shape, dtype]:
            items[-1][3] += 1
        elif len(items) < _MOST:
            items.append([name, shape, dtype, 1])
        else:
            return []
    return items


def _leaves(value: Any, path: tuple[str, ...]) -> Iterator[tuple[str, list[int], str]]:
    if len(path) > _DEEPEST:
        return
    if isinstance(value, sys.modules["torch"].Tensor):
        local = getattr(value, "_local_tensor", value)
        yield ".".join(path), list(map(int, local.shape)), str(local.dtype).split(".")[-1]
    elif isinstance(value, Mapping):
        for key in value:
            yield from _leaves(value[key], (*path, str(key)))
    elif isinstance(value, list) and _holds_more(value):
        for position, item in enumerate(value):
            yield from _leaves(item, (*path, str(position)))
    elif (size := _pickled_bytes(value)) is not None:
        yield ".".join(path), [size], "object"


def _holds_more(values: list[Any]) -> bool:
    """Whether a list holds tensors or mappings; other lists are one value."""
    tensor_class = sys.modules["torch"].Tensor
    return any(isinstance(value, tensor_class | Mapping) or (isinstance(value, list) and value) for value in values)


def _pickled_bytes(value: Any) -> int | None:
    """Size of a plain value; None for those whose pickling may run code of the program."""
    return len(pickle.dumps(value, protocol=2)) if _is_plain(value, _DEEPEST) else None


def _is_plain(value: Any, depth: int) -> bool:
    if isinstance(value, list | tuple):
        few = depth > 0 and len(value) <= _MOST_VALUES
        return few and type(value) in (list, tuple) and all(_is_plain(item, depth - 1) for item in value)
    return value is None or type(value) in (bool, int, float, str, bytes)
