"""Grid strategy: runs every point ``repeats`` times.

Every point runs once before any point runs again, so that drift of the machine affects all alike.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar, TextIO

from dlio_torch.errors import RunFailed
from dlio_torch.report.terminal import write
from dlio_torch.study.model import Point, Proposal, Study, Trial
from dlio_torch.study.page.page_content import page_content, precautions, published_content
from dlio_torch.study.resolve import Resolved, resolve, scale_lines
from dlio_torch.study.strategies.base import Result, Strategy, failures, finished
from dlio_torch.study.study_console import draw_points

if TYPE_CHECKING:
    import pandas as pd

    from dlio_torch.study.needs import StudyNeeds
    from dlio_torch.study.page.page_data import StudyData


def prepare_grid(study: Study, *, cwd: Path | None = None) -> Grid:
    """Prepare the grid of a study.

    Raises:
        ConfigError: a value that cannot be used at any point.
    """
    return Grid(study, *resolve(study, cwd=cwd))


class Grid(Strategy):
    """Every point, ``repeats`` times each."""

    verb: ClassVar[str] = "sweep"
    noun: ClassVar[str] = "study"

    def __init__(self, study: Study, resolved: Sequence[Resolved], notes: Sequence[str] = ()) -> None:
        super().__init__(replace(study, scaled=scale_lines(resolved)), resolved, notes)

    @property
    def folder_name(self) -> str:
        """Name of the study."""
        return self.study.name

    @property
    def planned(self) -> int:
        """Trials of the whole study."""
        return len(self.points) * self.study.repeats

    def warnings(self, needs: StudyNeeds) -> tuple[str, ...]:
        """Returns a warning if the data are smaller than the publication's data."""
        return precautions(self.study, needs)

    def propose(self, trials: Sequence[Trial]) -> Proposal | None:
        """The first pending trial."""
        return next(iter(self.pending(trials)), None)

    def pending(self, trials: Sequence[Trial]) -> list[Proposal]:
        """The trials that are still to run."""
        return pending_trials(self.points, self.study.repeats, trials, self.study.failures)

    def result(self, trials: Sequence[Trial]) -> GridResult:
        """The points with their trials."""
        return GridResult(self, tuple(trials))


class GridResult(Result):
    """The points of a grid with their trials.

    Args:
        strategy: of the study.
        trials: in the order of time.
    """

    def __init__(self, strategy: Grid, trials: tuple[Trial, ...]) -> None:
        self.strategy, self.trials = strategy, trials

    def page(self, points: pd.DataFrame, needs: StudyNeeds) -> StudyData:
        """Points, axes, and published figures."""
        store = self.strategy.store
        content = page_content(store, self.trials, kind="sweep", planned=self.strategy.planned)
        return published_content(content, store, points, needs)

    def draw(self, page: StudyData, points: pd.DataFrame, stream: TextIO) -> None:
        """Print the points, best first, and the published statements."""
        write(stream, lambda console: draw_points(console, self.strategy.study, points))
        for statement in page.statements:
            print(f"published: {statement.text}\n  {statement.verdict}: {statement.words}", file=stream)

    def check(self) -> None:
        """Raise an error if no run succeeded."""
        if all(trial.failed for trial in self.trials):
            raise RunFailed(
                f"no run of the study in {self.strategy.store.path} succeeded: {self.trials[-1].error}",
                hint="see the errors in trials.csv of this folder",
            )


def pending_trials(
    points: Sequence[Point], repeats: int, trials: Sequence[Trial], most_failures: int = 1
) -> list[Proposal]:
    """The trials that are still to run, in their order.

    A finished trial is not repeated.  A failed trial is tried again after the others, until its point has failed
    ``most_failures`` times; then the point is given up.

    Args:
        points: of the study.
        repeats: finished trials that each point should have.
        trials: all trials so far.
        most_failures: failed trials of a point after which it is given up.
    """
    done, lost = finished(trials), failures(trials)
    attempts = Counter((trial.point, trial.repeat) for trial in trials)
    pending = [
        Proposal(point, repeat)
        for repeat in range(1, repeats + 1)
        for point in shuffled(points, repeat)
        if (point.number, repeat) not in done and lost[point.number] < most_failures
    ]
    return sorted(pending, key=lambda proposal: attempts[proposal.point.number, proposal.repeat])


def shuffled(points: Sequence[Point], repeat: int) -> list[Point]:
    """Returns the points in the random order of a repeat, which depends only on the repeat and the number of points.

    Neighbours in the grid are alike: in the order of the grid a slow minute would look like an effect of an axis.
    """
    order = list(points)
    random.Random(f"repeat {repeat} of {len(points)} points").shuffle(order)
    return order
