"""The runs of the verb headspace, and what they leave."""

from __future__ import annotations

import shlex
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from dlio_torch.commands.arguments import Command
from dlio_torch.commands.common import as_json
from dlio_torch.errors import MissingPackageError
from dlio_torch.sweep.headspace.ladder import Headspace, plan, prepare, require_headspace, require_same, run
from dlio_torch.sweep.headspace.rungs import Rung
from dlio_torch.sweep.resolve import Resolved
from dlio_torch.sweep.scaled import scale_lines
from dlio_torch.sweep.schedule import done
from dlio_torch.sweep.space import Needs
from dlio_torch.sweep.store import Store, new_directory
from dlio_torch.sweep.study import Study, changed
from dlio_torch.sweep.text import estimate


def begin(command: Command, asked: Study, output: str | None) -> int:
    """Run a new ladder; returns the exit code.

    Args:
        command: the command line.
        asked: the configuration, without an axis.
        output: folder of the study as given; None: a new one below ``output.root``.

    Raises:
        DlioError: too little room, or the configuration itself does not run.
    """
    study, ladder = plan(asked)
    resolved, needed, notes = prepare(study, None if output is None else Path(output))
    study = replace(study, scaled=scale_lines(resolved[:1]))  # that of the configuration itself
    _say("\n".join(estimate(study, [one.point for one in resolved], needed, notes)))
    if "--dry-run" in command.flags:
        return _dry_run(study, ladder)
    root = resolved[0].composed.config.output.root
    place = Path(output) if output is not None else new_directory(root, f"headspace_{study.name}")
    with Store.create(place, study, digests={one.point.number: one.digest for one in resolved}) as store:
        return _run(command, store, ladder, resolved, needed)


def resume(command: Command, place: Path, asked: Study | None) -> int:
    """Go on with a ladder; returns the exit code.

    Args:
        command: the command line.
        place: folder of the study.
        asked: what the command line asks for; None: what ``study.yaml`` says.

    Raises:
        DlioError: it asks something else, has changed, or the configuration itself does not run.
    """
    with Store.open(place) as store:
        require_headspace(store)
        study, ladder = plan(asked or replace(changed(store.study, command.settings), axes=()), cwd=store.cwd)
        resolved, needed, notes = prepare(study, store.path, cwd=store.cwd)
        require_same(store, study, resolved)
        study = replace(study, scaled=scale_lines(resolved[:1]))
        finished = sum(repeat <= study.repeats for _, repeat in done(store.trials()))
        _say("\n".join(estimate(study, [one.point for one in resolved], needed, notes, finished)))
        if "--dry-run" in command.flags:
            return _dry_run(study, ladder)
        store.save(study)
        return _run(command, store, ladder, resolved, needed)


def _dry_run(study: Study, ladder: Sequence[Rung]) -> int:
    for rung in ladder:
        what = f"left out: {rung.skipped}" if rung.skipped else " ".join(rung.settings) or "nothing is changed"
        print(f"{rung.title}: {what}")
    if study.repeats > 1:
        print(f"where {study.repeats} rounds cannot tell: {study.repeats} more rounds without the sides by themselves")
    return 0


def _run(command: Command, store: Store, ladder: Sequence[Rung], resolved: Sequence[Resolved], needed: Needs) -> int:
    _say(f"headspace in {store.path}")
    try:
        found = run(store, ladder, resolved, needed, _say)
    except BaseException:
        _say(f"it can go on: python -m dlio_torch headspace --resume {shlex.quote(str(store.path))}")
        raise
    _show(found, resolved, as_data="--json" in command.flags)
    return 0


def _show(found: Headspace, resolved: Sequence[Resolved], *, as_data: bool) -> None:
    from dlio_torch.sweep.headspace.page import write_page
    from dlio_torch.sweep.headspace.text import print_headspace

    try:
        page = f"Report: {write_page(found, resolved)}"
    except MissingPackageError as error:
        page = f"report.html is left out: {error}"
    if as_data:
        print(as_json(found.to_json()), end="")
        _say(page)
    else:
        print_headspace(found.rungs, found.words, stream=sys.stdout, title=found.study.title, directory=found.directory)
        print(page, flush=True)


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
