"""A run that goes on where another one's last whole checkpoint was (``train.resume``)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlio_torch.config.schema import Config
from dlio_torch.data.dataset import manifest as layout
from dlio_torch.dist.base import Communicator
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.rundir import RunDir
from dlio_torch.train.position import Identity, Place, Positions, read


@dataclass(frozen=True)
class Resumed:
    """Where a run goes on.

    Attributes:
        run: directory of the run before.
        checkpoint: step of its checkpoint.
        place: where that run was then.
        identity: what the place belongs to.
    """

    run: Path
    checkpoint: int
    place: Place
    identity: Identity

    def begins(self, config: Config) -> tuple[int, int]:
        """The epoch to begin with, and its steps that are done: all of them where only an evaluation is left of it."""
        epoch, step, train = self.place.epoch, self.place.step, config.train
        due = train.eval_every_epochs and epoch % train.eval_every_epochs == 0
        due = due or (train.eval_every_steps and self.checkpoint % train.eval_every_steps == 0)
        return (epoch + 1, 0) if step == self.identity.steps and not due else (epoch, step)

    def about(self) -> dict[str, Any]:
        """For the summary."""
        return {"run": str(self.run), "checkpoint_step": self.checkpoint, **asdict(self.place)}


def find(config: Config, comm: Communicator) -> Resumed | None:
    """What ``train.resume`` names, the same on all ranks.

    Raises:
        DataError: there is no such run, or it has no checkpoint that all ranks have finished.
        ConfigError: it had another number of ranks.
    """
    if config.train.resume is None:
        return None
    found = comm.broadcast_object(_find(config.train.resume, comm.world_size) if comm.rank == 0 else None)
    assert found is not None
    return found


def _find(path: str, world_size: int) -> Resumed:
    run = RunDir.open(path, "train.resume")
    first = read(run.position(0))
    if first is None:
        raise DataError(
            f"train.resume={path}: that run has finished no checkpoint",
            hint="start anew without train.resume, with checkpoint.every_steps or checkpoint.every_epochs",
        )
    identity = first.identity
    if identity.world_size != world_size:
        raise ConfigError(
            f"train.resume={path}: that run had {identity.world_size} rank(s), this one has {world_size}",
            hint=f"start {identity.world_size}, or leave train.resume out",
        )
    everyone = [first, *(read(run.position(rank)) for rank in range(1, identity.savers))]
    complete = _complete(everyone)
    if not complete:
        raise DataError(
            f"train.resume={path}: there is no checkpoint that all {identity.savers} saving rank(s) have finished",
            hint="start anew without train.resume; checkpoint.keep=2 leaves the one before",
        )
    step = max(complete)
    places = {one.places[step] for one in everyone if one is not None}
    if len(places) != 1 or any(one is None or one.identity != identity for one in everyone):
        raise DataError(f"train.resume={path}: its ranks do not agree where they were", hint="start the run anew")
    return Resumed(run.path, step, first.places[step], identity)


def _complete(everyone: Sequence[Positions | None]) -> set[int]:
    steps = [set() if one is None else set(one.places) for one in everyone]
    return set.intersection(*steps)


def identity(config: Config, fmt: Format, world_size: int, order: str, steps: int) -> Identity:
    """What the places of this run belong to.

    Args:
        config: the experiment.
        fmt: of the data.
        world_size: ranks.
        order: pattern of the loader's samples.
        steps: steps of an epoch.
    """
    where = config.dataset.path
    data = str(Path(where).absolute()) if where is not None else layout.data_folder(config, fmt).name
    hold = f", each batch for {config.access.hold_steps} steps" if config.access.hold_steps > 1 else ""
    savers = world_size if config.checkpoint.ranks == "all" else 1
    return Identity(world_size, savers, order + hold, steps, data)


def check_same(resumed: Resumed, mine: Identity, config: Config) -> None:
    """Refuse to go on in another order of samples, on other data, or where nothing is left.

    Raises:
        ConfigError: naming what differs.
    """
    was, given = resumed.identity, f"train.resume={config.train.resume}"
    for what, before, now in (
        ("the data set", was.data, mine.data),
        ("the order", was.order, mine.order),
        ("the steps of an epoch", was.steps, mine.steps),
        ("the number of ranks that save", was.savers, mine.savers),
    ):
        if before != now:
            raise ConfigError(
                f"{given}: {what} of that run: {before}; of this one: {now}",
                hint="resume with the recipe and options of that run (its config.yaml)",
            )
    if resumed.begins(config)[0] > config.train.epochs:
        raise ConfigError(
            f"{given}: its last checkpoint, of step {resumed.checkpoint}, is at the end of "
            f"train.epochs={config.train.epochs}",
            hint="nothing is left to do; raise train.epochs to train on",
        )
