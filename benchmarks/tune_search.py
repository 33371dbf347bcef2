"""Measures how many trials `tune` needs to find the best setting, compared with samplers of Optuna.

Every case is a finite set of loader settings whose true throughput is known; a trial adds noise.  ``planted`` are the
cases of the tests and of a DataLoader on few and many cores; ``--study DIR`` adds the points of a real sweep, whose
trials are drawn again.  Optuna's samplers have the values of each option in their order, begin with the default, and
recommend the setting of the highest median.  They stop at the budget; the search of `tune` stops by its own rule.

``trials to best``: until a setting within 2 % of the best was run; ``never`` if the budget ended before.  ``regret``:
what the recommended setting lacks to the best after so many trials, mean of all cases and seeds.  ``false gain``: of
searches among equal settings, those that confirm a gain of another setting than the default in paired trials.
"""

from __future__ import annotations

import math
import random
import statistics
from argparse import ArgumentParser, Namespace
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from benchmarks.harness.command import alone
from benchmarks.harness.tables import Missing, Part, Row, Table
from dlio_torch.study.axes import magnitude
from dlio_torch.study.model import NOT_APPLICABLE
from dlio_torch.study.store import Store
from dlio_torch.study.strategies.search.acquisition import LEAST_GAIN, Goal, Observation, best, decide
from dlio_torch.study.strategies.search.confirmation import conclusive, order, paired_gain
from dlio_torch.study.strategies.search.surrogate import Space

NAME = "tune_search"
BUDGET = 24  # of the default 30 trials of `tune`, three pairs confirm
PAIRS = 5
NEAR = 0.98
CHECKED = (8, 12, 16, 24)

Setting = dict[str, str]
Measure = Callable[[int], float]


@dataclass(frozen=True)
class Case:
    """Settings with their true throughput; ``draw`` adds the noise of a trial."""

    name: str
    settings: Sequence[Setting]
    true: Sequence[float]
    draws: Sequence[Sequence[float]] = ()

    def measure(self, chance: random.Random, noise: float) -> Measure:
        if self.draws:
            return lambda index: chance.choice(self.draws[index])
        return lambda index: self.true[index] * math.exp(chance.gauss(0, noise))


class Sampler(Protocol):
    """A sampler that proposes settings; ``None``: it stops."""

    def ask(self) -> int | None: ...

    def tell(self, index: int, value: float) -> None: ...

    def best(self) -> int: ...


class Surrogate:
    """The search of `tune`."""

    def __init__(self, settings: Sequence[Setting], seed: int) -> None:
        self.goal = Goal(Space(list(dict.fromkeys(key for one in settings for key in one)), settings))
        self.observations: list[Observation] = []

    def ask(self) -> int | None:
        return decide(self.goal, self.observations).point

    def tell(self, index: int, value: float) -> None:
        self.observations.append(Observation(index, math.log(value)))

    def best(self) -> int:
        return best(self.goal, self.observations) or 0


class Optuna:
    """A sampler of Optuna over the tree of settings; ``flat`` also draws options that do not apply."""

    def __init__(self, settings: Sequence[Setting], make: Callable[[], Any], *, flat: bool) -> None:
        import optuna

        optuna.logging.set_verbosity(optuna.logging.ERROR)
        self.settings, self.flat = settings, flat
        self.values = {key: _ordered(settings, key) for key in dict.fromkeys(key for one in settings for key in one)}
        self.study = optuna.create_study(direction="maximize", sampler=make())
        self.scores: dict[int, list[float]] = {}
        default = {
            key: settings[0].get(key, values[0])
            for key, values in self.values.items()
            if len(values) > 1 and (flat or key in settings[0])
        }
        self.study.enqueue_trial({key: self._coded(key, value) for key, value in default.items()})

    def ask(self) -> int:
        self.trial = self.study.ask()
        drawn = {key: self._drawn(key) for key in self.values} if self.flat else {}
        left = list(self.settings)
        for key in self.values:
            if any(key in one for one in left):
                value = drawn[key] if self.flat else self._drawn(key)
                left = [one for one in left if one.get(key) == value] or [one for one in left if key not in one] or left
        return self.settings.index(left[0])

    def tell(self, index: int, value: float) -> None:
        self.study.tell(self.trial, math.log(value))
        self.scores.setdefault(index, []).append(value)

    def best(self) -> int:
        return max(self.scores, key=lambda index: statistics.median(self.scores[index]))

    def _coded(self, key: str, value: str) -> int | str:
        values = self.values[key]
        return values.index(value) if magnitude(values[0]) is not None else value

    def _drawn(self, key: str) -> str:
        values = self.values[key]
        if len(values) == 1:
            return values[0]
        if magnitude(values[0]) is None:
            return str(self.trial.suggest_categorical(key, values))
        return values[self.trial.suggest_int(key, 0, len(values) - 1)]


