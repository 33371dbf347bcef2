"""The runs of the verb tune, and what they leave."""

from __future__ import annotations

import shlex
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path

from dlio_torch.commands.arguments import Command
from dlio_torch.commands.common import as_json
from dlio_torch.config.compose import split_argument
from dlio_torch.environment.machine import describe
from dlio_torch.errors import ConfigError, MissingPackageError, PreconditionError, RunFailed, ThresholdMissed
from dlio_torch.sweep import table
from dlio_torch.sweep.resolve import Resolved, differing
from dlio_torch.sweep.runner import run_point
from dlio_torch.sweep.space import Needs, needs, require_space
from dlio_torch.sweep.store import Store, new_directory
from dlio_torch.sweep.trial import Trial, generate_data
from dlio_torch.sweep.tune import page as tune_page
from dlio_torch.sweep.tune import state as tune_state
from dlio_torch.sweep.tune import text as tune_text
from dlio_torch.sweep.tune.costs import Host
from dlio_torch.sweep.tune.request import Request, parse_request
from dlio_torch.sweep.tune.space import Given, SearchSpace, given_points, search_space
from dlio_torch.sweep.tune.tuner import Found, Tuner
from dlio_torch.sweep.tune.verdict import Verdict, verdict

_CHANGEABLE = ("minutes", "trials", "repeats", "timeout")


def begin(command: Command, request: Request, given: Given) -> int:
    """Begin a search; returns the exit code.

    Args:
        command: the command line.
        request: what is asked.
        given: the points that its arguments stand for.

    Raises:
        DlioError: too little room, every run failed, or a utilisation that was asked for is not reached.
    """
    root = Path(request.output or given.default.composed.config.output.root)
    space, found = _prepared(request, given, root, None)
    _say("\n".join(tune_text.plan(request, space, found)))
    if "--dry-run" in command.flags:
        return 0
    place = Path(request.output) if request.output is not None else new_directory(root, f"tune_{request.study.name}")
    with Store.create(place, space.study, digests=_digests(space)) as store:
        state = tune_state.save(store.path, tune_state.State(command.settings))
        return _run(command, request, space, found, store, state)


def _again(place: Path, settings: tuple[str, ...]) -> tuple[str, ...]:
    """The arguments that a search was begun with, and those that may be other ones now."""
    for argument in settings:
        if split_argument(argument)[0] not in _CHANGEABLE:
            raise ConfigError(
                f"{argument} (command line): what a search asks cannot be changed while it is resumed",
                hint=f"only {', '.join(f'{key}=' for key in _CHANGEABLE)} can; begin another search for the rest",
            )
    return (*tune_state.load(place).arguments, *settings)


def resume(command: Command, place: Path, *, named: bool) -> int:
    """Go on with a search; returns the exit code.

    Args:
        command: the command line.
        place: folder of the search.
        named: whether ``--resume`` names it, so that what it asks is not said again.

    Raises:
        DlioError: as :func:`begin`; or it asks something else, or has changed.
    """
    arguments = _again(place, command.settings) if named else command.settings
    with Store.open(place) as store:
        state = tune_state.load(store.path)
        request, before = parse_request(arguments, cwd=store.cwd), parse_request(state.arguments, cwd=store.cwd)
        given = given_points(request, cwd=store.cwd)
        space, found = _prepared(request, given, place, store.cwd)
        asks = request.objective, request.min_au
        if asks != (before.objective, before.min_au) or space.study.asks != store.study.asks:
            raise PreconditionError(
                f"{place} holds a search that asks something else", hint=f"choose a new folder, or --resume {place}"
            )
        if differing(space.points, store.digests) or len(space.points) != len(store.digests):
            raise PreconditionError(
                f"the settings to choose from are not what they were when the search in {place} began",
                hint="restore recipe, fragments and machine, or begin a new search",
            )
        _say("\n".join(tune_text.plan(request, space, found)))
        if "--dry-run" in command.flags:
            return 0
        store.save(space.study)
        state = tune_state.save(store.path, replace(state, arguments=arguments))
        return _run(command, request, space, found, store, state)


