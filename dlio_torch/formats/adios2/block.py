"""Block of an ADIOS2 variable, as the indexes of BP4 and BP5 folders record it."""

from __future__ import annotations

from dataclasses import dataclass


class Unread(Exception):
    """The index of a BP folder uses a feature that this reader does not support; the message names it."""


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