def _ordered(settings: Sequence[Setting], key: str) -> list[str]:
    values = list(dict.fromkeys(one[key] for one in settings if key in one))
    numbers = {value: magnitude(value) for value in values}
    return values if None in numbers.values() else sorted(values, key=lambda value: numbers[value] or 0.0)


def samplers() -> Iterator[tuple[str, Callable[[Sequence[Setting], int], Sampler]] | Missing]:
    yield "tune", Surrogate
    try:
        from optuna import samplers as known
    except ImportError:
        yield Missing("samplers of Optuna", "pip install optuna")
        return
    yield "random", lambda settings, seed: Optuna(settings, lambda: known.RandomSampler(seed=seed), flat=False)
    yield "TPE", lambda settings, seed: Optuna(settings, lambda: known.TPESampler(seed=seed), flat=False)
    few: dict[str, Any] = {"n_startup_trials": 5, "multivariate": True, "group": True}
    yield (
        "TPE, multivariate, 5 first trials",
        lambda settings, seed: Optuna(settings, lambda: known.TPESampler(seed=seed, **few), flat=False),
    )
    try:
        import scipy  # noqa: F401 - only asks whether it is there
    except ImportError:
        yield Missing("GP of Optuna", "pip install scipy")
        return
    noisy: dict[str, Any] = {"n_startup_trials": 5, "deterministic_objective": False}
    yield "GP", lambda settings, seed: Optuna(settings, lambda: known.GPSampler(seed=seed, **noisy), flat=True)


def planted() -> Iterator[Case]:
    for cores in (2, 8):
        settings: list[Setting] = [{"loader": "main_process"}]
        for count in (1, 2, 4, 8)[: cores.bit_length()]:
            for ahead in ("1", "2", "4"):
                workers = {"loader.num_workers": str(count), "loader.prefetch_factor": ahead}
                threads = {"loader.read_threads": str(count), "loader.prefetch_batches": ahead}
                settings += [{"loader": "workers", **workers}, {"loader": "threads", **threads}]
        for read, transfer, compute in ((1.0, 0.05, 0.0), (3.0, 0.3, 2.0), (0.2, 1.0, 1.0), (10.0, 0.1, 1.0)):
            true = [_three_loaders(one, read, transfer, compute) for one in settings]
            yield Case(f"loaders, {cores} cores, read {read:g}", settings, true)
        settings = [{"loader.num_workers": "0"}]
        for count in (1, 2, 4, 8, 16)[: cores.bit_length() + 1]:
            for ahead in ("1", "2", "4", "8"):
                for kept in ("false", "true"):
                    names = ("loader.num_workers", "loader.prefetch_factor", "loader.persistent_workers")
                    settings.append(dict(zip(names, (str(count), ahead, kept), strict=True)))
        for read, transfer, compute, start in ((1.0, 0.1, 0.3, 0.02), (3.0, 0.3, 0.5, 0.0), (0.1, 0.5, 1.0, 0.05)):
            true = [_dataloader(one, read, transfer, compute, start, cores) for one in settings]
            yield Case(f"DataLoader, {cores} cores, read {read:g}", settings, true)


def _three_loaders(setting: Setting, read: float, transfer: float, compute: float) -> float:
    """Samples per second of a loader with given read, transfer and compute times, as in the tests."""
    if setting["loader"] == "main_process":
        return 1 / (compute + read)
    if setting["loader"] == "workers":
        count, ahead = int(setting["loader.num_workers"]), int(setting["loader.prefetch_factor"])
        return 1 / (max(compute + 0.2 * transfer, (read + transfer) / count) + 0.05 * read / ahead)
    count, ahead = int(setting["loader.read_threads"]), int(setting["loader.prefetch_batches"])
    return 1 / (max(compute, read / (1 + 0.4 * (count - 1))) + 0.1 * read / ahead)


def _dataloader(setting: Setting, read: float, transfer: float, compute: float, start: float, cores: int) -> float:
    """Throughput of a DataLoader: workers help up to the number of cores, and take time to start unless persistent."""
    count = int(setting["loader.num_workers"])
    if not count:
        return 1 / (compute + read)
    busy = min(count, cores) - 0.15 * max(0, count - cores)
    step = max(compute + 0.1 * transfer, (read + transfer) / busy)
    step += 0.05 * read / int(setting["loader.prefetch_factor"])
    return 1 / (step + (start * count if setting["loader.persistent_workers"] == "false" else 0.0))


