"""Runs what is left of a study: data sets first, then the trials, one at a time."""

from __future__ import annotations

import contextlib
import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.ownership.marker import NotOwned
from dlio_torch.ownership.removal import remove
from dlio_torch.sweep.schedule import failed, remaining, schedule
from dlio_torch.sweep.space import START_S, DataSet, Needs
from dlio_torch.sweep.store import Store
from dlio_torch.sweep.study import Point
from dlio_torch.sweep.trial import Trial, generate_data, run_trial
from dlio_torch.units import format_duration, format_size

_EVALUATED = ("train.samples_per_s", "au.mean")


@dataclass
class Runner:
    """Runs a study.

    Attributes:
        store: where its trials go.
        points: all of them.
        needs: what they need.
        say: prints one line.
        remove_data: whether data sets that this study made go when no trial needs them any more.
    """

    store: Store
    points: Sequence[Point]
    needs: Needs
    say: Callable[[str], None]
    remove_data: bool = False

    def run(self) -> list[Trial]:
        """Run what is left, and return all trials of the study.

        Failed runs are recorded and do not end the study.

        Raises:
            PreconditionError: the directory of the study cannot be written.
            KeyboardInterrupt: passed on; nothing that was finished is lost.
        """
        study, trials = self.store.study, self.store.trials()
        for data in self.needs.data:
            self._generate(data, trials)
        for point, repeat in schedule(self.points, study.repeats, trials, study.failures):
            trial = self.store.append(run_point(self.store, point, repeat))
            trials.append(trial)
            self._tell(point, trial, trials)
            self._tidy(trials)
        self._tidy(trials)
        return trials

    def left(self, trials: Sequence[Trial], points: Sequence[Point] | None = None) -> int:
        """Trials that are still to be run."""
        study = self.store.study
        return remaining(self.points if points is None else points, study.repeats, trials, study.failures)

    def _generate(self, data: DataSet, trials: list[Trial]) -> None:
        """Write a data set that a trial is going to need; its points fail where that does."""
        users = [point for point in self.points if point.number in data.points]
        if not data.missing_files or not self.left(trials, users):
            return
        if not data.folder.exists():
            self.store.note_made(data.folder)
        size = format_size(data.missing_bytes)
        self.say(f"data: writing {data.missing_files} file(s), about {size}, to {data.folder}")
        for maker in (point for point in users if point.number in data.makers):
            ended = generate_data(
                maker.settings, self.store.data_log(maker.number), ranks=maker.ranks, cwd=self.store.cwd
            )
            if not ended.exit_code:
                continue
            self.say(f"data: failed (exit code {ended.exit_code}): {ended.error}")
            for point in users:
                if failed(trials)[point.number] < self.store.study.failures:
                    trial = Trial(
                        point.settings,
                        point.number,
                        values=point.values,
                        ranks=point.ranks,
                        status="failed",
                        exit_code=ended.exit_code,
                        error=f"data: {ended.error}",
                    )
                    trials.append(self.store.append(trial))
            return

    def _tell(self, point: Point, trial: Trial, trials: Sequence[Trial]) -> None:
        left = self.left(trials)
        text = f"[{len(trials)}/{len(trials) + left}] point {point.number} ({point.label}) repeat {trial.repeat}: "
        if trial.status == "failed":
            text += f"failed (exit code {trial.exit_code}): {trial.error}"
            if failed(trials)[point.number] >= self.store.study.failures:
                text += "; the point is given up"
        else:
            text += figures_text(trial)
        if left:
            text += f"; {left} left, about {format_duration(self._expected_s(trials))}"
        self.say(text)

    def _expected_s(self, trials: Sequence[Trial]) -> float:
        """Seconds that the rest takes: as long as each point took so far, or as all did."""
        study = self.store.study
        took: dict[int, list[float]] = {}
        for trial in trials:
            if trial.status == "done":
                took.setdefault(trial.point, []).append(trial.figures.get("trial.wall_s") or 0.0)
        typical = statistics.median([one for several in took.values() for one in several] or [START_S])
        total = 0.0
        for point in self.points:
            count = remaining([point], study.repeats, trials, study.failures)
            total += count * (statistics.median(took[point.number]) if point.number in took else typical)
        return total

    def _tidy(self, trials: Sequence[Trial]) -> None:
        """Remove the data sets that this study made and no trial needs any more, where that is asked for."""
        made = self.store.made() if self.remove_data else set()
        for data in self.needs.data:
            users = [point for point in self.points if point.number in data.points]
            if data.folder.absolute() in made and data.folder.exists() and not self.left(trials, users):
                self.say(f"data: removing {data.folder}")
                _remove_data_set(data.folder)


def figures_text(trial: Trial) -> str:
    """Throughput, utilisation and duration of a finished trial, in a few words."""
    rate, au = (trial.figures.get(name) for name in _EVALUATED)
    parts = [] if rate is None else [f"{rate:.4g} samples/s"]
    parts += [] if au is None else [f"au {100 * au:.1f} %"]
    return ", ".join([*parts, format_duration(trial.figures.get("trial.wall_s") or 0.0)])


def _remove_data_set(folder: Path) -> None:
    with contextlib.suppress(OSError, NotOwned):
        remove(folder)


def run_point(store: Store, point: Point, repeat: int) -> Trial:
    """One run of a point, in a fresh directory of its study; its data set is there."""
    return run_trial(
        point.settings,
        store.fresh_directory(point.number, repeat),
        ranks=point.ranks,
        timeout_s=store.study.timeout_s,
        cwd=store.cwd,
        figures=store.study.figures,
        point=point.number,
        repeat=repeat,
        values=point.values,
    )
