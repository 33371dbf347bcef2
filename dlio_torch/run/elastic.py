"""A run whose ranks come and go: one turn after the other, each with the ranks that are there then.

Each turn is a run of its own, with a run directory of its own: its ranks have their shares of the samples, their files
of steps and spans, and figures that belong to their number.  A turn goes on where the last commit of the one before it
was.  What the turns have in common is in ``elastic.json``: when which ranks went on, where, and what is done again.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.data.order.specification import rank_batch
from dlio_torch.dist.hvd_elastic import ElasticCommunicator, RankLost, RanksChanged, run_elastic
from dlio_torch.errors import ConfigError, DlioError, ThresholdMissed
from dlio_torch.run.alike import same_on_all
from dlio_torch.run.ending import Ending
from dlio_torch.run.phases import do
from dlio_torch.run.position import Position
from dlio_torch.run.setting import Setting
from dlio_torch.rundir import RunDir, say_where


@dataclass(frozen=True)
class Turn:
    """One set of ranks.

    Attributes:
        turn: its number, from 1.
        began_at: UTC, ISO 8601.
        world_size: its ranks.
        hosts: their hosts, in the order of ranks.
        epoch: in which it goes on, from 1.
        samples: of that epoch that are not done again: whole global batches of these ranks, up to the last commit.
        again: samples that are done again; ``None`` for the first turn, and where the turn before was in a later epoch.
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


def run_elastically(composed: Composed, phases: Sequence[str]) -> int:
    """Do the phases with whatever ranks there are; returns the exit code.

    Raises:
        ConfigError: the configuration asks for what cannot go on with other ranks.
        DlioError: as in any run; the other ranks go on without this one.
    """
    _check(composed.config, composed.sources)
    return _Elastic(composed, phases).run()


class _Elastic:
    def __init__(self, composed: Composed, phases: Sequence[str]) -> None:
        self._composed = composed
        self._phases = phases
        self._reached: tuple[int, int] | None = None  # epoch and samples, beyond the last commit
        self._steps = 0  # of this turn, the same on all ranks

    def run(self) -> int:
        first: dict[str, Any] = {"epoch": 1, "samples": 0, "folder": None, "turns": []}
        missed = run_elastic(self._composed.config.dist.horovod, first, self._turn)
        if missed is not None:
            raise missed
        return 0

    def _turn(self, comm: ElasticCommunicator, state: Any) -> ThresholdMissed | None:
        composed, ending = self._composed, Ending(comm)
        try:
            same_on_all(composed.config, comm)
            folder = self._announce(comm, state)
            output = replace(composed.config.output, dir=str(folder))
            mine = replace(composed, config=replace(composed.config, output=output))
            position = Position(state.epoch, state.samples, self._after_step(state))
            missed = do(Setting(mine, comm, ending, position), self._phases)
        except RanksChanged:
            ending.changed("hosts came or went, and the run goes on with other ranks")
            raise
        except RankLost:
            ending.changed("a rank was lost, and the run goes on without it")
            raise
        except DlioError as error:
            ending.fail(str(error), error.exit_code)
            raise
        except KeyboardInterrupt as error:
            if state.folder is not None:
                say_where(error, Path(state.folder))
            raise
        ending.done(0 if missed is None else missed.exit_code)
        return missed

    def _announce(self, comm: ElasticCommunicator, state: Any) -> Path:
        """Write down and say who goes on, and where; the run directory of the turn."""
        # Rank 0 is one of those that were there before, if any are.
        hosts = comm.gather_objects(socket.gethostname())
        config, parent = self._composed.config, None
        train = config.train
        batch = rank_batch(train.batch_size, train.batch_scope, comm.world_size, "train.batch_size") * comm.world_size
        state.samples -= state.samples % batch
        again = self._beyond(state.epoch, state.samples) if comm.rank == 0 and state.turns else None
        if comm.rank == 0:
            found = state.folder or RunDir.create(config.output.root, config.recipe, config.output.dir).path
            parent = RunDir(Path(found))
            number = len(state.turns) + 1
            now = datetime.now(UTC).isoformat(timespec="seconds")
            turn = Turn(
                number, now, comm.world_size, hosts or [], state.epoch, state.samples, again, parent.turn(number).name
            )
            state.turns = [*state.turns, asdict(turn)]
            parent.write_json(parent.elastic, {"turns": state.turns})
            if "train" in self._phases:
                print(_line(turn), file=sys.stderr)
        state.turns, parent = comm.broadcast_object((state.turns, parent))
        assert parent is not None
        state.folder = str(parent.path)
        state.save()
        self._reached, self._steps = (state.epoch, state.samples), 0
        return parent.turn(len(state.turns))

    def _beyond(self, epoch: int, samples: int) -> int | None:
        """Samples that were done after the commit; ``None`` where that is in another epoch."""
        if self._reached is None or self._reached[0] != epoch:
            return None
        return max(0, self._reached[1] - samples)

    def _after_step(self, state: Any) -> Any:
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
        return f"elastic: {ranks} begin"
    again = "" if not turn.again else f"; {turn.again} samples are done again"
    return f"elastic: {ranks} go on after {turn.samples} samples of epoch {turn.epoch}{again} ({turn.run})"


def _check(config: Config, sources: dict[str, str]) -> None:
    """Refuse what cannot go on with another number of ranks."""
    if config.dist.backend not in ("auto", "horovod"):
        raise ConfigError(
            f"dist.backend={config.dist.backend} ({sources.get('dist.backend', 'default')}), but horovodrun started "
            "this process with ranks that come and go",
            hint="leave dist.backend=auto",
        )
    wrong = {
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
    for key, (value, needed) in wrong.items():
        if value != needed:
            raise ConfigError(
                f"{key}={value} ({sources.get(key, 'default')}) with ranks that come and go (horovodrun --min-np)",
                hint=f"set {key}={'null' if needed is None else str(needed).lower()}, or give -np <n> alone",
            )
