"""Ladder strategy: measures the maximum gain of removing each cost of the loader, and whether it is the bottleneck.

The study has one axis, the rungs of :mod:`~dlio_torch.study.strategies.ladder.rungs`.  A round runs every rung once,
in an order that changes from round to round.  If the rounds are inconclusive, as many rounds follow, and no more: see
:mod:`~dlio_torch.study.strategies.ladder.gains`.  These have all rungs of the ladder, because only times of the same
rounds can be added up, but not loader and trainer alone.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TextIO

from dlio_torch.config.compose import compose
from dlio_torch.config.schema import Config
from dlio_torch.errors import ConfigError, PreconditionError, RunFailed
from dlio_torch.files.atomic_file import replace_text
from dlio_torch.formats.core import registry
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.study.metrics import AU, FETCH, STEP, THROUGHPUT
from dlio_torch.study.model import Axis, Proposal, Study, Trial
from dlio_torch.study.page.page_content import page_content
from dlio_torch.study.resolve import resolve, scale_lines
from dlio_torch.study.store import Store
from dlio_torch.study.strategies.base import Result, Strategy, finished
from dlio_torch.study.strategies.ladder.bottleneck import inconclusive, is_bottleneck
from dlio_torch.study.strategies.ladder.effects import Effect, effects, to_json
from dlio_torch.study.strategies.ladder.ladder_console import print_ladder
from dlio_torch.study.strategies.ladder.ladder_sentences import sentences
from dlio_torch.study.strategies.ladder.rungs import AXIS, CONFIGURED, LADDER, Rung, common_settings, order, rungs
from dlio_torch.study.study_arguments import changed

if TYPE_CHECKING:
    import pandas as pd

    from dlio_torch.study.needs import StudyNeeds
    from dlio_torch.study.page.page_data import StudyData

RESULT = "headspace.json"


def plan_ladder(study: Study, *, cwd: Path | None = None) -> Ladder:
    """Plan the ladder of a configuration.

    Args:
        study: settings without an axis.
        cwd: folder that relative paths start from.

    Raises:
        ConfigError: the configuration is wrong, has an axis, or replays already; or there is a study file.
    """
    if study.definition:
        raise ConfigError(
            f"study={study.name} (command line): headspace measures a single configuration, not a study file",
            hint="run the study file with: sweep study=NAME",
        )
    if study.axes:
        axis = study.axes[0]
        raise ConfigError(
            f"{axis.key}={','.join(axis.values)} (command line): headspace measures a single configuration, and "
            "this key has several values",
            hint="give one value, or use the verb sweep",
        )
    composed = compose(study.settings, cwd=cwd, world_size=study.ranks, formats=registry.available())
    config = composed.config
    if config.loader.replay != "none":
        raise ConfigError(
            f"loader.replay={config.loader.replay} ({composed.sources['loader.replay']}): headspace sets "
            "loader.replay itself for each rung",
            hint="remove loader.replay",
        )
    ladder = rungs(config, registry.create(config.dataset, config.seed).needs_files)
    settings = {rung.name: rung.settings for rung in ladder if not rung.skipped}
    study = replace(
        study,
        title=f"headspace of {config.recipe}",
        settings=(*study.settings, *common_settings(config)),
        axes=(Axis(AXIS, tuple(settings), settings),),
        description="the maximum gain of removing each cost of the loader",
    )
    return Ladder(study, ladder, cwd=cwd)


def stored_ladder(store: Store, study: Study | None = None, *, changes: Sequence[str] = ()) -> Ladder:
    """Load the ladder in a directory.

    Args:
        store: of the directory.
        study: as requested on the command line; None: as stored.
        changes: ``key=value`` arguments that may differ from the stored ones.

    Raises:
        PreconditionError: the directory holds another kind of study.
        ConfigError: the configuration is wrong.
    """
    if [axis.key for axis in store.study.axes] != [AXIS]:
        raise PreconditionError(
            f"{store.path} contains another kind of study, not a headspace study",
            hint="name the folder of a headspace study",
        )
    return plan_ladder(study or replace(changed(store.study, changes), axes=()), cwd=store.cwd)


class Ladder(Strategy):
    """Runs rounds of all rungs, and as many additional rounds if the first rounds are inconclusive.

    Args:
        study: with the axis of the rungs.
        ladder: all rungs, those that are skipped among them.
        cwd: folder that relative paths start from.
    """

    verb: ClassVar[str] = "headspace"
    noun: ClassVar[str] = "headspace"
    requires_data: ClassVar[bool] = True
    shows_partial: ClassVar[bool] = False

    def __init__(self, study: Study, ladder: Sequence[Rung], *, cwd: Path | None = None) -> None:
        resolved, notes = resolve(study, cwd=cwd)
        # The first rung is the configuration itself.
        super().__init__(replace(study, scaled=scale_lines(resolved[:1])), resolved, notes)
        self.ladder = tuple(ladder)
        self.by_name = {name_of(point.values): point for point in self.points}
        self._extended: list[str] | None = None

    def preview(self) -> Iterator[str]:
        """The changes of each rung."""
        for rung in self.ladder:
            change = f"left out: {rung.skipped}" if rung.skipped else " ".join(rung.settings) or "nothing is changed"
            yield f"{rung.title}: {change}"
        repeats = self.study.repeats
        if repeats > 1:
            yield f"if {repeats} rounds are inconclusive: {repeats} more rounds without loader and trainer alone"

    def propose(self, trials: Sequence[Trial]) -> Proposal | None:
        """The first pending trial; a failed trial is repeated at once, until its rung is given up."""
        self._require_configured(trials)
        return next(iter(self.pending(trials)), None)

    def pending(self, trials: Sequence[Trial]) -> list[Proposal]:
        """The remaining trials of the rounds."""
        done, lost = finished(trials), self.given_up(trials)
        return [
            proposal
            for proposal in self._rounds(trials)
            if (proposal.point.number, proposal.repeat) not in done and proposal.point.number not in lost
        ]

    def title(self, trial: Trial) -> str:
        """Round and rung."""
        return f"round {trial.repeat}, {self._titles[name_of(trial.values)]}"

    def after_failure(self, trial: Trial, trials: Sequence[Trial]) -> str:
        """Returns a note if the rung is given up."""
        return "; the rung is given up" if trial.point in self.given_up(trials) else ""

    def result(self, trials: Sequence[Trial]) -> LadderResult:
        """Returns the effect of each rung."""
        rounds = self.study.repeats * (2 if self._names_of_more_rounds(trials) else 1)
        return LadderResult(self, tuple(trials), self._effects(trials, rounds), rounds)

    @cached_property
    def _titles(self) -> dict[str, str]:
        return {rung.name: rung.title for rung in self.ladder}

    def _rounds(self, trials: Sequence[Trial]) -> Iterator[Proposal]:
        repeats = self.study.repeats
        names = list(self.by_name)
        for number in range(1, repeats + 1):
            yield from (Proposal(self.by_name[name], number) for name in order(names, number))
        names = self._names_of_more_rounds(trials)
        for number in range(repeats + 1, 2 * repeats + 1) if names else ():
            yield from (Proposal(self.by_name[name], number) for name in order(names, number))

    def _names_of_more_rounds(self, trials: Sequence[Trial]) -> list[str]:
        """Names of the rungs of additional rounds; empty if the first rounds are conclusive or not yet complete."""
        repeats, done, lost = self.study.repeats, finished(trials), self.given_up(trials)
        numbers = [point.number for point in self.points if point.number not in lost]
        if repeats == 1 or any((number, repeat) not in done for number in numbers for repeat in range(1, repeats + 1)):
            return []
        if self._extended is None:
            measured = self._effects(trials, repeats)
            question = inconclusive(measured)
            names = [effect.rung.name for effect in measured if effect.rung.name in LADDER and not effect.why]
            if not question or lost.intersection(self.by_name[name].number for name in names):
                names = []
            else:
                self.say(f"{repeats} rounds cannot tell {question}: {repeats} more rounds of {len(names)} rungs")
            self._extended = names
        return self._extended

    def _require_configured(self, trials: Sequence[Trial]) -> None:
        """Raise an error if the configured run itself failed, because every effect is relative to this run."""
        local = [trial for trial in trials if name_of(trial.values) == CONFIGURED]
        if self.by_name[CONFIGURED].number in self.given_up(trials) and all(trial.failed for trial in local):
            raise RunFailed(
                f"the configuration without changes fails: {local[-1].error}",
                hint=(
                    f"see the logs in {self.store.path / 'trials'}; to try again, use --resume with "
                    f"failures={len(local) + 1}"
                ),
            )

    def _effects(self, trials: Sequence[Trial], rounds: int) -> list[Effect]:
        """The effects in the first rounds."""
        summaries: dict[str, dict[int, Any]] = {}
        errors: dict[str, str] = {}
        for trial in trials:
            name, directory = name_of(trial.values), self.store.directory(trial)
            if trial.repeat > rounds:
                continue
            if trial.failed or directory is None:
                errors[name] = trial.error or f"exit code {trial.exit_code}"
                continue
            run = RunDir(directory)
            summaries.setdefault(name, {})[trial.repeat] = run.read_json(run.summary)
        config = self.resolved[0].composed.config
        starts = reader_starts(config, self.study.ranks)
        return effects(self.ladder, summaries, errors, starts=starts, looks=2 if self.study.repeats > 1 else 1)


class LadderResult(Result):
    """The effects of the rungs.

    Attributes:
        strategy: of the study.
        trials: in the order of time.
        effects: of the ladder, then of loader and trainer alone.
        rounds: of the ladder; loader and trainer alone have as many as the study has repeats.
        sentences: the verdict, then its evidence.
    """

    def __init__(self, strategy: Ladder, trials: tuple[Trial, ...], effects: Sequence[Effect], rounds: int) -> None:
        self.strategy, self.trials, self.effects, self.rounds = strategy, trials, tuple(effects), rounds
        self.sentences = sentences(self.effects)

    def data(self) -> dict[str, Any]:
        """Plain data; ``null`` means not measured."""
        study = self.strategy.study
        return to_json(
            self.effects,
            self.sentences,
            title=study.title,
            bottleneck=is_bottleneck(self.effects),
            directory=str(self.strategy.store.path),
            settings=list(study.settings),
            scaled=list(study.scaled),
            ranks=study.ranks,
            rounds=self.rounds,
        )

    def save(self) -> None:
        """Write ``headspace.json``."""
        text = json.dumps(self.data(), indent=2, ensure_ascii=False, allow_nan=False)
        replace_text(self.strategy.store.path / RESULT, text)

    def page(self, points: pd.DataFrame, needs: StudyNeeds) -> StudyData:
        """The ladder with its verdict."""
        strategy = self.strategy
        titles = {effect.rung.name: effect.rung.title for effect in self.effects}
        [axis] = strategy.study.axes
        names = tuple(titles[name] for name in axis.values)
        return page_content(
            strategy.store,
            self.trials,
            kind="headspace",
            axes=(replace(axis, values=names, settings=None, default=titles[CONFIGURED]),),
            trials=tuple(replace(trial, values=((AXIS, titles[name_of(trial.values)]),)) for trial in self.trials),
            answer=self.sentences[0],
            metrics=(THROUGHPUT, AU, FETCH, STEP),
            planned=max(len(strategy.points) * strategy.study.repeats, len(self.trials)),
            missing=tuple(f"{effect.rung.title}: {effect.why}." for effect in self.effects if effect.why),
            ladder=tuple(effect for effect in self.effects if effect.rung.name in LADDER),
            evidence=self.sentences[1:],
        )

    def draw(self, page: StudyData, points: pd.DataFrame, stream: TextIO) -> None:
        """Print the ladder and the verdict."""
        study, directory = self.strategy.study, self.strategy.store.path
        print_ladder(self.effects, self.sentences, stream=stream, title=study.title, directory=directory)


def reader_starts(config: Config, ranks: int) -> int:
    """Number of starts of reading processes in one run; workers that are not persistent start in each epoch."""
    loader = config.loader
    epochs = 1 if loader.persistent_workers or not loader.num_workers else config.train.epochs
    return ranks * max(1, loader.num_workers) * epochs


def name_of(values: Sequence[tuple[str, str]]) -> str:
    """Name of the rung of a point or a trial."""
    return dict(values)[AXIS]
