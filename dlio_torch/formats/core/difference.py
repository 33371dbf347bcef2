"""Comparison of a sample that was read with the content that was generated."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from dlio_torch.formats.core.batch import Sample


@dataclass(frozen=True)
class Difference:
    """The first difference between a sample and its expected content.

    Attributes:
        array: name of the first array that differs.
        byte: its first byte that differs; ``None``: it is of another shape or type.
        text: says how.
    """

    array: str
    byte: int | None
    text: str


def first_difference(expected: Sample, got: Sample) -> Difference | None:
    """The first difference of two samples, array by array; ``None``: they are equal.

    Args:
        expected: the generated content.
        got: the content that was read; it has every array of ``expected``.
    """
    for name, array in expected.items():
        other = got[name]
        if other.shape != array.shape or other.dtype != array.dtype:
            text = f"the array is {other.dtype}{list(other.shape)}, expected {array.dtype}{list(array.shape)}"
            return Difference(name, None, text)
        if other.tobytes() != array.tobytes():
            flat = np.frombuffer(other.tobytes(), np.uint8) != np.frombuffer(array.tobytes(), np.uint8)
            byte = int(flat.argmax())
            return Difference(name, byte, f"byte {byte} of {flat.size} differs ({int(flat.sum())} bytes in all)")
    return None
