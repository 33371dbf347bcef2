"""Plans of lanes: batches are cut from variable-length samples; each lane takes a new sample when its own is used up.

Recurrent networks that keep their state from batch to batch are trained so: FRNN's batches hold 128 time
steps of each of some plasma shots, and a shot is read when a lane has come to the end of the one before.
The lanes run on through all epochs.  The pattern is that of PPPLDeepLearning/plasma-python,
plasma/models/loader.py: ``Loader.training_batch_generator_partial_reset``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import TypeVar

from dlio_torch.data.order.access_patterns import filled_lanes
from dlio_torch.data.order.orders import pieces
from dlio_torch.data.order.pipe_plan import ENDLESS, PipePlan
from dlio_torch.data.order.specification import LanesSpec
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import ArraySpec
from dlio_torch.formats.core.format import Format

T = TypeVar("T")


class LanesPlan(PipePlan):
    """Order in which a rank's lanes read samples.

    Every rank reads all samples, in a shuffle of its own that is new each time they are used up; loader
    workers (parts) have lanes of their own.

    Args:
        num_samples: samples of the data set.
        spec: order, rows and batches.
        rows_of: rows of a sample, from its number; needed for the contents of batches, not for the reading.

    Attributes:
        rows, random_steps, probe: as in the specification.
        patience: samples that may be too short in a row; with more of them, all are.

    Raises:
        ConfigError: no number of steps is given, though lanes have no end.
    """

    def __init__(self, num_samples: int, spec: LanesSpec, rows_of: Callable[[int], int] | None = None) -> None:
        if spec.steps < 1:
            raise ConfigError(
                f"{spec.steps_key}={spec.steps} cannot be used with access.pattern=lanes, whose epochs have no "
                "natural end",
                hint=f"set {spec.steps_key} to the number of steps in an epoch",
            )
        super().__init__(
            num_samples=num_samples,
            batch_size=spec.rank_batch_size(),
            steps=spec.steps,
            endless=True,
            parts=spec.parts,
            pattern=f"lanes, {spec.order}, rows {spec.rows}, random steps {spec.random_steps}, seed {spec.seed}, "
            f"world size {spec.world_size}",
        )
        self.held_samples = spec.parts * self.batch_size
        self.rows, self.random_steps, self.probe = spec.rows, spec.random_steps, spec.probe
        # The first of one shuffle and the last of the next may be the same sample, all others too short.
        self.patience = 2 * num_samples
        self._shuffled = spec.order == "shuffled"
        self._key = [spec.seed, spec.rank]
        self._rows_of = rows_of

    def samples(self, part: int) -> Iterator[int]:
        """Yields, without end, the numbers of the samples that the lanes of ``part`` read."""
        for number in count():
            if not self._shuffled:
                yield from range(self.num_samples)
                continue
            for piece in pieces([*self._key, part, number], self.num_samples):
                yield from piece.tolist()

    def random_key(self, part: int) -> tuple[int, ...]:
        """Key of the random rows of ``part``."""
        return (*self._key, part)

    def cut(self, specs: Sequence[ArraySpec]) -> list[ArraySpec]:
        """Specifications of the arrays of a lane; variable-length arrays are cut to :attr:`rows` rows.

        Args:
            specs: arrays of a sample.

        Raises:
            ConfigError: all have a fixed length.
        """
        if not any(spec.variable for spec in specs):
            raise ConfigError(
                "access.pattern=lanes needs samples with a variable-length array, but dataset.fields describe none",
                hint="set dataset.fields.0.length_mean, or access.pattern=samples",
            )
        return [
            replace(spec, shape=(self.rows, *spec.shape), variable=False) if spec.variable else spec for spec in specs
        ]

    def part_lengths(self, epoch: int) -> list[int]:
        """See :class:`PipePlan`."""
        return [ENDLESS] * self.parts

    def part_batches(self, epoch: int, part: int) -> Iterator[list[int]]:
        """See :class:`PipePlan`."""
        if self._rows_of is None:
            raise ValueError(
                "the contents of the batches are unknown without rows_of (the number of rows of each sample)"
            )
        for step in self.steps(self.samples(part), part, self._rows_of):
            yield [sample for sample, _ in step]

    def steps(self, samples: Iterable[T], part: int, rows_of: Callable[[T], int]) -> Iterator[list[tuple[T, int]]]:
        """Yields, for each step of ``part``, the sample of each lane and the first of its rows.

        Args:
            samples: those of :meth:`samples`, in that order, as numbers or anything else.
            part: loader worker.
            rows_of: rows of one of them.
        """
        return filled_lanes(
            samples, self.batch_size, self.rows, rows_of, self.patience, self.random_steps, self.random_key(part)
        )


class RowsOf:
    """Number of rows of a generated sample, computed from its content; slow, for checks.

    Args:
        fmt: knows the content.
        first_sample: number of the first sample, as the format counts.
    """

    def __init__(self, fmt: Format, first_sample: int) -> None:
        self._format, self._first = fmt, first_sample
        self._names = [spec.name for spec in fmt.specs() if spec.variable]
        self._known: dict[int, int] = {}

    def __call__(self, sample: int) -> int:
        """Rows of the shortest array."""
        if sample not in self._known:
            content = self._format.expected(self._first + sample)
            self._known[sample] = min(len(content[name]) for name in self._names)
        return self._known[sample]
