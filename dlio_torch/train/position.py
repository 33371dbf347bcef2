"""Where the training was when a checkpoint was complete: what a run needs to go on with the next sample.

Of each checkpoint that a rank keeps, ``position.rank<r>.json`` in the run directory holds one entry: epoch and step,
evaluations so far, and what they belong to.  It is written when all files of the checkpoint have their names and before
older ones are deleted, so an entry means a whole checkpoint.  (Files without ``{step}`` in their name are replaced: of
those only the newest checkpoint lies there, and it counts once all of its files are new.)
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from dlio_torch.errors import DataError
from dlio_torch.storage.local.atomic_file import renamed, temporary_name
from dlio_torch.syserrors import refused

VERSION = 1


@dataclass(frozen=True)
class Place:
    """A place in a training.

    Attributes:
        epoch: from 1.
        step: of this epoch that is done; 0: none.
        evaluations: evaluations that were begun before.
        eval_steps: their steps.
    """

    epoch: int = 1
    step: int = 0
    evaluations: int = 0
    eval_steps: int = 0


@dataclass(frozen=True)
class Identity:
    """What places belong to: they mean nothing in another order of samples.

    Attributes:
        world_size: ranks.
        savers: how many of them save.
        order: the pattern of the loader's samples, as its ``state_dict`` has it.
        steps: steps of an epoch.
        data: name of the data set: of its folder, or of existing data the path.
    """

    world_size: int
    savers: int
    order: str
    steps: int
    data: str


@dataclass
class Positions:
    """The places of the checkpoints that one rank keeps.

    Args:
        path: the file.
        identity: what they belong to.
        places: by step of the run.
    """

    path: Path
    identity: Identity
    places: dict[int, Place] = field(default_factory=dict)

    def write(self, step: int, place: Place, kept: list[int]) -> None:
        """Take down that the checkpoint of ``step`` is complete; forget those that are not in ``kept``.

        Raises:
            DlioError: the file cannot be written (see :mod:`dlio_torch.syserrors`).
        """
        self.places[step] = place
        self.places = {number: self.places[number] for number in kept if number in self.places}
        content = {
            "version": VERSION,
            "identity": asdict(self.identity),
            "checkpoints": {str(number): asdict(one) for number, one in self.places.items()},
        }
        try:
            with renamed(temporary_name(self.path), self.path) as temporary:
                temporary.write_text(json.dumps(content) + "\n", encoding="utf-8")
        except OSError as error:
            raise refused(f"{self.path} cannot be written", error, elsewhere="set output.root") from error


def read(path: Path) -> Positions | None:
    """The places that a rank left behind; ``None`` where it has finished no checkpoint.

    Raises:
        DataError: the file is damaged.
    """
    try:
        content: Any = json.loads(path.read_text(encoding="utf-8"))
        if content["version"] != VERSION:
            raise ValueError(f"its version is {content['version']}, this program reads {VERSION}")
        identity = Identity(**content["identity"])
        places = {int(step): Place(**place) for step, place in content["checkpoints"].items()}
        _check(identity, places)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise DataError(f"{path} cannot be read: {error.strerror}", hint="start the run anew") from error
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise DataError(f"{path} is damaged: {error}", hint="start the run anew") from error
    return Positions(path, identity, places)


def _check(identity: Identity, places: dict[int, Place]) -> None:
    numbers = (identity.world_size, identity.savers, identity.steps)
    if not all(type(number) is int and number > 0 for number in numbers) or identity.savers > identity.world_size:
        raise ValueError("its ranks or steps are no numbers")
    if not isinstance(identity.order, str) or not isinstance(identity.data, str):
        raise ValueError("its order or data are no text")
    for step, place in places.items():
        values = (place.epoch, place.step, place.evaluations, place.eval_steps)
        if not all(type(value) is int and value >= 0 for value in values) or place.step > identity.steps:
            raise ValueError(f"the place of step {step} is none")
        if (place.epoch - 1) * identity.steps + place.step != step:
            raise ValueError(f"the place of step {step} is that of another step")
