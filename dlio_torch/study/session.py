"""Begins, resumes and reports a study with any strategy."""

from __future__ import annotations

import contextlib
import json
import shlex
import sys
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from dlio_torch.errors import DataError, DlioError, MissingPackageError, PreconditionError
from dlio_torch.files.atomic_file import replaced
from dlio_torch.study import tables
from dlio_torch.study.model import Trial
from dlio_torch.study.needs import StudyNeeds, needs, require_space
from dlio_torch.study.page.study_page import write_study
from dlio_torch.study.resolve import differing, resolve
from dlio_torch.study.runner import Runner
from dlio_torch.study.short_runs import short_run_lines
from dlio_torch.study.store import Store, new_directory
from dlio_torch.study.strategies.base import Result, Strategy, finished
from dlio_torch.study.strategies.grid import Grid

if TYPE_CHECKING:
    import pandas as pd

    from dlio_torch.study.page.page_data import StudyData


def begin(strategy: Strategy, output: str | None, flags: Collection[str]) -> int:
    """Run a new study; returns the exit code.

    Args:
        strategy: of the study.
        output: directory as given; None: a new one below ``output.root``.
        flags: of the command line.

    Raises:
        DlioError: too little space, or the study gave no result.
    """
    root = strategy.resolved[0].composed.config.output.root
    required = needs(strategy.resolved)
    require_space(required, Path(output or root))
    _announce(strategy, required, flags)
    if "--dry-run" in flags:
        return _preview(strategy)
    directory = Path(output) if output is not None else new_directory(root, strategy.folder_name)
    digests = {resolved.point.number: resolved.digest for resolved in strategy.resolved}
    with Store.create(directory, strategy.study, digests=digests) as store:
        return _run(_runner(store, strategy, required, flags), flags)


def resume(directory: Path, prepare: Callable[[Store], Strategy], flags: Collection[str]) -> int:
    """Continue a study; returns the exit code.

    Args:
        directory: of the study.
        prepare: makes the strategy for the study in a store.
        flags: of the command line.

    Raises:
        DlioError: the directory holds another study, its configuration has changed, or it gave no result.
    """
    with Store.open(directory) as store:
        strategy = prepare(store)
        _require_same(store, strategy)
        required = needs(strategy.resolved, cwd=store.cwd)
        require_space(required, store.path)
        done = sum(repeat <= strategy.study.repeats for _, repeat in finished(store.trials()))
        _announce(strategy, required, flags, done)
        if "--dry-run" in flags:
            return _preview(strategy)
        store.save(strategy.study)
        return _run(_runner(store, strategy, required, flags), flags)


def _require_same(store: Store, strategy: Strategy) -> None:
    """Raise an error unless a directory contains the study of a strategy.

    Raises:
        PreconditionError: it holds another study, or its configuration has changed.
    """
    if strategy.study.identity != store.study.identity:
        raise PreconditionError(
            f"{store.path} contains a {strategy.noun} with other settings or axes",
            hint=f"choose a new folder with output=, or continue that study with --resume {store.path}",
        )
    changed = differing(strategy.resolved, store.digests)
    if changed or len(strategy.resolved) != len(store.digests):
        count = f"{len(strategy.resolved)} points instead of {len(store.digests)}"
        raise PreconditionError(
            f"the configuration has changed since the {strategy.noun} in {store.path} began: "
            f"{changed[0].label if changed else count}",
            hint=f"restore the recipe, the fragments and the machine, or begin a new {strategy.noun}",
        )


def _announce(strategy: Strategy, required: StudyNeeds, flags: Collection[str], done: int = 0) -> None:
    """Print the plan of a study, and warnings; the plan is the result of a dry run, and otherwise a note."""
    shows_plan = "--quiet" not in flags or "--dry-run" in flags
    plan = strategy.plan(required, done) if shows_plan else ()
    for line in (*plan, *strategy.warnings(required), *short_run_lines(required.short_runs)):
        say(line)


def _runner(store: Store, strategy: Strategy, required: StudyNeeds, flags: Collection[str]) -> Runner:
    return Runner(store, strategy, required, say, "--remove-data" in flags, "--quiet" in flags)


def _preview(strategy: Strategy) -> int:
    for line in strategy.preview():
        print(line)
    return 0


def _run(runner: Runner, flags: Collection[str]) -> int:
    strategy, path = runner.strategy, runner.store.path
    if "--quiet" not in flags:
        say(f"{strategy.noun} in {path}")
    try:
        trials = runner.run()
    except BaseException:
        command = f"python -m dlio_torch {strategy.verb} --resume {shlex.quote(str(path))}"
        say(f"the {strategy.noun} can be resumed: {command}")
        if strategy.shows_partial:
            with contextlib.suppress(DlioError):  # the user has to see the error that ended the study
                _write(runner, runner.store.trials())
        raise
    result = _write(runner, trials, flags)
    result.check()
    return 0


def _write(runner: Runner, trials: Sequence[Trial], flags: Collection[str] | None = None) -> Result:
    """Write tables, result and page; print the result if flags are given."""
    strategy, store = runner.strategy, runner.store
    axes = strategy.study.axes
    result = strategy.result(trials)
    points = tables.points_table(trials, axes, strategy.points)
    notes = tables.write_tables(store.path, tables.trials_table(trials, axes), points, axes)
    result.save()
    page = result.page(points, runner.needs)
    page = replace(page, missing=(*page.missing, *notes))
    try:
        write_study(page, store.report)
        report = f"Report: {store.report}"
    except MissingPackageError as error:
        report = f"report.html was not written: {error}"
    if flags is None:
        return result
    for note in notes:
        say(note)
    data = result.data()
    if "--json" in flags and data is not None:
        print(json.dumps(data, indent=2, ensure_ascii=False, allow_nan=False))
        say(report)
    else:
        result.draw(page, points, sys.stdout)
        print(f"Tables: {store.path / 'table.csv'}\n{report}", flush=True)
    return result


def write_page(directory: Path, target: Path | None = None) -> Path:
    """Write the page of a study, finished or not; returns the file.

    The page of a search or a headspace holds more than its directory: the one that the verb wrote is copied.

    Raises:
        DlioError: the study cannot be read, or its configuration has changed.
    """
    if any((directory / name).is_file() for name in ("tune.json", "headspace.json")):
        page = directory / "report.html"
        if not page.is_file():
            raise DataError(
                f"{page} does not exist",
                hint="repeat the command of the study with output= and the folder of the study",
            )
        if target is not None:
            with replaced(target) as file:
                file.write(page.read_bytes())
        return target or page
    with Store.open(directory, write=False) as store:
        page_data, _ = read_sweep(store)
        return write_study(page_data, target or store.report)


def read_sweep(store: Store) -> tuple[StudyData, pd.DataFrame]:
    """Content of the page of a sweep, finished or not, and its points (:func:`dlio_torch.study.tables.points_table`).

    Raises:
        DlioError: its configuration has changed.
    """
    strategy = Grid(store.study, *resolve(store.study, cwd=store.cwd))
    strategy.start(store, say)
    trials = store.trials()
    points = tables.points_table(trials, store.study.axes, strategy.points)
    return strategy.result(trials).page(points, needs(strategy.resolved, cwd=store.cwd)), points


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)
