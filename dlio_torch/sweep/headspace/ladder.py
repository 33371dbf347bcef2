"""headspace: how much each cost of the loader could gain at the most, and whether the loader is the bottleneck at all.

It is a study with one axis, the rungs of :mod:`dlio_torch.sweep.headspace.rungs`: real runs in processes of their
own, every rung once in a round, in an order that changes from round to round.  Where these rounds cannot tell what is
asked, there are as many again of the ladder, and no more: see :mod:`dlio_torch.sweep.headspace.gains`.  All rungs of
the ladder are in them, for only times of the same rounds can be added up; the sides by themselves are not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import Config
from dlio_torch.errors import ConfigError, PreconditionError
from dlio_torch.formats.core import registry
from dlio_torch.rundir import RunDir
from dlio_torch.storage.local.atomic_file import replaced
from dlio_torch.sweep.axes import Axis
from dlio_torch.sweep.headspace.results import Measured, measured, to_json
from dlio_torch.sweep.headspace.rounds import Rounds, name_of
from dlio_torch.sweep.headspace.rungs import AXIS, LADDER, Rung, common_settings, rungs
from dlio_torch.sweep.headspace.verdict import is_bottleneck, undecided
from dlio_torch.sweep.headspace.words import words
from dlio_torch.sweep.resolve import Resolved, differing, resolve
from dlio_torch.sweep.space import Needs, needs, require_space
from dlio_torch.sweep.store import Store
from dlio_torch.sweep.study import Study
from dlio_torch.sweep.trial import Trial

RESULT = "headspace.json"


@dataclass(frozen=True)
class Headspace:
    """What was found.

    Attributes:
        study: what was run.
        directory: of the study.
        rungs: the ladder, then the sides by themselves.
        trials: the runs in the order of time.
        words: the verdict, then its evidence.
        rounds: of the ladder; those of the sides are the repeats of the study.
    """

    study: Study
    directory: Path
    rungs: tuple[Measured, ...]
    trials: tuple[Trial, ...]
    words: tuple[str, ...]
    rounds: int

    def to_json(self) -> dict[str, Any]:
        """Plain data; ``null`` means not measured."""
        return to_json(
            self.rungs,
            self.words,
            title=self.study.title,
            bottleneck=is_bottleneck(self.rungs),
            directory=str(self.directory),
            settings=list(self.study.settings),
            scaled=list(self.study.scaled),
            ranks=self.study.ranks,
            rounds=self.rounds,
        )


def plan(study: Study, *, cwd: Path | None = None) -> tuple[Study, tuple[Rung, ...]]:
    """The study of the ladder of a configuration, and its rungs.

    Args:
        study: what is asked: settings and no axis.
        cwd: folder that relative paths start from.

    Raises:
        ConfigError: the configuration is wrong, has an axis, or replays already; or there is a study file.
    """
    if study.definition:
        raise ConfigError(
            f"study={study.name} (command line): headspace takes one configuration, and no study file",
            hint="use sweep study=NAME",
        )
    if study.axes:
        raise ConfigError(
            f"{study.axes[0].key}={','.join(study.axes[0].values)} (command line): headspace takes one configuration",
            hint="give one value, or use sweep",
        )
    composed = compose(study.settings, cwd=cwd, world_size=study.ranks, formats=registry.available())
    config = composed.config
    if config.loader.replay != "none":
        raise ConfigError(
            f"loader.replay={config.loader.replay} ({composed.sources['loader.replay']}): headspace sets it itself",
            hint="leave it out",
        )
    found = rungs(config, registry.create(config.dataset, config.seed).needs_files)
    taken = {one.name: one.settings for one in found if not one.skipped}
    return (
        replace(
            study,
            title=f"headspace of {config.recipe}",
            settings=(*study.settings, *common_settings(config)),
            axes=(Axis(AXIS, tuple(taken), taken),),
            description="what each cost of the loader could gain at the most",
        ),
        found,
    )


def prepare(study: Study, runs: Path | None, *, cwd: Path | None = None) -> tuple[list[Resolved], Needs, list[str]]:
    """The points of a ladder, checked: configurations and space.

    Args:
        study: of :func:`plan`.
        runs: folder that run directories will lie in; None: below ``output.root``.
        cwd: folder that relative paths start from.

    Returns:
        The points, what they need, and what was left out, one line each.

    Raises:
        ConfigError: a configuration is wrong.
        PreconditionError: the data or the runs do not fit.
    """
    resolved, notes = resolve(study, cwd=cwd)
    found = needs(resolved, cwd=cwd)
    require_space(found, runs or Path(resolved[0].composed.config.output.root))
    return resolved, found, notes


def require_headspace(store: Store) -> None:
    """Raise where a directory is that of a sweep or a search.

    Raises:
        PreconditionError: it is.
    """
    if [axis.key for axis in store.study.axes] != [AXIS]:
        raise PreconditionError(f"{store.path} holds no headspace, but another study", hint="name the folder of one")


def require_same(store: Store, study: Study, resolved: Sequence[Resolved]) -> None:
    """Raise unless a directory holds the ladder of this configuration.

    Args:
        store: of the directory.
        study: of :func:`plan`.
        resolved: of :func:`prepare`.

    Raises:
        PreconditionError: it asks something else, or its configuration has changed.
    """
    if study.asks != store.study.asks:
        raise PreconditionError(
            f"{store.path} holds the headspace of other settings", hint=f"choose a new folder, or --resume {store.path}"
        )
    if differing(resolved, store.digests) or len(resolved) != len(store.digests):
        raise PreconditionError(
            f"the configuration is not what it was when the headspace in {store.path} began",
            hint="restore the recipe and fragments, or begin a new one",
        )


def run(
    store: Store, ladder: Sequence[Rung], resolved: Sequence[Resolved], needed: Needs, say: Callable[[str], None]
) -> Headspace:
    """Run what is left of a ladder and bring it together.

    Args:
        store: its directory.
        ladder: its rungs.
        resolved: its points.
        needed: what they need.
        say: prints one line.

    Raises:
        RunFailed: the configuration itself does not run, or its data cannot be written.
        PreconditionError: the directory cannot be written.
        KeyboardInterrupt: passed on; nothing that was finished is lost.
    """
    repeats = rounds = store.study.repeats
    runs = Rounds(store, [one.point for one in resolved], needed, say, {one.name: one.title for one in ladder})
    runs.run([name_of(one.point.values) for one in resolved], range(1, repeats + 1))
    starts = _starts(resolved[0].composed.config, store.study.ranks)
    found = _measured(store, ladder, runs.trials, repeats, starts)
    open_question = undecided(found)
    names = [one.rung.name for one in found if one.rung.name in LADDER and not one.why]
    if open_question and repeats > 1 and not runs.given_up.intersection(names):
        rounds = 2 * repeats
        say(f"{repeats} rounds cannot tell {open_question}: {repeats} more rounds of {len(names)} rungs")
        runs.run(names, range(repeats + 1, rounds + 1))
        found = _measured(store, ladder, runs.trials, rounds, starts)
    made = Headspace(store.study, store.path, tuple(found), tuple(runs.trials), words(found), rounds)
    with replaced(store.path / RESULT) as file:
        file.write(json.dumps(made.to_json(), indent=2, ensure_ascii=False, allow_nan=False).encode())
    return made


def _measured(
    store: Store, ladder: Sequence[Rung], trials: Sequence[Trial], rounds: int, starts: int
) -> list[Measured]:
    """What the first rounds say."""
    summaries: dict[str, dict[int, Any]] = {}
    errors: dict[str, str] = {}
    for trial in trials:
        name, directory = name_of(trial.values), store.directory(trial)
        if trial.repeat > rounds:
            continue
        if trial.status == "failed" or directory is None:
            errors[name] = trial.error or f"exit code {trial.exit_code}"
            continue
        run_directory = RunDir(directory)
        summaries.setdefault(name, {})[trial.repeat] = run_directory.read_json(run_directory.summary)
    return measured(ladder, summaries, errors, starts=starts, looks=2 if store.study.repeats > 1 else 1)


def _starts(config: Config, ranks: int) -> int:
    """Processes that read data, those that are started anew in each epoch counted again."""
    loader = config.loader
    again = 1 if loader.persistent_workers or not loader.num_workers else config.train.epochs
    return ranks * max(1, loader.num_workers) * again
