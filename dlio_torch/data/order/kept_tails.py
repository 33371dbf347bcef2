"""Numbers of batches of parts of a stream that each end with a smaller batch (``access.tail=keep``)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import cycle, islice

from dlio_torch.data.order.pipe_plan import round_robin


class KeptTails:
    """Batches of the parts of one epoch.

    Args:
        samples: samples of each part.
        size: samples of a full batch.
        steps: batches that all parts together give at least, for which they begin again in turn.

    Attributes:
        single: batches of each part that is read once.
        lengths: batches of each part.
    """

    def __init__(self, samples: Sequence[int], size: int, steps: int) -> None:
        self._samples, self._size, self._steps = samples, size, steps
        self.single = [-(-count // size) for count in samples]
        filled = cycle(part for part, count in enumerate(samples) if count)
        again = Counter(islice(filled, max(0, steps - sum(self.single))))
        self.lengths = [length + again[part] for part, length in enumerate(self.single)]

    def epoch_samples(self) -> int:
        """Number of samples of the first ``steps`` batches, which parts give in turn."""
        total, taken = 0, Counter(islice(round_robin(self.lengths), self._steps))
        for part, batches in taken.items():
            rounds, left = divmod(batches, self.single[part])
            total += rounds * self._samples[part] + left * self._size
        return total