def _prepared(request: Request, given: Given, place: Path, cwd: Path | None) -> tuple[SearchSpace, Needs]:
    space = search_space(request, _host(), given, cwd=cwd)
    found = needs(space.points, cwd=cwd)
    require_space(found, place)
    return space, found


def _host() -> Host:
    import torch

    about = describe({})
    memory = [size for size in (about["memory"]["total_bytes"], about["memory"]["limit_bytes"]) if size]
    return Host(
        cores=max(1, int(about["cpu"]["cores_usable"])),
        gpus=torch.cuda.is_available(),
        memory_bytes=float(min(memory, default=1 << 33)),
    )


def _run(
    command: Command, request: Request, space: SearchSpace, found: Needs, store: Store, state: tune_state.State
) -> int:
    _say(f"search in {store.path}")
    tuner = Tuner(request, space, store, state, _Measure(store, found), _say)
    try:
        result = tuner.run()
    except BaseException:
        _say(f"the search can go on: python -m dlio_torch tune --resume {shlex.quote(str(store.path))}")
        _write(tuner, found, tuner.found())
        raise
    said, notes = _write(tuner, found, result)
    if "--json" in command.flags:
        print(as_json(tune_state.load(store.path).result), end="")
    else:
        tune_text.print_result(request, space, result, said, tune_page.advice(space, said), stream=sys.stdout)
        print("\n".join(notes), flush=True)
    if said.recommended is None:
        raise RunFailed(
            f"no run of the search in {store.path} succeeded: {result.trials[-1].error}", hint="see trials/"
        )
    if said.missed:
        raise ThresholdMissed(said.words.rstrip("."), hint="see the report; other storage, or less to read a step")
    return 0


def _write(tuner: Tuner, needed: Needs, result: Found) -> tuple[Verdict, list[str]]:
    """Tables, page and the result for programs; returns the verdict and what to say of the files."""
    from dlio_torch.report.html.study.report import write_study

    request, space, store = tuner.request, tuner.space, tuner.store
    said = verdict(request, space, result)
    axes = space.study.axes
    points = table.points_table(result.trials, axes, [one.point for one in space.points])
    notes = table.write_tables(store.path, table.trials_table(result.trials, axes), points, axes)
    tuner.state = tune_state.save(
        store.path, replace(tuner.state, result=tune_page.as_data(request, space, result, said))
    )
    notes.append(f"Tables: {store.path / 'table.csv'}")
    try:
        write_study(tune_page.study_data(store, request, space, result, said, points, needed), store.report)
        notes.append(f"Report: {store.report}")
    except MissingPackageError as error:
        notes.append(f"report.html is left out: {error}")
    return said, notes


def _digests(space: SearchSpace) -> dict[int, str]:
    return {one.point.number: one.digest for one in space.points}


@dataclass
class _Measure:
    """Runs a point in a process of its own, after writing the data set that it lacks."""

    store: Store
    needed: Needs
    ready: set[Path] = field(default_factory=set)

    def __call__(self, one: Resolved, repeat: int) -> Trial:
        point = one.point
        for data in self.needed.data:
            if point.number in data.points and data.missing_files and data.folder not in self.ready:
                _say(f"data: writing {data.folder}")
                if not data.folder.exists():
                    self.store.note_made(data.folder)
                ended = generate_data(
                    point.settings, self.store.data_log(point.number), ranks=point.ranks, cwd=self.store.cwd
                )
                if ended.exit_code:
                    return Trial(
                        point.settings,
                        point.number,
                        repeat,
                        point.values,
                        point.ranks,
                        status="failed",
                        exit_code=ended.exit_code,
                        error=f"data: {ended.error}",
                    )
                if len(data.makers) == 1:  # several amounts in one folder: each writes its own part
                    self.ready.add(data.folder)
        return run_point(self.store, point, repeat)


def _say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)
