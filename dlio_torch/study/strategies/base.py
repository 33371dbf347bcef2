"""The contract of a strategy: it proposes the next trial from the history of trials, and evaluates the result.

A strategy is a function of the trials so far.  A study that was interrupted therefore continues as if it had not been.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from dlio_torch.study.model import Point, Proposal, Study, Trial
from dlio_torch.study.resolve import Resolved
from dlio_torch.study.study_console import estimate

if TYPE_CHECKING:
    import pandas as pd

    from dlio_torch.study.needs import StudyNeeds
    from dlio_torch.study.page.page_data import StudyData
    from dlio_torch.study.store import Store


class Result(ABC):
    """The result of a study, finished or not."""

    def data(self) -> dict[str, Any] | None:
        """Returns the result as data for programs; ``None`` if there are only tables."""
        return None

    def save(self) -> None:  # noqa: B027 - not every result has a file of its own
        """Write the data for programs to the directory of the study."""

    @abstractmethod
    def page(self, points: pd.DataFrame, needs: StudyNeeds) -> StudyData:
        """Returns the content of the page.

        Args:
            points: of :func:`dlio_torch.study.tables.points_table`.
            needs: of the points.
        """

    @abstractmethod
    def draw(self, page: StudyData, points: pd.DataFrame, stream: TextIO) -> None:
        """Print the result."""

    def check(self) -> None:  # noqa: B027 - a finished ladder always has a result
        """Raise an error if the study gave no result, or missed a requested threshold.

        Raises:
            RunFailed: no run succeeded.
            ThresholdMissed: a requested value was not reached.
        """


class Strategy(ABC):
    """A prepared study: its points, which trial comes next, and the result.

    Attributes:
        verb: the verb of the command line.
        noun: name of such a study in messages.
        requires_data: whether the study ends if a data set cannot be written; else only its points fail.
        shows_partial: whether an interrupted study has tables and a page.
        study: the study with all axes.
        resolved: its points.
        notes: what was left out, one line each.
    """

    verb: ClassVar[str]
    noun: ClassVar[str]
    requires_data: ClassVar[bool] = False
    shows_partial: ClassVar[bool] = True

    def __init__(self, study: Study, resolved: Sequence[Resolved], notes: Sequence[str] = ()) -> None:
        self.study = study
        self.resolved = tuple(resolved)
        self.notes = tuple(notes)
        self.say: Callable[[str], None] = lambda line: None

    @property
    def points(self) -> list[Point]:
        """The points that can be run."""
        return [resolved.point for resolved in self.resolved]

    @property
    def folder_name(self) -> str:
        """Name of the folder of results below ``output.root``/sweeps."""
        return f"{self.verb}_{self.study.name}"

    def plan(self, needs: StudyNeeds, done: int = 0) -> Iterator[str]:
        """Returns the lines of the plan that are printed before the study starts.

        Args:
            needs: of the points.
            done: trials that are finished.
        """
        return estimate(self.study, self.points, needs, self.notes, done)

    def warnings(self, needs: StudyNeeds) -> tuple[str, ...]:
        """Lines that warn before the study starts.

        Args:
            needs: of the points.
        """
        return ()

    def preview(self) -> Iterator[str]:
        """Further lines of a dry run."""
        return iter(())

    def start(self, store: Store, say: Callable[[str], None]) -> None:
        """Begin to run in a directory, or to continue.

        Args:
            store: of the directory.
            say: prints one line.
        """
        self.store, self.say = store, say

    @abstractmethod
    def propose(self, trials: Sequence[Trial]) -> Proposal | None:
        """Returns the next trial; ``None``: the study is finished.

        Args:
            trials: all trials so far in the order of time.

        Raises:
            RunFailed: the study cannot give a result any more.
        """

    def pending(self, trials: Sequence[Trial]) -> list[Proposal]:
        """Returns the known trials that are still to run, if no trial fails."""
        return []

    def title(self, trial: Trial) -> str:
        """Returns the name of a trial in progress lines."""
        point = next(point for point in self.points if point.number == trial.point)
        return f"point {point.number} ({point.label}) repeat {trial.repeat}"

    def after_failure(self, trial: Trial, trials: Sequence[Trial]) -> str:
        """Returns the consequence of a failed trial for its progress line; ``""``: none."""
        return "; the point is given up" if trial.point in self.given_up(trials) else ""

    def outlook(self, trials: Sequence[Trial]) -> str | None:
        """Returns the end of a progress line; ``None``: number and time of the pending trials."""
        return None

    def given_up(self, trials: Iterable[Trial]) -> set[int]:
        """Points that failed as often as the study allows."""
        return {point for point, count in failures(trials).items() if count >= self.study.failures}

    @abstractmethod
    def result(self, trials: Sequence[Trial]) -> Result:
        """Returns the result of these trials."""


def finished(trials: Iterable[Trial]) -> set[tuple[int, int]]:
    """Point and repeat of the finished trials."""
    return {(trial.point, trial.repeat) for trial in trials if not trial.failed}


def failures(trials: Iterable[Trial]) -> Counter[int]:
    """Failed trials of each point."""
    return Counter(trial.point for trial in trials if trial.failed)
