"""Runner of a study: runs the trials that a strategy proposes, one at a time, each in new processes."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch.errors import RunFailed
from dlio_torch.ownership.marker import NotOwned
from dlio_torch.ownership.removal import remove
from dlio_torch.study.model import Proposal, Trial
from dlio_torch.study.needs import DataSet, StudyNeeds
from dlio_torch.study.store import Store
from dlio_torch.study.strategies.base import Strategy
from dlio_torch.study.time_left import time_left
from dlio_torch.study.trial import generate_data, run_trial
from dlio_torch.units import format_duration


@dataclass
class Runner:
    """Runs a study.

    Attributes:
        store: receives the trials.
        strategy: proposes them.
        needs: of its points.
        say: prints one line.
        remove_data: whether data sets that this study wrote are removed after their last trial.
        quiet: whether only failures are printed.
    """

    store: Store
    strategy: Strategy
    needs: StudyNeeds
    say: Callable[[str], None]
    remove_data: bool = False
    quiet: bool = False
    _written: set[tuple[Path, int]] = field(default_factory=set)

    def run(self) -> list[Trial]:
        """Run the remaining trials, and return all trials of the study.

        A failed run is recorded and does not end the study.

        Raises:
            RunFailed: the strategy cannot give a result any more, or data that it requires cannot be written.
            PreconditionError: the directory of the study cannot be written.
            KeyboardInterrupt: passed on; nothing that was finished is lost.
        """
        trials = self.store.trials()
        self.strategy.start(self.store, self._note)
        while (proposal := self.strategy.propose(trials)) is not None:
            if not self._write_data(proposal, trials):
                continue
            trial = self.store.append(self._run(proposal))
            trials.append(trial)
            self._report(trial, proposal, trials)
            self._remove_data(trials)
        self._remove_data(trials)
        return trials

    def _run(self, proposal: Proposal) -> Trial:
        """Run a trial in a fresh directory; its data set exists."""
        return run_trial(
            proposal.point,
            self.store.fresh_directory(proposal.point.number, proposal.repeat),
            repeat=proposal.repeat,
            warm=None if proposal.point.fresh or self.store.study.start == "fresh" else self.store.warm,
            timeout_s=self.store.study.timeout_s,
            cwd=self.store.cwd,
            figures=self.store.study.figures,
        )

    # --- data sets -------------------------------------------------------------------------------

    def _write_data(self, proposal: Proposal, trials: list[Trial]) -> bool:
        """Generate the data sets that pending trials read; returns whether all could be written."""
        pending = {item.point.number: item for item in (proposal, *reversed(self.strategy.pending(trials)))}
        for data in self.needs.data:
            readers = [pending[number] for number in data.points if number in pending]
            if data.missing_files and readers and not self._write(data, readers, trials):
                return False
        return True

    def _write(self, data: DataSet, readers: Sequence[Proposal], trials: list[Trial]) -> bool:
        """Generate one data set, from the points that need the whole data set if there are any."""
        writers = [reader for reader in readers if reader.point.number in data.makers] or readers
        writers = [writer for writer in writers if (data.folder, writer.point.number) not in self._written]
        if not writers or (len(data.makers) == 1 and (data.folder, data.makers[0]) in self._written):
            return True
        if not data.folder.exists():
            self.store.note_data(data.folder)
        self._note(data.progress_line)
        for writer in writers:
            point, log = writer.point, self.store.data_log(writer.point.number)
            ended = generate_data(point.settings, log, ranks=point.ranks, cwd=self.store.cwd)
            if ended.exit_code:
                if self.strategy.requires_data:
                    raise RunFailed(f"the data cannot be written: {ended.error}", hint=f"see the log {log}")
                self.say(f"data: failed (exit code {ended.exit_code}): {ended.error}")
                lost = [reader.failed(ended.exit_code, f"data: {ended.error}") for reader in readers]
                trials += [self.store.append(trial) for trial in lost]
                return False
            self._written.add((data.folder, point.number))
        return True

    def _remove_data(self, trials: Sequence[Trial]) -> None:
        """Remove the data sets that this study wrote and no pending trial reads, if that was requested."""
        if not self.remove_data:
            return
        written, pending = self.store.written_data(), {item.point.number for item in self.strategy.pending(trials)}
        for data in self.needs.data:
            if data.folder.absolute() in written and data.folder.exists() and not pending.intersection(data.points):
                self._note(f"data: removing {data.folder}")
                with contextlib.suppress(OSError, NotOwned):
                    remove(data.folder)

    # --- progress --------------------------------------------------------------------------------

    def _report(self, trial: Trial, proposal: Proposal, trials: Sequence[Trial]) -> None:
        pending = self.strategy.pending(trials)
        outlook = self.strategy.outlook(trials)
        total = "" if outlook is not None else f"/{len(trials) + len(pending)}"
        text = f"[{len(trials)}{total}] {self.strategy.title(trial)}: "
        if trial.failed:
            text += f"failed (exit code {trial.exit_code}): {trial.error}{self.strategy.after_failure(trial, trials)}"
        else:
            text += figures_text(trial)
        text += f"; {proposal.reason}" if proposal.reason else ""
        if outlook is not None:
            text += f"; {outlook}"
        elif pending:
            seconds = time_left([left.point.number for left in pending], trials, self.needs.compute_s)
            text += f"; {len(pending)} left" + ("" if seconds is None else f", about {format_duration(seconds)}")
        (self.say if trial.failed else self._note)(text)

    def _note(self, line: str) -> None:
        """Print a line of progress."""
        if not self.quiet:
            self.say(line)


def figures_text(trial: Trial) -> str:
    """Formats throughput, utilisation and duration of a finished trial."""
    rate, utilisation = trial.figures.get("train.samples_per_s"), trial.figures.get("au.mean")
    parts = [] if rate is None else [f"{rate:.4g} samples/s"]
    parts += [] if utilisation is None else [f"au {100 * utilisation:.1f} %"]
    return ", ".join([*parts, format_duration(trial.wall_s or 0.0)])
