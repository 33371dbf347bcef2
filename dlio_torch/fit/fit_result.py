"""Makes the result of the verb ``fit``: reads recordings, writes recipe and evidence, runs the recipe and scores it."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from dlio_torch.environment.cores import usable_cores
from dlio_torch.errors import DlioError
from dlio_torch.files.atomic_file import replace_text
from dlio_torch.fit.anonymous_names import AnonymousNames, anonymous_evidence, anonymous_names
from dlio_torch.fit.fit_evidence import evidence
from dlio_torch.fit.fit_recording import FittedTraining, fit_training
from dlio_torch.fit.preprocessing import with_preprocessing
from dlio_torch.fit.recipe_text import recipe_text
from dlio_torch.fit.recorded_training import RecordedTraining, read_training
from dlio_torch.fit.result_folder import ResultFolder
from dlio_torch.fit.score import Score, reproduced_part, run_recipe, score, without_compute
from dlio_torch.fit.unusable_recordings import refuse_other_program
from dlio_torch.formats.core.recorded_samples import write_recorded_samples
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.units import counted


@dataclass(frozen=True)
class FitRequest:
    """Arguments of the verb ``fit``.

    Attributes:
        recording: path of the recording.
        output: folder of the result.
        reruns: paths of further recordings of the same program, which give the noise.
        force: replace an earlier result.
        scored: run the recipe and compare it with the recording.
        anonymised: replace all names of the recording by numbered ones.
    """

    recording: Path
    output: Path
    reruns: tuple[Path, ...] = ()
    force: bool = False
    scored: bool = True
    anonymised: bool = False


@dataclass(frozen=True)
class FitResult:
    """Result of the verb ``fit``, as its files hold it.

    Attributes:
        folder: its files.
        fitted: the values of the recipe.
        evidence: content of ``evidence.json``.
        score: how alike the recipe's run and the recording are; ``None``: it was not run.
        notes: remarks, one line each.
    """

    folder: ResultFolder
    fitted: FittedTraining
    evidence: dict[str, Any]
    score: Score | None = None
    notes: tuple[str, ...] = ()

    @property
    def figures(self) -> dict[str, Any] | None:
        """Content of ``score.json``; ``None`` without a score."""
        return None if self.score is None else {**self.score.to_json(), "unexplained": self.evidence["unexplained"]}


def make_result(request: FitRequest, announce: Callable[[str], None]) -> FitResult:
    """Writes the recipe of a recording, and its score if it is wanted.

    Args:
        request: the arguments.
        announce: called with one line before the recipe is run, which takes as long as the recorded training.

    Raises:
        DlioError: no recipe follows from the recording, a recording is of another program, or the recipe cannot be run;
            in the last case recipe and evidence are written.
    """
    training = read_training(request.recording)
    reruns = [_rerun(training, path) for path in request.reruns]
    fitted = fit_training(training)
    names = anonymous_names(training, fitted, [request.output.absolute()]) if request.anonymised else None
    folder = ResultFolder.create(request.output, force=request.force)
    written = _written(folder, request, training, fitted, names)
    # An anonymous result has no run: it holds names of this machine.
    with _runs(folder, are_kept=request.scored and names is None):
        measured = with_preprocessing(training, fitted, folder, announce)
        if measured is not fitted:
            written = _written(folder, request, training, measured, names)
        if not request.scored:
            return written
        announce("running the recipe to compare it with the recording")
        scored = _scored(folder, training, measured, reruns)
    if names is not None:
        scored = names.score(scored)
    result = replace(written, score=scored, notes=_notes(fitted.ranks))
    result.folder.write_json(result.folder.score, result.figures or {})
    return result


@contextlib.contextmanager
def _runs(folder: ResultFolder, *, are_kept: bool) -> Iterator[None]:
    """Runs of the recipe, which share a data set; removes it at their end, and the last run if it is not kept.

    The recipe and its evidence stay, even if a run fails or is interrupted.
    """
    try:
        yield
    except KeyboardInterrupt as interrupt:
        are_kept = False
        interrupt.args = (f"the recipe is written, without a score: {folder.recipe}",)
        raise
    except DlioError as error:
        if not are_kept and str(folder.emulation_log) in (error.hint or ""):
            error.hint = f"run it by recipe={folder.recipe}"
        raise
    finally:
        folder.remove_data()
        if not are_kept:
            folder.remove_run()


def _rerun(training: RecordedTraining, path: Path) -> RecordedTraining:
    """A further recording of the same program."""
    other = read_training(path)
    refuse_other_program(training.recording.path, training.data_files, path, other.data_files)
    return other


def _written(
    folder: ResultFolder,
    request: FitRequest,
    training: RecordedTraining,
    fitted: FittedTraining,
    names: AnonymousNames | None,
) -> FitResult:
    """Writes recipe and evidence."""
    figures = evidence(training, fitted)
    title = f"Written by `fit` from the recording {request.recording}."
    if names is not None:
        fitted = replace(fitted, findings=names.findings(fitted.findings))
        figures = anonymous_evidence(names, figures, fitted.findings)
        title = "Written by `fit` from a recording, whose names are replaced by numbers."
    replace_text(folder.recipe, recipe_text(fitted.findings, title))
    if fitted.data.replayed is not None:
        write_recorded_samples(fitted.data.replayed, folder.requests)
    folder.write_json(folder.evidence, figures)
    return FitResult(folder, fitted, figures)


def _scored(
    folder: ResultFolder, training: RecordedTraining, fitted: FittedTraining, reruns: list[RecordedTraining]
) -> Score:
    """Runs the recipe and compares the run with the part of the recording that the recipe reproduces."""
    emulation = run_recipe(folder, fitted.ranks, *without_compute(training.recording))
    repeats = [_part(rerun, fit_training(rerun)) for rerun in reruns]
    return score(_part(training, fitted), emulation, repeats)


def _part(training: RecordedTraining, fitted: FittedTraining) -> Recording:
    return reproduced_part(training.recording, fitted.findings.files, training.own_data_ns)


def _notes(ranks: int) -> tuple[str, ...]:
    """A remark if the ranks of the run had to share cores."""
    cores = usable_cores()
    if ranks <= cores:
        return ()
    return (f"{counted(ranks, 'rank')} shared the {cores:g} cores of this machine, which delays all of them",)
