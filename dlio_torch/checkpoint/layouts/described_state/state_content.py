"""Tensors of the files of a described job: made before the first save, verified after they were read."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from dlio_torch.checkpoint.job.saved_state import StateTensor
from dlio_torch.checkpoint.tensor_content import fill, first_difference


def make_content(content: Any, seed: int) -> Any:
    """The content of a file with a tensor for each of its leaves.

    Args:
        content: of a :class:`dlio_torch.checkpoint.layouts.described_state.state_file.StateFile`.
        seed: of the experiment.

    Raises:
        MemoryError, RuntimeError: a tensor does not fit into memory; torch raises RuntimeError.
    """
    if isinstance(content, StateTensor):
        return _tensor(content, seed)
    if isinstance(content, Mapping):
        return {key: make_content(value, seed) for key, value in content.items()}
    if isinstance(content, list):
        return [make_content(value, seed) for value in content]
    return content


def first_problem(content: Any, loaded: Any, seed: int, *, model_only: bool = False) -> str | None:
    """The first tensor that is missing or has another type, shape or content; ``None`` if all are as saved.

    Args:
        content: of a :class:`dlio_torch.checkpoint.layouts.described_state.state_file.StateFile`.
        loaded: the content that was read.
        seed: of the experiment.
        model_only: whether the optimizer's tensors are left out.
    """
    for leaf, value in _pairs(content, loaded):
        if not (model_only and leaf.name.startswith("optimizer.")):
            problem = _problem(leaf, value, seed)
            if problem is not None:
                return problem
    return None


def _tensor(leaf: StateTensor, seed: int) -> torch.Tensor:
    tensor = torch.empty(leaf.local_shape, dtype=getattr(torch, leaf.dtype))
    fill(tensor, seed, leaf.name, leaf.offsets, leaf.global_shape)
    return tensor


def _pairs(content: Any, loaded: Any) -> Iterator[tuple[StateTensor, Any]]:
    """Each leaf with the value in its place; ``None`` where the place does not exist."""
    if isinstance(content, StateTensor):
        yield content, loaded
    elif isinstance(content, Mapping):
        for key, value in content.items():
            yield from _pairs(value, loaded.get(key) if isinstance(loaded, Mapping) else None)
    elif isinstance(content, list):
        for index, value in enumerate(content):
            yield from _pairs(value, loaded[index] if isinstance(loaded, list) and index < len(loaded) else None)


def _problem(leaf: StateTensor, value: Any, seed: int) -> str | None:
    if not isinstance(value, torch.Tensor):
        return f"it holds no tensor {leaf.name}"
    kind, expected = f"{value.dtype} {list(value.shape)}", f"torch.{leaf.dtype} {list(leaf.local_shape)}"
    if kind != expected:
        return f"its tensor {leaf.name} is {kind}, not {expected}"
    index = first_difference(value.contiguous(), seed, leaf.name, leaf.offsets, leaf.global_shape)
    return None if index is None else f"its tensor {leaf.name} has another content at {list(index)}"
