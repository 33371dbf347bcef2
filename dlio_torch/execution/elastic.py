"""Elastic run: ranks join and leave during the run, and each set of ranks executes one turn of the run.

A turn has a run directory of its own, because shares of samples, step files, spans and figures depend on the number of
ranks.  It goes on after the last commit of the turn before.  ``elastic.json`` lists the turns: when they began, with
which ranks, at which sample, and how many samples are repeated.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.data.order.specification import rank_batch
from dlio_torch.dist.hvd_elastic import ElasticCommunicator, RankLost, RanksChanged, run_elastic
from dlio_torch.errors import ConfigError, DlioError, ThresholdMissed
from dlio_torch.execution.context import RunContext
from dlio_torch.execution.elastic_position import AfterStep, ElasticPosition
from dlio_torch.execution.outcome import RunOutcome
from dlio_torch.execution.run_record import keep_earlier_results
from dlio_torch.preflight.rank_agreement import check_ranks_agree
from dlio_torch.run_directory.results_folder import name_run_directory
from dlio_torch.run_directory.run_dir import RunDir

RunPhases = Callable[[RunContext, Sequence[str]], ThresholdMissed | None]


@dataclass(frozen=True)
class Turn:
    """The part of an elastic run that one set of ranks executes.

    Attributes:
        turn: its number, from 1.
        began_at: UTC, ISO 8601.
        world_size: number of ranks.
        hosts: their hosts, in the order of ranks.
        epoch: epoch in which it begins, from 1.
        samples: samples of that epoch that are done: whole global batches of these ranks, up to the last commit.
        again: samples that are repeated; ``None`` for the first turn, or if the turn before had reached a later epoch.
        run: name of its run directory.
    """

    turn: int
    began_at: str
    world_size: int
    hosts: list[str]
    epoch: int
    samples: int
    again: int | None
    run: str


def run_elastically(composed: Composed, phases: Sequence[str], run_phases: RunPhases) -> int:
    """Run the phases with the present ranks, turn by turn; returns the exit code.

    Args:
        composed: the configuration and its sources.
        phases: ``generate``, ``train`` or both.
        run_phases: runs the phases of one turn on this rank.

    Raises:
        ConfigError: an option does not allow another number of ranks.
        DlioError: this rank failed; the other ranks go on without it.
    """
    _check_options(composed.config, composed.sources)
    return _ElasticRun(composed, phases, run_phases).run()


class _ElasticRun:
    def __init__(self, composed: Composed, phases: Sequence[str], run_phases: RunPhases) -> None:
        self._composed = composed
        self._phases = phases
        self._run_phases = run_phases
        self._reached: tuple[int, int] | None = None  # epoch and samples of this rank, perhaps after the last commit
        self._steps = 0  # of this turn, the same on all ranks

    def run(self) -> int:
        first: dict[str, Any] = {"epoch": 1, "samples": 0, "folder": None, "turns": []}
        missed = run_elastic(self._composed.config.dist.horovod, first, self._turn)
        if missed is not None:
            raise missed
        return 0

    def _turn(self, comm: ElasticCommunicator, state: Any) -> ThresholdMissed | None:
        composed, outcome = self._composed, RunOutcome(comm)
        try:
            check_ranks_agree(composed.config, comm)
            folder = self._begin_turn(comm, state)
            output = replace(composed.config.output, dir=str(folder))
            composed = replace(composed, config=replace(composed.config, output=output))
            position = ElasticPosition(state.epoch, state.samples, self._after_step(state))
            missed = self._run_phases(RunContext.create(composed, comm, outcome, position), self._phases)
        except RanksChanged:
            outcome.ranks_changed("hosts joined or left, and the run continues with other ranks")
            raise
        except RankLost:
            outcome.ranks_changed("a rank was lost, and the run continues with the remaining ranks")
            raise
        except DlioError as error:
            outcome.fail(str(error), error.exit_code)
            raise
        except KeyboardInterrupt as error:
            if state.folder is not None:
                name_run_directory(error, Path(state.folder))
            raise
        outcome.finish(0 if missed is None else missed.exit_code)
        return missed

    def _begin_turn(self, comm: ElasticCommunicator, state: Any) -> Path:
        """Write the turn to ``elastic.json`` and print it; returns its run directory."""
        # Horovod gives number 0 to a rank of the turn before, if one is left, so rank 0 knows what was reached.
        hosts = comm.gather_objects(socket.gethostname())
        config = self._composed.config
        train, folder = config.train, None
        batch = rank_batch(train.batch_size, train.batch_scope, comm.world_size, "train.batch_size") * comm.world_size
        state.samples -= state.samples % batch
        if comm.rank == 0:
            folder = RunDir(Path(state.folder)) if state.folder else self._new_folder()
            turn = Turn(
                turn=len(state.turns) + 1,
                began_at=datetime.now(UTC).isoformat(timespec="seconds"),
                world_size=comm.world_size,
                hosts=hosts or [],
                epoch=state.epoch,
                samples=state.samples,
                again=self._repeated(state.epoch, state.samples) if state.turns else None,
                run=folder.turn(len(state.turns) + 1).name,
            )
            state.turns = [*state.turns, asdict(turn)]
            folder.write_json(folder.elastic, {"turns": state.turns})
            if "train" in self._phases and self._composed.detail != "quiet":
                print(_line(turn), file=sys.stderr)
        state.turns, folder = comm.broadcast_object((state.turns, folder))
        assert folder is not None
        state.folder = str(folder.path)
        state.save()
        self._reached, self._steps = (state.epoch, state.samples), 0
        return folder.turn(len(state.turns))

    def _new_folder(self) -> RunDir:
        config = self._composed.config
        if (line := keep_earlier_results(config)) is not None and self._composed.detail != "quiet":
            print(line, file=sys.stderr)
        return RunDir.create(config.output.root, config.recipe, config.output.dir)

    def _repeated(self, epoch: int, samples: int) -> int | None:
        """Number of samples since the last commit, which are repeated; ``None`` if the commit is in an older epoch."""
        if self._reached is None or self._reached[0] != epoch:
            return None
        return max(0, self._reached[1] - samples)

    def _after_step(self, state: Any) -> AfterStep:
        every = self._composed.config.dist.horovod.commit_steps

        def after_step(epoch: int, samples: int, last: bool) -> None:
            self._reached = (epoch, samples)
            self._steps += 1
            if not last and self._steps % every == 0:
                state.epoch, state.samples = epoch, samples
                state.commit()

        return after_step


def _line(turn: Turn) -> str:
    ranks = f"{turn.world_size} rank{'s' if turn.world_size != 1 else ''}"
    if turn.turn == 1:
        return f"elastic run: {ranks} start"
    repeated = "" if not turn.again else f"; {turn.again} samples are read again"
    return f"elastic run: {ranks} continue after {turn.samples} samples of epoch {turn.epoch}{repeated} ({turn.run})"


def _check_options(config: Config, sources: dict[str, str]) -> None:
    """Refuse options that do not allow another number of ranks."""
    if config.dist.backend not in ("auto", "horovod"):
        raise ConfigError(
            f"dist.backend={config.dist.backend} ({sources.get('dist.backend', 'default')}) does not support the "
            "elastic mode (ranks that join and leave) in which horovodrun started this process",
            hint="leave dist.backend=auto",
        )
    options = {
        "access.pattern": (config.access.pattern, "samples"),
        "access.partition": (config.access.partition, "batches"),
        "access.hold_steps": (config.access.hold_steps, 1),
        "access.io": (config.access.io, "posix"),
        "loader.style": (config.loader.style, "map"),
        "loader.replay": (config.loader.replay, "none"),
        "stage.dir": (config.stage.dir, None),
        "trace.horovod": (config.trace.horovod, False),
        "train.resume": (config.train.resume, None),
    }
    for key, (value, needed) in options.items():
        if value != needed:
            raise ConfigError(
                f"{key}={value} ({sources.get(key, 'default')}) is not possible in an elastic run (horovodrun "
                "--min-np)",
                hint=(
                    f"set {key}={'null' if needed is None else str(needed).lower()}, or start horovodrun with -np "
                    "<n> alone"
                ),
            )