def measured(folder: Path) -> Case:
    """The points of a real sweep; a trial is drawn from the trials of its point."""
    with Store.open(folder, write=False) as store:
        trials = [trial for trial in store.trials() if trial.figures.get("train.samples_per_s")]
        title = store.study.title
    draws: dict[tuple[tuple[str, str], ...], list[float]] = {}
    for trial in sorted(trials, key=lambda trial: trial.point):
        values = tuple(pair for pair in trial.values if pair[1] != NOT_APPLICABLE)
        draws.setdefault(values, []).append(trial.figures["train.samples_per_s"] or 0.0)
    medians = [statistics.median(rates) for rates in draws.values()]
    return Case(title, [dict(values) for values in draws], medians, list(draws.values()))


def add_arguments(parser: ArgumentParser) -> None:
    parser.add_argument("--study", type=Path, action="append", default=[], metavar="DIR", help="a finished sweep")


def run(arguments: Namespace) -> Iterator[Part]:
    seeds = range(1 if arguments.quick else arguments.rounds or 5)
    cases = list(planted())
    real = [measured(folder) for folder in arguments.study]
    for sampler in samplers():
        if isinstance(sampler, Missing):
            yield sampler
            continue
        name, make = sampler
        for noise in (0.02, 0.06):
            row = {"search": name, "noise of a trial (%)": 100 * noise, **_figures(cases, make, seeds, noise)}
            row["false gains (%)"] = 100 * _false_gains(cases, make, seeds, noise)
            yield Table("planted", [row], "Synthetic cases: regret in percent after a number of trials.")
        for case in real:
            row = {"case": case.name, "search": name, **_figures([case], make, range(4 * len(seeds)), 0.0)}
            yield Table("measured", [row], "Points of real sweeps, with their trials drawn again.")


def _figures(
    cases: Sequence[Case], make: Callable[[Sequence[Setting], int], Sampler], seeds: Sequence[int], noise: float
) -> Row:
    hits: list[int | None] = []
    counts: list[int] = []
    regrets: dict[int, list[float]] = {count: [] for count in CHECKED}
    for case in cases:
        top = max(case.true)
        for seed in seeds:
            tried, chosen = search(case, make(case.settings, seed), case.measure(random.Random(7 * seed + 1), noise))
            hits.append(next((at for at, index in enumerate(tried, 1) if case.true[index] >= NEAR * top), None))
            counts.append(len(tried))
            for count, values in regrets.items():
                values.append(1 - case.true[chosen[min(count, len(chosen)) - 1]] / top)
    return {
        "trials to best, mean": statistics.fmean(hit or BUDGET + 1 for hit in hits),
        "never (%)": 100 * sum(hit is None for hit in hits) / len(hits),
        "trials, mean": statistics.fmean(counts),
        **{f"regret at {count} (%)": 100 * statistics.fmean(values) for count, values in regrets.items()},
    }


def _false_gains(
    cases: Sequence[Case], make: Callable[[Sequence[Setting], int], Sampler], seeds: Sequence[int], noise: float
) -> float:
    confirmed = []
    for case in {len(case.settings): case for case in cases}.values():
        for seed in seeds:
            measure = Case("equal", case.settings, [1.0] * len(case.settings)).measure(random.Random(7 * seed), noise)
            _, chosen = search(case, make(case.settings, seed), measure)
            confirmed.append(chosen[-1] != 0 and confirm(chosen[-1], measure))
    return statistics.fmean(confirmed)


def search(case: Case, sampler: Sampler, measure: Measure) -> tuple[list[int], list[int]]:
    """Settings that were tried, and the recommended setting after each trial."""
    tried: list[int] = []
    chosen: list[int] = []
    while len(tried) < BUDGET and (index := sampler.ask()) is not None:
        sampler.tell(index, measure(index))
        tried.append(index)
        chosen.append(sampler.best())
    return tried, chosen


def confirm(index: int, measure: Measure) -> bool:
    """Whether paired trials confirm a gain over the default, as `tune` confirms it."""
    pairs: list[tuple[float, float]] = []
    while len(pairs) < PAIRS and not conclusive(pairs):
        values = {second: measure(index if second else 0) for second in order(len(pairs))}
        pairs.append((values[False], values[True]))
    gain = paired_gain(pairs)
    return gain is not None and gain.confirmed and gain.gain >= LEAST_GAIN


if __name__ == "__main__":
    alone(NAME)
