"""Layouts of arrays that lie in many files, each of which holds whole samples."""

from __future__ import annotations

from abc import abstractmethod

import numpy as np

from dlio_torch.formats.core.layout import ArrayLayout, Chunks, Copies, Extents, Ints


class PartedLayout(ArrayLayout):
    """Layout of one array in many files, each of which holds whole samples; they are opened when they are needed.

    Attributes:
        path: of all the files together.
    """

    @abstractmethod
    def part_of(self, rows: Ints) -> Ints:
        """Number of the file that holds each of the samples at ``rows``."""

    @abstractmethod
    def part(self, number: int) -> tuple[ArrayLayout, int]:
        """Layout of one of the files, and the sample with which it begins.

        Raises:
            DataError: it is damaged.
        """

    def plan(self, rows: Ints, into: Ints) -> Extents | Chunks | Copies:
        """Same as the plan of the file that holds all of these samples.

        Raises:
            ValueError: they lie in several files.
        """
        numbers = np.unique(self.part_of(rows))
        if len(numbers) != 1:
            raise ValueError(f"samples of {len(numbers)} files cannot be planned together")
        layout, first = self.part(int(numbers[0]))
        return layout.plan(rows - first, into)
