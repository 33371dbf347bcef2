"""The state of a list of tensors (``checkpoint.tensors``), which each rank that saves holds as a whole."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from dlio_torch.checkpoint.job.saved_state import StateTensor
from dlio_torch.config.schema import CheckpointConfig, CheckpointTensorConfig

_TYPES = {"bool": "uint8"}  # with the same bytes, of which each has a meaning
_PICKLE_BYTES = 24  # of a text beside its characters, about


def listed_state(options: CheckpointConfig) -> dict[str, StateTensor | str]:
    """Tensors and other values by name, in their order; empty if none are listed.

    Names that occur more than once, and those of further tensors of an entry, get a number.

    Args:
        options: of the checkpoints.
    """
    state: dict[str, StateTensor | str] = {}
    for name, tensor in _named(options.tensors):
        unique = name if name not in state else f"{name}.{len(state)}"
        state[unique] = _value(unique, tensor)
    return state


def listed_bytes(options: CheckpointConfig) -> int:
    """Size of the listed tensors and values."""
    return sum(listed_sizes(options))


def listed_sizes(options: CheckpointConfig) -> list[int]:
    """Size of each listed tensor and value."""
    values = listed_state(options).values()
    return [value.bytes if isinstance(value, StateTensor) else len(value) for value in values]


def _named(tensors: Sequence[CheckpointTensorConfig]) -> Iterator[tuple[str, CheckpointTensorConfig]]:
    for tensor in tensors:
        yield tensor.name, tensor
        for number in range(1, tensor.count):
            yield f"{tensor.name}.{number}", tensor


def _value(name: str, tensor: CheckpointTensorConfig) -> StateTensor | str:
    shape = tuple(tensor.shape)
    if tensor.dtype == "object":
        return "x" * max(0, shape[0] - _PICKLE_BYTES)
    return StateTensor(name, _TYPES.get(tensor.dtype, tensor.dtype), shape, shape, (0,) * len(shape), 0)
