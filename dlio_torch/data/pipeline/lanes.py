"""DataPipes of lanes: read variable-length samples one after another and cut batches from them.

:class:`~dlio_torch.data.order.lanes_plan.LanesPlan` says which samples, in which order.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from torch.utils.data import IterDataPipe, functional_datapipe

from dlio_torch.data.dataset.map_dataset import SampleDataset
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.data.pipeline.pattern_pipes import FillLanes
from dlio_torch.data.pipeline.stream_dataset import Record
from dlio_torch.formats.core.batch import ArraySpec, samples_of


@functional_datapipe("read_by_number")
class SamplesByNumber(IterDataPipe[Record]):
    """DataPipe that reads samples one by one: ``IterableWrapper([3, 1]).read_by_number(dataset, fmt.specs())``."""

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
    """Endless iterable of the sample numbers that the lanes of one part of a plan read."""

    def __init__(self, plan: LanesPlan, part: int) -> None:
        super().__init__()
        self._plan = plan
        self._part = part

    def __iter__(self) -> Iterator[int]:
        return self._plan.samples(self._part)


class LanesStart:
    """Start of the pipe of one part: ``LaneSamples -> read_by_number -> fill_lanes``.

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
        """Yields the batches of ``part`` in all epochs."""
        plan = self._plan
        samples = LaneSamples(plan, part).read_by_number(self._dataset, self._specs)
        steps = FillLanes(
            samples, plan.batch_size, plan.rows, self._cut, plan.patience, plan.random_steps, plan.random_key(part)
        )
        if plan.probe:
            self._dataset[0]
        yield from steps

    def specs(self) -> list[ArraySpec]:
        """Specifications of the arrays of a lane; see :meth:`LanesPlan.cut`."""
        return self._of_lanes
