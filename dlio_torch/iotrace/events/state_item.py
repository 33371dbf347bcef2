"""Tensors and other values of a state that a recorded program saved."""

from __future__ import annotations

from dataclasses import dataclass

from dlio_torch.iotrace.events.call_names import printable


@dataclass(frozen=True)
class StateItem:
    """A tensor or another value of a saved state, or several of them.

    Attributes:
        name: keys that lead to it, joined by dots.
        shape: numbers of elements on this rank; of a value that is no tensor, its pickled bytes.
        dtype: type of its elements; ``object``: no tensor.
        count: number of consecutive items of this shape and type; the name is that of the first.
    """

    name: str
    shape: tuple[int, ...]
    dtype: str
    count: int


def state_item(name: str, shape: list[int], dtype: str, count: int) -> StateItem:
    """The item of a line of JSON."""
    return StateItem(printable(str(name)), tuple(map(int, shape)), str(dtype), int(count))
