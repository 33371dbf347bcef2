"""Runs the rungs of a ladder round by round; what is finished is not repeated."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from dlio_torch.errors import RunFailed
from dlio_torch.sweep.headspace.rungs import AXIS, CONFIGURED, order
from dlio_torch.sweep.runner import figures_text, run_point
from dlio_torch.sweep.schedule import done, failed
from dlio_torch.sweep.space import START_S, Needs
from dlio_torch.sweep.store import Store
from dlio_torch.sweep.study import Point
from dlio_torch.sweep.trial import Trial, generate_data
from dlio_torch.units import format_duration, format_size


@dataclass
class Rounds:
    """The runs of a ladder.

    Attributes:
        store: where they go.
        points: of the rungs.
        needs: what they need.
        say: prints one line.
        titles: what each rung is called, by its name.
        trials: all runs in the order of time, those of earlier processes among them.
    """

    store: Store
    points: Sequence[Point]
    needs: Needs
    say: Callable[[str], None]
    titles: Mapping[str, str]
    trials: list[Trial] = field(init=False)

    def __post_init__(self) -> None:
        self.trials = self.store.trials()
        self._has_data = False

    def run(self, names: Collection[str], numbers: Sequence[int]) -> None:
        """Run what is left of some rounds.

        A run that fails is tried again at once, until its rung has failed as often as the study allows: then the
        rung is given up.

        Args:
            names: rungs of each of these rounds.
            numbers: of the rounds.

        Raises:
            RunFailed: the data cannot be written, or the configuration itself does not run.
            PreconditionError: the directory of the study cannot be written.
            KeyboardInterrupt: passed on; nothing that was finished is lost.
        """
        by_name = {name_of(point.values): point for point in self.points}
        planned = [(by_name[name], number) for number in numbers for name in order(names, number)]
        self._require_configured()
        if self._left(planned) and not self._has_data:
            self._write_data()
            self._has_data = True
        for point, number in planned:
            while self._left([(point, number)]):
                trial = self.store.append(run_point(self.store, point, number))
                self.trials.append(trial)
                self._tell(trial, planned)
                self._require_configured()

    @property
    def given_up(self) -> set[str]:
        """Rungs that failed so often that they are not run again."""
        lost = failed(self.trials)
        return {name_of(one.values) for one in self.points if lost[one.number] >= self.store.study.failures}

    def _left(self, planned: Sequence[tuple[Point, int]]) -> list[Point]:
        """Points of the runs that are still to be made, if none of them fails."""
        finished, lost = done(self.trials), self.given_up
        return [
            point
            for point, number in planned
            if (point.number, number) not in finished and name_of(point.values) not in lost
        ]

    def _require_configured(self) -> None:
        """Raise where the configuration itself was given up: all that is found is found by comparison with it."""
        mine = [trial for trial in self.trials if name_of(trial.values) == CONFIGURED]
        if CONFIGURED in self.given_up and all(trial.status == "failed" for trial in mine):
            raise RunFailed(
                f"the configuration does not run: {mine[-1].error}",
                hint=f"see {self.store.path / 'trials'}; --resume with failures={len(mine) + 1} tries again",
            )

    def _write_data(self) -> None:
        """Write the data set that the rungs read; they are all of one."""
        for data in self.needs.data:
            if not data.missing_files:
                continue
            maker = next(point for point in self.points if point.number in data.makers)
            if not data.folder.exists():
                self.store.note_made(data.folder)
            size = format_size(data.missing_bytes)
            self.say(f"data: writing {data.missing_files} file(s), about {size}, to {data.folder}")
            log = self.store.data_log(maker.number)
            ended = generate_data(maker.settings, log, ranks=maker.ranks, cwd=self.store.cwd)
            if ended.exit_code:
                raise RunFailed(f"the data cannot be written: {ended.error}", hint=f"see {log}")

    def _tell(self, trial: Trial, planned: Sequence[tuple[Point, int]]) -> None:
        left = self._left(planned)
        title = self.titles[name_of(trial.values)]
        text = f"[{len(self.trials)}/{len(self.trials) + len(left)}] round {trial.repeat}, {title}: "
        if trial.status == "failed":
            text += f"failed (exit code {trial.exit_code}): {trial.error}"
            if name_of(trial.values) in self.given_up:
                text += "; the rung is given up"
        else:
            text += figures_text(trial)
        if left:
            text += f"; {len(left)} left, about {format_duration(self._expected_s(left))}"
        self.say(text)

    def _expected_s(self, left: Sequence[Point]) -> float:
        """Seconds that these runs take: as long as each rung took so far, or as all did."""
        took: dict[int, list[float]] = {}
        for trial in self.trials:
            if trial.status == "done":
                took.setdefault(trial.point, []).append(trial.figures.get("trial.wall_s") or 0.0)
        middle: Mapping[int, float] = {number: statistics.median(times) for number, times in took.items()}
        typical = statistics.median(middle.values()) if middle else START_S
        return sum(middle.get(point.number, typical) for point in left)


def name_of(values: Sequence[tuple[str, str]]) -> str:
    """Name of the rung of a point or a trial."""
    return dict(values)[AXIS]
