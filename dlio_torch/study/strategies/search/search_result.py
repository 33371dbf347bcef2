"""The result of a search: best point, gain, verdict, and the settings to copy."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, TextIO

from dlio_torch.errors import RunFailed, ThresholdMissed
from dlio_torch.study.model import NOT_APPLICABLE, Trial
from dlio_torch.study.page.page_content import page_content
from dlio_torch.study.page.page_data import SearchSummary, StudyData
from dlio_torch.study.store import Store
from dlio_torch.study.strategies.base import Result
from dlio_torch.study.strategies.search import search_state
from dlio_torch.study.strategies.search.acquisition import CHANCE, Goal, Observations, best
from dlio_torch.study.strategies.search.confirmation import METHOD, PairedGain, paired_gain
from dlio_torch.study.strategies.search.copy_blocks import CopyBlocks, copy_blocks
from dlio_torch.study.strategies.search.objective import figure, observation
from dlio_torch.study.strategies.search.search_console import print_search
from dlio_torch.study.strategies.search.search_request import SearchRequest
from dlio_torch.study.strategies.search.search_space import SearchSpace
from dlio_torch.study.strategies.search.search_state import State
from dlio_torch.study.strategies.search.search_verdict import SearchVerdict, search_verdict
from dlio_torch.study.strategies.search.surrogate import importance
from dlio_torch.study.verb_keys import OBJECTIVES

if TYPE_CHECKING:
    import pandas as pd

    from dlio_torch.study.needs import StudyNeeds

_LEAST_TRIED = 4


@dataclass(frozen=True, eq=False)
class SearchResult(Result):
    """The result of a search, finished or not.

    Attributes:
        request: arguments of the search.
        space: its points.
        state: progress of the search.
        trials: in the order of time.
        goal: of the search.
        store: of the directory.
    """

    request: SearchRequest
    space: SearchSpace
    state: State
    trials: tuple[Trial, ...]
    goal: Goal
    store: Store

    @property
    def searched(self) -> int:
        """Trials of the search; later trials belong to the confirmation."""
        return len(self.trials) if self.state.searched is None else self.state.searched

    @property
    def finished(self) -> bool:
        """Whether the search has ended."""
        return self.state.searched is not None

    @property
    def tried(self) -> int:
        """Points that the search ran."""
        return len({trial.point for trial in self.trials[: self.searched]})

    @cached_property
    def observations(self) -> Observations:
        """Observations of the trials, by point."""
        return Observations.of(observation(trial, self.request) for trial in self.trials)

    @property
    def noise(self) -> float:
        """Standard deviation of the logarithm of a single trial's figure."""
        return self.observations.noise

    @cached_property
    def chosen(self) -> int | None:
        """Index of the best point; 0 is the default; ``None``: every trial failed."""
        if self.state.chosen is not None:
            return self.state.chosen - 1
        return best(self.goal, [observation(trial, self.request) for trial in self.trials[: self.searched]])

    @cached_property
    def gain(self) -> PairedGain | None:
        """Gain of the best point over the default; ``None``: not confirmed."""
        return paired_gain(completed_pairs(self.request, self.state, self.trials))

    @cached_property
    def verdict(self) -> SearchVerdict:
        """The answer of the search in words."""
        return search_verdict(self)

    @cached_property
    def copy_blocks(self) -> CopyBlocks | None:
        """The recommended setting in every form in which it can be copied; ``None``: there is none."""
        if self.verdict.recommended is None:
            return None
        keys = tuple(axis.key for axis in self.space.study.axes)
        return copy_blocks(self.space.points[0], self.space.points[self.verdict.recommended], keys)

    @cached_property
    def importance(self) -> dict[str, float] | None:
        """Share of each key in the scatter of the expected figure; ``None``: too few points were tried."""
        if len(self.observations.scores) < _LEAST_TRIED:
            return None
        values = {
            axis.key: [dict(resolved.point.values).get(axis.key, NOT_APPLICABLE) for resolved in self.space.points]
            for axis in self.space.study.axes
        }
        return importance(self.goal.space, values, self.observations.means(), self.noise)

    def data(self) -> dict[str, Any]:
        """The result for programs."""
        request, space, verdict, blocks, gain = self.request, self.space, self.verdict, self.copy_blocks, self.gain
        recommended = None if verdict.recommended is None else space.points[verdict.recommended].point
        return {
            "objective": request.objective,
            "scaled": list(space.study.scaled),
            "min_au": request.min_au if request.objective == "resources" else None,
            "answer": verdict.sentence,
            "missed": verdict.missed,
            "finished": self.finished,
            "points": len(space.points),
            "points_tried": len({trial.point for trial in self.trials}),
            "runs": len(self.trials),
            "runs_of_search": self.searched,
            "wall_s": sum(trial.wall_s or 0.0 for trial in self.trials),
            "stopped": self.state.stopped,
            "rule": f"stops when the chance of every untried setting to win by more than the noise is below {CHANCE:g}",
            "noise": self.noise,
            "recommended": None
            if recommended is None or blocks is None
            else {
                "point": recommended.number,
                "default": verdict.recommended == 0,
                "values": dict(recommended.values),
                "settings": dict(blocks.settings),
                "dotlist": blocks.dotlist,
                "blocks": dict(blocks.blocks),
            },
            "gain": None
            if gain is None
            else {
                "figure": request.figure,
                "point": None if self.chosen is None else self.chosen + 1,
                "median": gain.gain,
                "low": gain.low,
                "high": gain.high,
                "pairs": [list(pair) for pair in gain.pairs],
                "how": METHOD,
            },
            "importance": self.importance,
        }

    def save(self) -> None:
        """Write the result into ``tune.json``."""
        search_state.save(self.store.path, replace(self.state, result=self.data()))

    def page(self, points: pd.DataFrame, needs: StudyNeeds) -> StudyData:
        """Search, confirmation and recommendation."""
        request, verdict = self.request, self.verdict
        content = page_content(
            self.store,
            self.trials,
            kind="tune",
            answer=verdict.sentence,
            description=f"Which setting gives the best {OBJECTIVES[request.objective]}?"
            if request.objective != "resources"
            else f"Which is the cheapest setting ({OBJECTIVES['resources']}: {request.min_au:g})?",
            search=SearchSummary(
                budget=request.budget,
                stopped=self.state.stopped,
                importance=self.importance,
                grid_size=len(self.space.points),
                chosen=None if self.chosen is None else self.chosen + 1,
            ),
            confirmation=self.gain,
            recommendation=self.copy_blocks,
            recommended=None if verdict.recommended is None else verdict.recommended + 1,
        )
        defaults = dict(self.space.points[0].point.values)
        return replace(content, axes=tuple(replace(axis, default=defaults.get(axis.key)) for axis in content.axes))

    def draw(self, page: StudyData, points: pd.DataFrame, stream: TextIO) -> None:
        """Print the answer, its evidence and the blocks to copy."""
        print_search(self, stream)

    def check(self) -> None:
        """Raise an error if every trial failed, or the requested utilisation is not reached."""
        if self.verdict.recommended is None:
            raise RunFailed(
                f"no run of the search in {self.store.path} succeeded: {self.trials[-1].error}",
                hint="see the logs in the folder trials/ of the study",
            )
        if self.verdict.missed:
            raise ThresholdMissed(
                self.verdict.sentence.rstrip("."), hint="see the report; use faster storage, or read less data per step"
            )


def completed_pairs(request: SearchRequest, state: State, trials: Sequence[Trial]) -> list[tuple[float, float]]:
    """Figures of the default and of the chosen point in each complete pair without a failed trial."""
    if state.searched is None:
        return []
    confirming = trials[state.searched :]
    pairs = []
    for first, second in zip(confirming[::2], confirming[1::2], strict=False):
        default, chosen = (first, second) if first.point == 1 else (second, first)
        values = figure(default, request), figure(chosen, request)
        if values[0] is not None and values[1] is not None:
            pairs.append((values[0], values[1]))
    return pairs
