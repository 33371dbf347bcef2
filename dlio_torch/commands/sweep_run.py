"""The runs of the verb sweep, and what they leave."""

from __future__ import annotations

import contextlib
import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlio_torch.commands.arguments import Command
from dlio_torch.errors import DataError, DlioError, MissingPackageError, PreconditionError, RunFailed
from dlio_torch.report.terminal import write
from dlio_torch.storage.local.atomic_file import replaced
from dlio_torch.sweep import page, resolve, schedule, space, study, table, text
from dlio_torch.sweep.resolve import Resolved
from dlio_torch.sweep.runner import Runner
from dlio_torch.sweep.scaled import scale_lines
from dlio_torch.sweep.store import Store, new_directory
from dlio_torch.sweep.study import Study
from dlio_torch.sweep.trial import Trial

_OWN_PAGES = ("tune.json", "headspace.json")


def begin(
    command: Command, asked: Study, output: str | None, resolved: Sequence[Resolved], notes: Sequence[str]
) -> int:
    """Run a new study; returns the exit code.

    Args:
        command: the command line.
        asked: the study.
        output: its folder as given; None: a new one below ``output.root``.
        resolved: its points.
        notes: what was left out.

    Raises:
        DlioError: too little room, or no point gave a figure.
    """
    needs = space.needs(resolved)
    root = Path(output or resolved[0].composed.config.output.root)
    space.require_space(needs, root)
    say("\n".join(text.estimate(asked, [one.point for one in resolved], needs, notes)))
    for line in page.precautions(asked, needs):
        say(line)
    if "--dry-run" in command.flags:
        return 0
    digests = {one.point.number: one.digest for one in resolved}
    place = Path(output) if output is not None else new_directory(root, asked.name)
    with Store.create(place, asked, digests=digests) as store:
        return _run(command, Runner(store, [one.point for one in resolved], needs, say, _removes(command)))


def resume(command: Command, place: Path, asked: Study | None) -> int:
    """Go on with a study; returns the exit code.

    Args:
        command: the command line.
        place: folder of the study.
        asked: what the command line asks for; None: what ``study.yaml`` says.

    Raises:
        DlioError: it asks something else, has changed, or no point gave a figure.
    """
    with Store.open(place) as store:
        if asked is None:
            wanted = study.changed(store.study, command.settings)
        elif asked.asks == store.study.asks:
            wanted = asked
        else:
            raise PreconditionError(
                f"{place} holds a study of other settings or axes", hint=f"choose a new folder, or --resume {place}"
            )
        resolved, notes = resolve.resolve(wanted, cwd=store.cwd)
        wanted = replace(wanted, scaled=scale_lines(resolved))
        other = resolve.differing(resolved, store.digests)
        if other or len(resolved) != len(store.digests):
            what = other[0].label if other else f"{len(resolved)} points instead of {len(store.digests)}"
            raise PreconditionError(
                f"the configuration is not what it was when the study in {place} began: {what}",
                hint="restore the recipe and fragments, or begin a new study",
            )
        points = [one.point for one in resolved]
        needs = space.needs(resolved, cwd=store.cwd)
        done = {one for one in schedule.done(store.trials()) if one[1] <= wanted.repeats}
        space.require_space(needs, place)
        say("\n".join(text.estimate(wanted, points, needs, notes, len(done))))
        if "--dry-run" in command.flags:
            return 0
        store.save(wanted)
        return _run(command, Runner(store, points, needs, say, _removes(command)))


def _run(command: Command, runner: Runner) -> int:
    path = runner.store.path
    say(f"study in {path}")
    try:
        trials = runner.run()
    except BaseException:
        say(f"the study can go on: python -m dlio_torch sweep --resume {shlex.quote(str(path))}")
        with contextlib.suppress(DlioError):  # what ended it is what has to be told
            _write(runner, runner.store.trials(), show=False)
        raise
    _write(runner, trials, show=True)
    if not any(trial.status == "done" for trial in trials):
        raise RunFailed(f"no run of the study in {path} succeeded: {trials[-1].error}", hint="see trials.csv there")
    return 0


def _write(runner: Runner, trials: Sequence[Trial], *, show: bool) -> None:
    """Tables, page and, where ``show``, the table on the terminal."""
    from dlio_torch.report.html.study.report import write_study

    store = runner.store
    asked = store.study
    points = table.points_table(trials, asked.axes, runner.points)
    notes = table.write_tables(store.path, table.trials_table(trials, asked.axes), points, asked.axes)
    data = page.study_data(store, trials, points, runner.needs)
    try:
        write_study(data, store.report)
        made = f"Report: {store.report}"
    except MissingPackageError as error:
        made = f"report.html is left out: {error}"
    if show:
        write(sys.stdout, lambda console: text.draw_points(console, asked, points))
        for one in data.statements:
            print(f"published: {one.text}\n  {one.verdict}: {one.words}")
        for note in notes:
            say(note)
        print(f"Tables: {store.path / 'table.csv'}\n{made}", flush=True)


def write_page(place: Path, target: Path | None = None) -> Path:
    """Write the page of a study from what its runs left, finished or not; of a search or a ladder, their own page.

    Raises:
        DlioError: the folder's study cannot be read, or its configuration is not what it was.
    """
    from dlio_torch.report.html.study.report import write_study

    if any((place / name).is_file() for name in _OWN_PAGES):
        # Made by the verb, with what only the search knows.
        made = place / "report.html"
        if not made.is_file():
            raise DataError(f"{made} does not exist", hint="give the study's command again with output= its folder")
        if target is not None:
            with replaced(target) as file:
                file.write(made.read_bytes())
        return target or made
    with Store.open(place, write=False) as store:
        resolved, _ = resolve.resolve(store.study, cwd=store.cwd)
        trials = store.trials()
        points = table.points_table(trials, store.study.axes, [one.point for one in resolved])
        needs = space.needs(resolved, cwd=store.cwd)
        return write_study(page.study_data(store, trials, points, needs), target or store.report)


def _removes(command: Command) -> bool:
    return "--remove-data" in command.flags


def say(line: str) -> None:
    """Print a line of progress."""
    print(line, file=sys.stderr, flush=True)
