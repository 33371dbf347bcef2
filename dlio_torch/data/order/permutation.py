"""Stateless random permutation: each element is computed without storing the others.

A generalised Feistel network (Luby and Rackoff 1988; Black and Rogaway, "Ciphers with Arbitrary Finite Domains", CT-RSA
2002): a number below ``a * b`` is two digits, and in each round one of them is moved on, modulo ``a`` or ``b``, by a
keyed function of the other.  Each round can be undone, so all of them are a permutation; of what lands beyond the
domain, the walk goes on until it is inside.  The keyed function is the finaliser of SplitMix64 (Steele, Lea and Flood,
OOPSLA 2014).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

Numbers = npt.NDArray[np.int64]

_ROUNDS = 8
_MULTIPLY = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_SHIFT = np.uint64(30), np.uint64(27), np.uint64(31)


class Permutation:
    """Random permutation of ``range(count)``, selected by ``key``.

    Args:
        key: numbers that it depends on, each at least 0.
        count: how many things, at least 1.
    """

    def __init__(self, key: Sequence[int], count: int) -> None:
        self._count = count
        self._keys = np.random.SeedSequence(list(key)).generate_state(_ROUNDS, np.uint64)
        high = math.isqrt(count - 1) + 1
        self._digits = np.uint64(high), np.uint64(-(-count // high))  # their product is less than high beyond count

    def __call__(self, positions: Numbers) -> Numbers:
        """Values of the permutation at these positions; int64 of the same shape."""
        values = self._walked(positions.astype(np.uint64))
        while (outside := values >= self._count).any():
            values[outside] = self._walked(values[outside])
        return values.astype(np.int64)

    def _walked(self, numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
        high, low = self._digits
        left, right = np.divmod(numbers, low)
        for number, key in enumerate(self._keys):
            if number % 2:
                right = (right + _mixed(left + key) % low) % low
            else:
                left = (left + _mixed(right + key) % high) % high
        walked: npt.NDArray[np.uint64] = left * low + right
        return walked


def _mixed(numbers: npt.NDArray[np.uint64]) -> npt.NDArray[np.uint64]:
    for shift, multiply in zip(_SHIFT, _MULTIPLY, strict=False):
        numbers = (numbers ^ (numbers >> shift)) * multiply
    mixed: npt.NDArray[np.uint64] = numbers ^ (numbers >> _SHIFT[2])
    return mixed
