"""Commands to kill: one for each kind of work that writes, with the data that it needs."""

from __future__ import annotations

import sys
from dataclasses import dataclass

RECIPE = "recipe=minimal"
SMALL = (RECIPE, "scale=tiny", "storage.limits=off", "output.progress=false", "dataset.num_files=8")
RECORDED = "recorded"
STUDY = "study"
_RUN = ("run", *SMALL, "verify=true")
_READ = ("train", *SMALL, "verify=true")
_PROGRAM = """
from pathlib import Path
files = [Path(f"out{number}") for number in range(20)]
for file in files:
    file.write_bytes(bytes(100_000))
for file in files:
    file.read_bytes()
    file.unlink()
"""


@dataclass(frozen=True)
class Case:
    """A command to kill, and its preparation.

    Attributes:
        name: of the case.
        command: arguments of ``python -m dlio_torch``.
        before: commands that prepare its folder.
        after: commands that must work when it was killed and then done.
        ranks: processes of torchrun; 1: without.
        weight: how many points it gets, compared with others; 0: only where it is asked for by its name.
        others: whether it has processes beside the first that can be killed and lead to a failure only.
    """

    name: str
    command: tuple[str, ...]
    before: tuple[tuple[str, ...], ...] = ()
    after: tuple[tuple[str, ...], ...] = ()
    ranks: int = 1
    weight: int = 2
    others: bool = False


def _writing(name: str, *options: str, weight: int = 2, before: bool = False) -> Case:
    """A case that generates data, whose files are then read and compared."""
    made = ("generate", *SMALL, *options)
    earlier = tuple(one for one in made if not one.startswith("generate.overwrite"))
    return Case(name, made, (earlier,) if before else (), ((*_READ, *options),), weight=weight)


def _reading(name: str, *options: str, weight: int = 2, ranks: int = 1, others: bool = False) -> Case:
    """A case that reads existing data and compares each sample."""
    data = tuple(one for one in options if one.startswith("dataset"))
    return Case(name, (*_RUN, *options), (("generate", *SMALL, *data),), ranks=ranks, weight=weight, others=others)


CASES = (
    _writing("generate", weight=3),
    _writing("generate, overwriting", "generate.overwrite=true", before=True),
    _writing("generate, folders", "dataset=adios2"),
    _writing("generate, folders, overwriting", "dataset=adios2", "generate.overwrite=true", before=True),
    _writing("generate, two files each", "dataset=tfrecord_indexed", weight=1),
    _reading("train, workers", "loader=workers", weight=3, others=True),
    _reading("train, decoupled workers", "loader=decoupled", "loader.num_workers=2", weight=3, others=True),
    _reading("train, nodes", "loader.num_workers=2", "loader.engine=nodes", others=True),
    _reading("train, in memory", "loader=in_memory", weight=1),
    _reading("train, stream", "dataset=tfrecord", "access=stream", "loader=workers", others=True),
    _reading("train, two ranks", ranks=2, weight=1, others=True),
    _reading("checkpoint, torch", "checkpoint=torch_save", "checkpoint.state_bytes=1MiB", "checkpoint.every_steps=1"),
    _reading("checkpoint, files", "checkpoint=dlio", "checkpoint.every_steps=1"),
    _reading("stage", "stage.dir=local", "stage.every_epoch=true", "train.epochs=2", weight=3),
    _reading("stage, kept", "stage.dir=local", "stage.keep=true"),
    _reading("run with recorder", "trace.posix=true", "trace.profiler=true", "loader=workers", others=True),
    Case(
        "sweep",
        ("sweep", *SMALL, "loader.num_workers=0,1", "repeats=1", f"output={STUDY}"),
        (("generate", *SMALL),),
        weight=3,
    ),
    Case("tune", ("tune", *SMALL, "trials=8", "repeats=3", f"output={STUDY}"), (("generate", *SMALL),), weight=0),
    Case(
        "report",
        ("report", RECORDED),
        ((*_RUN, "trace.posix=true", f"output.dir={RECORDED}"),),
    ),
    Case("trace", ("trace", "--", sys.executable, "-c", _PROGRAM)),
)
