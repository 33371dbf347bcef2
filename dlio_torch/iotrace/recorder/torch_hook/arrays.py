"""Shapes and element types of a batch."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

_MOST = 64  # arrays of a batch that are described
_DEEPEST = 8
_PLAIN = frozenset({str, bytes, int, float, bool, type(None)})


class ArraySignature:
    """The shapes and types of the last batch."""

    def __init__(self) -> None:
        self._last: list[tuple[Any, ...]] | None = None

    def changed(self, batch: Any) -> list[dict[str, Any]] | None:
        """Descriptions of a batch's arrays; None if they are those of the batch before."""
        arrays: list[tuple[Any, ...]] = []
        _collect(batch, (), arrays)
        if arrays == self._last:
            return None
        self._last = arrays
        return [
            {"path": ".".join(map(str, path)), "shape": list(map(int, shape)), "dtype": str(dtype).split(".")[-1]}
            for path, shape, dtype in arrays
        ]


def _collect(value: Any, path: tuple[Any, ...], arrays: list[tuple[Any, ...]]) -> None:
    if type(value) in _PLAIN or len(arrays) >= _MOST or len(path) > _DEEPEST:
        return
    if hasattr(value, "shape") and hasattr(value, "dtype"):
        arrays.append((path, tuple(value.shape), value.dtype))
    elif isinstance(value, Mapping):
        for key in value:
            _collect(value[key], (*path, key), arrays)
    elif isinstance(value, tuple | list) and value and type(value[0]) not in _PLAIN:
        for position, item in enumerate(value[:_MOST]):
            _collect(item, (*path, position), arrays)
