"""Which trial comes next: every point once, then every point again, so that drift of the machine hits all alike."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from dlio_torch.sweep.study import Point
from dlio_torch.sweep.trial import Trial


def order(points: Sequence[Point], repeat: int) -> list[Point]:
    """The points in the order of a repeat: shuffled, always in the same way for the same repeat and number of points.

    Neighbours in the grid are alike; in the order of the grid a slow minute would look like an effect of an axis.
    """
    shuffled = list(points)
    random.Random(f"repeat {repeat} of {len(points)} points").shuffle(shuffled)
    return shuffled


def schedule(
    points: Sequence[Point], repeats: int, trials: Iterable[Trial] = (), failures: int = 1
) -> Iterator[tuple[Point, int]]:
    """What is to be run, one trial at a time; the caller adds each trial to ``trials`` before asking for the next.

    What is finished is not repeated.  A failed trial is tried again when the others are through, until a point has
    failed ``failures`` times: then it is given up.

    Args:
        points: of the study.
        repeats: finished trials that each point should have.
        trials: those that there are, a live view.
        failures: failed trials of a point after which it is given up.

    Yields:
        Point and number of the repeat, from 1.
    """
    while True:
        progress = False
        for repeat in range(1, repeats + 1):
            for point in order(points, repeat):
                if (point.number, repeat) not in done(trials) and failed(trials)[point.number] < failures:
                    progress = True
                    yield point, repeat
        if not progress:
            return


def remaining(points: Sequence[Point], repeats: int, trials: Iterable[Trial], failures: int = 1) -> int:
    """Trials that are still to be run, if none of them fails."""
    finished, lost = done(trials), failed(trials)
    return sum(
        (point.number, repeat) not in finished
        for point in points
        if lost[point.number] < failures
        for repeat in range(1, repeats + 1)
    )


def done(trials: Iterable[Trial]) -> set[tuple[int, int]]:
    """Point and repeat of the finished trials."""
    return {(trial.point, trial.repeat) for trial in trials if trial.status == "done"}


def failed(trials: Iterable[Trial]) -> Counter[int]:
    """Failed trials of each point."""
    return Counter(trial.point for trial in trials if trial.status == "failed")
