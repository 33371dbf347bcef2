"""Positions of a training at its checkpoints, from which another run can continue with the next sample.

``position.rank<r>.json`` in the run directory has one entry for each checkpoint that a rank keeps: epoch, step,
evaluations so far, and the order and data that they belong to.  An entry is written when all files of the checkpoint
have their final names and before older checkpoints are deleted, so it stands for a complete checkpoint.  Files without
``{step}`` in their name are replaced; only their newest checkpoint has an entry.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError
from dlio_torch.files.atomic_file import renamed, temporary_name
from dlio_torch.run_directory.run_dir import RunDir
from dlio_torch.syserrors import refused

VERSION = 1


@dataclass(frozen=True)
class TrainingPosition:
    """Position in a training.

    Attributes:
        epoch: number of the epoch, from 1.
        step: steps of this epoch that are done.
        evaluations: evaluations that began before.
        eval_steps: steps of these evaluations.
    """

    epoch: int = 1
    step: int = 0
    evaluations: int = 0
    eval_steps: int = 0


@dataclass(frozen=True)
class RunIdentity:
    """Sample order and data set to which positions belong; in another order, positions have no meaning.

    Attributes:
        world_size: number of ranks.
        savers: number of ranks that save.
        order: pattern of the order of samples, from the plan's ``state_dict``.
        steps: steps of an epoch.
        data: folder name of a generated data set, or path of existing data.
    """

    world_size: int
    savers: int
    order: str
    steps: int
    data: str


@dataclass
class SavedPositions:
    """Positions of the checkpoints that one rank keeps.

    Args:
        path: the file.
        identity: order and data that the positions belong to.
        places: positions by step of the run.
    """

    path: Path
    identity: RunIdentity
    places: dict[int, TrainingPosition] = field(default_factory=dict)

    def write(self, step: int, place: TrainingPosition, kept: list[int]) -> None:
        """Write that the checkpoint of ``step`` is complete; drop the entries of steps that are not in ``kept``.

        Raises:
            DlioError: the file cannot be written (see :mod:`dlio_torch.syserrors`).
        """
        self.places[step] = place
        self.places = {number: self.places[number] for number in kept if number in self.places}
        content = {
            "version": VERSION,
            "identity": asdict(self.identity),
            "checkpoints": {str(number): asdict(position) for number, position in self.places.items()},
        }
        try:
            with renamed(temporary_name(self.path), self.path) as temporary:
                temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
        except OSError as error:
            raise refused(
                f"{self.path} cannot be written", error, elsewhere="set output.root to a writable file system"
            ) from error


def read(path: Path) -> SavedPositions | None:
    """Read the positions of a rank; ``None`` if it completed no checkpoint.

    Raises:
        DataError: the file is damaged.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise ValueError(f"the file has version {content['version']}, this program reads version {VERSION}")
        identity = RunIdentity(**content["identity"])
        places = {int(step): TrainingPosition(**place) for step, place in content["checkpoints"].items()}
        _check(identity, places)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(
            f"{path} cannot be read: {error.strerror}", hint="start the run without train.resume"
        ) from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}", hint="start the run without train.resume") from error
    return SavedPositions(path, identity, places)


def read_all(run: RunDir) -> list[SavedPositions | None]:
    """Reads the positions of all ranks that save; none if the first one completed no checkpoint.

    Raises:
        DataError: a file is damaged.
    """
    first = read(run.position(0))
    if first is None:
        return []
    return [first, *(read(run.position(rank)) for rank in range(1, first.identity.savers))]


def complete_steps(positions: Sequence[SavedPositions | None]) -> set[int]:
    """Steps whose checkpoint all ranks completed; none without ranks."""
    steps = [set() if rank is None else set(rank.places) for rank in positions]
    return set.intersection(*steps) if steps else set()


def _check(identity: RunIdentity, places: dict[int, TrainingPosition]) -> None:
    numbers = (identity.world_size, identity.savers, identity.steps)
    if not all(type(number) is int and number > 0 for number in numbers) or identity.savers > identity.world_size:
        raise ValueError("the number of ranks or steps is not positive")
    if not isinstance(identity.order, str) or not isinstance(identity.data, str):
        raise ValueError("the order or the data set is not text")
    for step, place in places.items():
        values = (place.epoch, place.step, place.evaluations, place.eval_steps)
        if not all(type(value) is int and value >= 0 for value in values) or place.step > identity.steps:
            raise ValueError(f"the position of step {step} does not exist in this sample order")
        if (place.epoch - 1) * identity.steps + place.step != step:
            raise ValueError(f"the position of step {step} belongs to another step")
