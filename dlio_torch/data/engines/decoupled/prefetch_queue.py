"""The supply of samples for lanes: handfuls in the order in which lanes ask for them, brought by whoever has time."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Sequence
from functools import partial
from itertools import count, islice

from dlio_torch.data.engines.decoupled.epoch import Share
from dlio_torch.data.engines.decoupled.incoming_samples import Bringer, Handful, Incoming, one_by_one


class Supply:
    """Samples, some of them ahead.

    Args:
        order: numbers of the samples, without end.
        bringer: reads samples.
        handful: samples that are read together.
        ahead: handfuls that are read before somebody asks for them.
        whole: read samples; else find their lengths only.

    Attributes:
        change: is held where something here is looked at or changed, and told of it.
        whole: as given; may be changed at any time.
        share: does what can be done side by side while :meth:`samples` is asked.
    """

    def __init__(self, order: Iterator[int], bringer: Bringer, handful: int, ahead: int, *, whole: bool) -> None:
        self._order = order
        self._bringer = bringer
        self._handful, self._ahead = handful, ahead
        self.whole = whole
        self.change = threading.Condition()
        self.share: Share = one_by_one
        self._claimed = 0  # handfuls
        self._asked = 0
        self._coming: dict[int, Handful] = {}  # those that are claimed and not asked for

    def samples(self) -> Iterator[Incoming]:
        """The samples in their order; their lengths are known."""
        for number in count():
            with self.change:
                fresh = number == self._claimed  # else somebody has it, or has had it
                claimed = [self.claim() for _ in range(self._ahead if fresh else 0)]
            self._bring_all(claimed)
            with self.change:
                handful = self._coming.pop(number)
                self._asked = number + 1
                self.change.notify_all()
                self.change.wait_for(partial(getattr, handful, "known"))
            yield from handful.samples

    def has_room(self) -> bool:
        """Whether there is a handful to claim; for one who holds ``change``."""
        return self._claimed < self._asked + self._ahead

    def claim(self) -> Handful:
        """The next handful, which the caller brings; for one who holds ``change``."""
        handful = _handful([Incoming(number) for number in islice(self._order, self._handful)], whole=self.whole)
        self._coming[self._claimed] = handful
        self._claimed += 1
        return handful

    def bring(self, handful: Handful, share: Share) -> None:
        """Find the lengths of a handful, tell that they are known, and read it."""
        self._bringer.find(handful)
        with self.change:
            handful.known = True
            self.change.notify_all()
        self._bringer.read(handful, share)

    def read(self, samples: Sequence[Incoming]) -> None:
        """Read samples of which only the lengths are known."""
        most = self._handful
        for first in range(0, len(samples), most * self._ahead):
            some = samples[first : first + most * self._ahead]
            self._bring_all([_handful(some[at : at + most], whole=True) for at in range(0, len(some), most)])

    def _bring_all(self, handfuls: Sequence[Handful]) -> None:
        if handfuls:
            self.share([partial(self.bring, handful, one_by_one) for handful in handfuls])
        if not all(handful.known for handful in handfuls):
            raise RuntimeError("the epoch was ended")  # parts are left out then; nobody hears of it


def _handful(samples: Sequence[Incoming], *, whole: bool) -> Handful:
    handful = Handful(samples, whole)
    for one in samples:
        one.done = handful.done if whole else None
    return handful
