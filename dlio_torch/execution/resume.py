"""Resume: a run continues after the last complete checkpoint of another run (``train.resume``)."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from dlio_torch.checkpoint.position import RunIdentity, TrainingPosition, complete_steps, read_all
from dlio_torch.checkpoint.saves import saving_ranks
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import data_folder
from dlio_torch.data.order.held_plan import HeldPlan, fetched_by
from dlio_torch.data.order.pipe_plan import PipePlan
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.dist.base import Communicator
from dlio_torch.errors import ConfigError, DataError
from dlio_torch.formats.core.format import Format
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.units import counted


@dataclass(frozen=True)
class ResumePoint:
    """A checkpoint of another run, after which this run continues.

    Attributes:
        run: directory of the other run.
        checkpoint: step of its checkpoint.
        place: its position at that step.
        identity: order and data that the position belongs to.
    """

    run: Path
    checkpoint: int
    place: TrainingPosition
    identity: RunIdentity

    def begin(self, config: Config) -> tuple[int, int]:
        """First epoch (from 1) and the number of its steps that are done; all steps if only an evaluation is left."""
        epoch, step, train = self.place.epoch, self.place.step, config.train
        due = train.eval_every_epochs and epoch % train.eval_every_epochs == 0
        due = due or (train.eval_every_steps and self.checkpoint % train.eval_every_steps == 0)
        return (epoch + 1, 0) if step == self.identity.steps and not due else (epoch, step)

    def to_dict(self) -> dict[str, Any]:
        """Entry ``resumed`` of the summary."""
        return {"run": str(self.run), "checkpoint_step": self.checkpoint, **asdict(self.place)}

    def line(self, config: Config) -> str:
        """Console line that names the resumed run and the next step."""
        epoch, step = self.begin(config)
        return (
            f"resumed: {self.run}, after the checkpoint of step {self.checkpoint}; the next step is step "
            f"{step + 1} of epoch {epoch}"
        )


def find_resume_point(config: Config, identity: RunIdentity, comm: Communicator) -> ResumePoint | None:
    """Returns the last complete checkpoint of the run that ``train.resume`` names, the same on all ranks.

    Args:
        config: the experiment.
        identity: order and data that positions of this run belong to.
        comm: the ranks.

    Raises:
        DataError: the run is missing, or has no checkpoint that all ranks completed.
        ConfigError: that run had other ranks, data or order of samples, or no steps are left; names the difference.
    """
    if config.train.resume is None:
        return None
    point = comm.broadcast_object(_last_checkpoint(config.train.resume, comm.world_size) if comm.rank == 0 else None)
    assert point is not None
    _check_identity(point, identity, config)
    return point


def _last_checkpoint(path: str, world_size: int) -> ResumePoint:
    run = RunDir.open(path, "train.resume")
    positions = read_all(run)
    first = positions[0] if positions else None
    if first is None:
        raise DataError(
            f"train.resume={path}: the run in this directory has completed no checkpoint",
            hint="start a run without train.resume, and set checkpoint.every_steps or checkpoint.every_epochs",
        )
    identity = first.identity
    if identity.world_size != world_size:
        raise ConfigError(
            f"train.resume={path}: the run to resume had {counted(identity.world_size, 'rank')}, this "
            f"run has {world_size}",
            hint=f"start {counted(identity.world_size, 'rank')}, or leave train.resume out",
        )
    complete = complete_steps(positions)
    if not complete:
        raise DataError(
            f"train.resume={path}: there is no checkpoint that all "
            f"{counted(identity.savers, 'saving rank')} have finished",
            hint="start without train.resume; set checkpoint.keep=2 to keep the checkpoint before the newest as well",
        )
    step = max(complete)
    places = {rank.places[step] for rank in positions if rank is not None}
    if len(places) != 1 or any(rank is None or rank.identity != identity for rank in positions):
        raise DataError(
            f"train.resume={path}: the ranks of that run have different positions", hint="start without train.resume"
        )
    return ResumePoint(run.path, step, first.places[step], identity)


def run_identity(
    config: Config, fmt: Format, world_size: int, sampler: BatchSampler | PipePlan | HeldPlan
) -> RunIdentity:
    """Returns the sample order and the data set to which the positions of a run belong.

    Args:
        config: the experiment.
        fmt: format of the data.
        world_size: number of ranks.
        sampler: the order of the rank's training samples.
    """
    path, hold = config.dataset.path, config.access.hold_steps
    data = str(Path(path).absolute()) if path is not None else data_folder(config, fmt).name
    order = fetched_by(sampler).state_dict()["pattern"] + (f", each batch for {hold} steps" if hold > 1 else "")
    savers = saving_ranks(config, world_size)
    return RunIdentity(world_size, savers, order, len(sampler), data)


def _check_identity(point: ResumePoint, identity: RunIdentity, config: Config) -> None:
    """Refuse to resume with another order of samples or other data, or when all epochs are done."""
    old, option = point.identity, f"train.resume={config.train.resume}"
    for name, before, now in (
        ("the data set", old.data, identity.data),
        ("the order", old.order, identity.order),
        ("the steps of an epoch", old.steps, identity.steps),
        ("the number of ranks that save", old.savers, identity.savers),
    ):
        if before != now:
            raise ConfigError(
                f"{option}: {name} of the run to resume: {before}; of this run: {now}",
                hint=(
                    "start this run with the recipe and options of the run to resume (config.yaml in its run directory)"
                ),
            )
    if point.begin(config)[0] > config.train.epochs:
        raise ConfigError(
            f"{option}: the last checkpoint of the run to resume, at step {point.checkpoint}, is already at the "
            f"end of train.epochs={config.train.epochs}",
            hint="raise train.epochs to continue the training",
        )
