"""Lanes: batches cut from variable-length samples, each lane going on with another when its own is used up.

Recurrent networks that keep their state from batch to batch are trained so: FRNN's batches hold 128 time
steps of each of some plasma shots, and a shot is read when a lane has come to the end of the one before.
The lanes run on through all epochs.  The pattern is that of PPPLDeepLearning/plasma-python,
plasma/models/loader.py: ``Loader.training_batch_generator_partial_reset``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from itertools import count
from typing import Literal, TypeVar

from torch.utils.data import IterDataPipe, functional_datapipe

from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.data.order.access_patterns import filled_lanes
from dlio_torch.data.order.orders import pieces
from dlio_torch.data.order.pipe_plan import ENDLESS, PipePlan
from dlio_torch.data.order.sampler import BatchScope, rank_batch
from dlio_torch.data.pipeline.pattern_pipes import FillLanes
from dlio_torch.data.pipeline.stream import Record
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.batch import ArraySpec, samples_of
from dlio_torch.formats.core.format import Format

T = TypeVar("T")


class LanesPlan(PipePlan):
    """Which samples a rank's lanes read in which order.

    Every rank reads all samples, in a shuffle of its own that is new each time they are used up; loader
    workers (parts) have lanes of their own.

    Args:
        num_samples: samples of the data set.
        order: ``shuffled``, or ``sequential`` for the order of sample numbers.
        rows: rows that a lane takes from its sample in a step.
        random_steps: steps, from the first one on, in which a lane cuts a new sample at a random row.
        probe: sample 0 is read once before the first batch, for its shape.
        rows_of: rows of a sample, from its number; needed for the contents of batches, not for the reading.
        batch_size: lanes, of one rank or of all ranks together.
        batch_scope: what ``batch_size`` counts.
        seed: seed of the order.
        rank: number of this process.
        world_size: number of processes.
        parts: loader workers of a rank, at least 1.
        steps: steps of an epoch.
        batch_key: configuration key of ``batch_size``, for messages.
        steps_key: configuration key of ``steps``, for messages.

    Attributes:
        rows, random_steps, probe: as given.
        patience: samples that may be too short in a row; with more of them, all are.

    Raises:
        ConfigError: no number of steps is given, though lanes have no end.
    """

    def __init__(
        self,
        num_samples: int,
        *,
        rows: int,
        batch_size: int,
        steps: int,
        order: Literal["sequential", "shuffled"] = "shuffled",
        random_steps: int = 0,
        probe: bool = False,
        rows_of: Callable[[int], int] | None = None,
        batch_scope: BatchScope = "rank",
        seed: int = 0,
        rank: int = 0,
        world_size: int = 1,
        parts: int = 1,
        batch_key: str = "train.batch_size",
        steps_key: str = "train.steps",
    ) -> None:
        if steps < 1:
            raise ConfigError(
                f"{steps_key}={steps} with access.pattern=lanes, which has no end of an epoch",
                hint=f"set {steps_key} to the steps of an epoch",
            )
        super().__init__(
            num_samples=num_samples,
            batch_size=rank_batch(batch_size, batch_scope, world_size, batch_key),
            steps=steps,
            endless=True,
            parts=parts,
            pattern=f"lanes, {order}, rows {rows}, random steps {random_steps}, seed {seed}, world size {world_size}",
        )
        self.held_samples = parts * self.batch_size
        self.rows, self.random_steps, self.probe = rows, random_steps, probe
        # The first of one shuffle and the last of the next may be the same sample, all others too short.
        self.patience = 2 * num_samples
        self._shuffled = order == "shuffled"
        self._key = [seed, rank]
        self._rows_of = rows_of

    def samples(self, part: int) -> Iterator[int]:
        """Numbers of the samples that the lanes of ``part`` read, one after another without end."""
        for number in count():
            if not self._shuffled:
                yield from range(self.num_samples)
                continue
            for piece in pieces([*self._key, part, number], self.num_samples):
                yield from piece.tolist()

    def random_key(self, part: int) -> tuple[int, ...]:
        """What the random rows of ``part`` depend on."""
        return (*self._key, part)

    def cut(self, specs: Sequence[ArraySpec]) -> list[ArraySpec]:
        """Arrays of a lane: of variable-length ones, :attr:`rows` rows.

        Args:
            specs: arrays of a sample.

        Raises:
            ConfigError: all have a fixed length.
        """
        if not any(spec.variable for spec in specs):
            raise ConfigError(
                "access.pattern=lanes cuts samples of variable length, and the samples have none",
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
            raise ValueError("the contents of batches depend on rows_of")
        for step in self.steps(self.samples(part), part, self._rows_of):
            yield [sample for sample, _ in step]

    def steps(self, samples: Iterable[T], part: int, rows_of: Callable[[T], int]) -> Iterator[list[tuple[T, int]]]:
        """For each step of ``part`` the sample of each lane and the first of its rows.

        Args:
            samples: those of :meth:`samples`, in that order, as numbers or anything else.
            part: loader worker.
            rows_of: rows of one of them.
        """
        return filled_lanes(
            samples, self.batch_size, self.rows, rows_of, self.patience, self.random_steps, self.random_key(part)
        )


@functional_datapipe("read_by_number")
class SamplesByNumber(IterDataPipe[Record]):
    """Reads one sample after another: ``IterableWrapper([3, 1]).read_by_number(dataset, fmt.specs())``."""

    def __init__(self, source: IterDataPipe[int], dataset: SampleDataset, specs: Sequence[ArraySpec]) -> None:
        super().__init__()
        self._source = source
        self._dataset = dataset
        self._specs = list(specs)

    def __iter__(self) -> Iterator[Record]:
        return self._run()

    def _run(self) -> Iterator[Record]:
        for number in self._source:
            yield from samples_of(self._dataset[number], self._specs)


class LaneSamples(IterDataPipe[int]):
    """Numbers of the samples that the lanes of one part of a plan read; without end."""

    def __init__(self, plan: LanesPlan, part: int) -> None:
        super().__init__()
        self._plan = plan
        self._part = part

    def __iter__(self) -> Iterator[int]:
        return self._plan.samples(self._part)


class LanesStart:
    """Begins the batches of one part: ``LaneSamples -> read_by_number -> fill_lanes``.

    Args:
        plan: which samples.
        dataset: reads a sample.
        specs: arrays of a sample, at least one of variable length.

    Raises:
        ConfigError: all arrays have a fixed length.
    """

    def __init__(self, plan: LanesPlan, dataset: SampleDataset, specs: Sequence[ArraySpec]) -> None:
        self._plan = plan
        self._dataset = dataset
        self._specs = list(specs)
        self._cut = [spec.name for spec in specs if spec.variable]
        self._of_lanes = plan.cut(specs)

    def __call__(self, epoch: int, part: int) -> Iterator[list[Record]]:
        """Batches of ``part`` in all epochs."""
        plan = self._plan
        samples = LaneSamples(plan, part).read_by_number(self._dataset, self._specs)
        steps = FillLanes(
            samples, plan.batch_size, plan.rows, self._cut, plan.patience, plan.random_steps, plan.random_key(part)
        )
        if plan.probe:
            self._dataset[0]
        yield from steps

    def specs(self) -> list[ArraySpec]:
        """Arrays of a lane; see :meth:`LanesPlan.cut`."""
        return self._of_lanes


class RowsOf:
    """Rows of a generated sample from its number, as its content tells: slow, and made for checking.

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
