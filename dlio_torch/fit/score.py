"""Score of a recipe: its run, at the recorded scale, compared with the recording.

A component *agrees* if its distance is at most 0.05, or at most twice the distance between two recordings of the same
program (``--rerun``), or no more than so few calls show by chance.  The worst component is that with the largest ratio
of distance to this bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from dlio_torch.analysis.remedies import remedy
from dlio_torch.analysis.run_recording import open_recording
from dlio_torch.errors import PreconditionError
from dlio_torch.fit.result_folder import ResultFolder
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.iotrace.fidelity.compare_recordings import compare
from dlio_torch.iotrace.fidelity.components import Comparison, Component
from dlio_torch.iotrace.figures.call_selection import within
from dlio_torch.run_directory.checkpoint_folder import checkpoint_folder
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.supervision.run_process import emulator, run_process

SCHEMA = "dlio_torch.score"
VERSION = "1"
AGREES = 0.05
"""Distance up to which a component agrees without regard to the noise."""
_OF_NOISE = 2.0
_LONGEST_S = 86400.0
_RUN = (
    "trace.posix=true",
    "output.progress=false",
    "loader.limit=off",
    "storage.limits=off",
)


@dataclass(frozen=True)
class Score:
    """How alike a recipe's run and a recording are.

    Attributes:
        comparison: all components, A is the recording and B the run.
        worst: the worst component by the bound of this module.
    """

    comparison: Comparison
    worst: Component

    @property
    def agrees(self) -> bool:
        """Whether every component agrees."""
        return ratio(self.worst) <= 1

    @property
    def worst_first(self) -> list[Component]:
        """All components, by distance relative to their bounds."""
        return sorted(self.comparison.components, key=ratio, reverse=True)

    def to_json(self) -> dict[str, Any]:
        """Plain values; ``rerun_noise`` is that of the worst component, ``None`` without a second recording."""
        return {
            "schema": SCHEMA,
            "version": VERSION,
            "worst": self.worst.distance,
            "component": self.worst.name,
            "rerun_noise": self.worst.noise,
            "agrees": self.agrees,
            "components": [_plain(component) for component in self.worst_first],
            "left_out": list(self.comparison.left_out),
        }


def _plain(component: Component) -> dict[str, Any]:
    """Plain values of a component, with its remedy if it does not agree."""
    agrees = ratio(component) <= 1
    return {
        "name": component.name,
        "distance": component.distance,
        "noise": component.noise,
        "bound": bound(component),
        "agrees": agrees,
        "figures": component.detail,
        "remedy": None if agrees else asdict(remedy(component)),
    }


def bound(component: Component) -> float:
    """Largest distance at which a component agrees."""
    return max(AGREES, _OF_NOISE * (component.noise or 0.0), component.floor)


def ratio(component: Component) -> float:
    """Distance of a component relative to its bound."""
    return component.distance / bound(component)


def run_recipe(folder: ResultFolder, ranks: int, *overrides: str) -> Path:
    """Runs the recipe of a result at the recorded scale, with its calls recorded; returns the run directory.

    The data set is generated beside the result, where the next run of the recipe finds it.

    Args:
        folder: the result, with a recipe.
        ranks: number of ranks, all on this machine.
        overrides: further ``key=value`` arguments.

    Raises:
        PreconditionError: the run failed; names its error and its log.
    """
    arguments = [f"recipe={folder.recipe}", f"output.dir={folder.emulation}", f"dataset.root={folder.data}"]
    folder.remove_run()
    command = emulator([*arguments, *_RUN, *overrides], ranks)
    ended = run_process(command, folder.emulation_log, timeout_s=_LONGEST_S)
    if ended.exit_code:
        raise PreconditionError(f"the recipe cannot be run: {ended.error}", hint=f"see {folder.emulation_log}")
    return folder.emulation


def without_compute(recording: Recording) -> tuple[str, ...]:
    """Overrides with which the compared run leaves compute out, if nothing that is compared depends on it.

    A log of another tool has no record of compute, and is often of a run that took hours.
    """
    return () if recording.kind in ("trace", "run") else ("compute.mode=none",)


def reproduced_part(recording: Recording, files: Iterable[str], begin_ns: int | None = None) -> Recording:
    """The recording without calls on other files; those are counted as unexplained, and not compared.

    Args:
        recording: of a program.
        files: paths of files, and of folders that are one data set or one checkpoint.
        begin_ns: begin of the first sample, for a program that writes its data itself; what it does with them before
            is no part of training.  ``None``: everything counts.
    """
    frame = recording.events.frame
    chosen = (frame["layer"] == "app").to_numpy() | within(frame, files)
    if begin_ns is not None:
        chosen &= frame["start_ns"].to_numpy() >= begin_ns
    kept = frame[chosen].reset_index(drop=True)
    kept["file"] = kept["file"].cat.remove_unused_categories()
    return replace(recording, events=replace(recording.events, frame=kept))


def without_preparation(run: Recording, checkpoints: Path) -> Recording:
    """A run without the save that prepares a restore: a program that is restarted has its checkpoint already.

    Args:
        run: of the emulator.
        checkpoints: folder of its checkpoints.
    """
    frame, restores = run.events.frame, run.spans[run.spans["op"] == "restore"]
    if restores.empty:
        return run
    before = (frame["start_ns"] < restores["start_ns"].min()).to_numpy() & within(frame, [checkpoints])
    kept = frame[~before].reset_index(drop=True)
    kept["file"] = kept["file"].cat.remove_unused_categories()
    return replace(run, events=replace(run.events, frame=kept))


def score(recording: Recording, emulation: Path, reruns: Sequence[Recording] = ()) -> Score:
    """Compares the run of a recipe with the recording.

    Args:
        recording: the part of it that the recipe reproduces, see :func:`reproduced_part`.
        emulation: run directory of the recipe's run.
        reruns: likewise of further recordings of the same program, which give the noise.

    Raises:
        DataError: nothing can be compared.
    """
    run = without_preparation(open_recording(emulation), checkpoint_folder(RunDir(emulation)))
    comparison = compare(recording, run, repeats_a=reruns)
    return Score(comparison, max(comparison.components, key=ratio))
