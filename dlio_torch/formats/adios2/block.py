"""A block of a variable of ADIOS2, as the indexes of BP4 and BP5 tell of it."""

from __future__ import annotations

from dataclasses import dataclass


class Unread(Exception):
    """The index says something that is not understood here; the message says what."""


@dataclass(frozen=True)
class Block:
    """A part of a global array that was written in one piece.

    Attributes:
        shape: of the whole array in its step.
        start: first index along each axis.
        count: length along each axis.
        kind: NumPy's name of the type of its elements.
        file: number of the data file.
        offset: first byte in it.
    """

    shape: tuple[int, ...]
    start: tuple[int, ...]
    count: tuple[int, ...]
    kind: str
    file: int
    offset: int
