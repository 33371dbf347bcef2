"""Rungs of the ladder: the same run several times, each time without one more of the loader's costs.

=============  ==========================================================================================
``configured`` as configured, whatever the page cache holds
``device``     all data in the page cache, and that was checked: nothing waits for storage
``reads``      read calls are answered from memory: a copy without a system call; opening and decoding as before
``decode``     finished samples come from memory: no file is opened, nothing decoded or preprocessed; they are
               still collated and handed over to the trainer
``hand_over``  finished batches come from the trainer's own memory: nothing of the loader is left
=============  ==========================================================================================

Beside the ladder, both sides by themselves: ``trainer``, the compute without loader, copies to a GPU,
allreduce, checkpoints and evaluation; ``loader``, the loader without all these.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from dlio_torch.config.schema import Config
from dlio_torch.data.engines.registry import facts

AXIS = "rung"
CONFIGURED, DEVICE, READS, DECODE, HAND_OVER = LADDER = ("configured", "device", "reads", "decode", "hand_over")
TRAINER, LOADER = "trainer", "loader"

WITHOUT_EXTRAS = (
    "train.eval_every_epochs=0",
    "train.eval_every_steps=0",
    "checkpoint.layout=none",
    "checkpoint.every_steps=0",
    "checkpoint.every_epochs=0",
    "checkpoint.restore=false",
)
"""Arguments of a run that neither evaluates nor saves checkpoints."""
_NO_EXTRAS = ("train.device=cpu", "train.allreduce_bytes=0", *WITHOUT_EXTRAS)
_ANY_CACHE = ("cache.state=as_is", "cache.every_epoch=false")  # nothing is read in the steps
_WARM = ("cache.state=warm", "dataset.direct_io=false")


@dataclass(frozen=True)
class Rung:
    """One variant of the configured run, without some costs.

    Attributes:
        name: see the module; identifies it in files.
        left: what is left, in a few words.
        removed: what is gone beside what was gone before; ``""`` for the first.
        settings: what it changes.
        skipped: why it is not run; ``""``: it is.
        costless: where it is not run, whether that is because there is no such cost.
    """

    name: str
    left: str
    removed: str = ""
    settings: tuple[str, ...] = ()
    skipped: str = ""
    costless: bool = True

    @property
    def title(self) -> str:
        """Name of the rung; a table whose column is headed "without" omits this word."""
        return f"without {self.removed}" if self.name in LADDER[1:] else self.left


def rungs(config: Config, needs_files: bool) -> tuple[Rung, ...]:
    """Returns the rungs of a configuration, and loader and trainer alone; rungs that do not apply have a reason.

    Args:
        config: as configured.
        needs_files: whether its format reads files.
    """
    loader = config.loader
    idle = "" if needs_files else "no files are read"
    idle = "the data are read into memory before training" if loader.in_memory else idle
    warm = "the page cache is warm as configured" if config.cache.state == "warm" else ""
    posix = "trace.posix=true records the calls that this rung leaves out" if config.trace.posix else ""
    emulates = config.compute.emulated_step_s > 0
    silent = "" if emulates else "no compute is emulated"
    cut = facts(loader.engine).reads_ranges
    finished = "samples are already decoded and in memory as configured" if loader.in_memory else ""
    decoding = "decoding and preprocessing" if needs_files else "preprocessing"
    return (
        Rung(CONFIGURED, "as configured"),
        Rung(DEVICE, "page cache warm", "storage device", _WARM, idle or warm),
        Rung(READS, "reads from memory", "read calls", (*_WARM, "loader.replay=reads"), idle or posix, bool(idle)),
        Rung(
            DECODE,
            "finished samples",
            decoding,
            (*_ANY_CACHE, "loader.replay=samples"),
            "batches are cut directly from the read buffers, so there are no decoded samples" if cut else finished,
            not cut,
        ),
        Rung(
            HAND_OVER,
            "finished batches",
            f"{decoding}, cutting and transfer" if cut else "collation and transfer",
            (*_ANY_CACHE, "loader.replay=batches"),
        ),
        Rung(
            TRAINER,
            "compute alone",
            "copies to a GPU, allreduce, checkpoints and evaluation",
            (*_ANY_CACHE, "loader.replay=batches", *_NO_EXTRAS),
            silent or ("" if _has_extras(config) else "the trainer does nothing but compute"),
        ),
        Rung(
            LOADER,
            "loader alone",
            "compute and all other work of the trainer",
            ("compute.mode=none", *_NO_EXTRAS),
            silent,
        ),
    )


def order(names: Collection[str], number: int) -> list[str]:
    """Returns the rungs in the order of a round, in which rungs that are compared run one after the other.

    The load of a machine changes by the minute, so the two runs of a comparison should be neighbours in time.  The
    ladder is run as a ring, for its two ends are compared, too.  It is opened at another place in each round, never
    between its ends, and run the other way round in every second one: what gets steadily slower cancels.

    Args:
        names: of the rungs that are run.
        number: of the round, from 1.
    """
    ring = [name for name in LADDER if name in names]
    sides = [name for name in (TRAINER, LOADER) if name in names]
    cut = 1 + (number - 1) % max(1, len(ring) - 1)
    ring = ring[cut:] + ring[:cut]
    return [*reversed(ring), *sides] if number % 2 else [*ring, *reversed(sides)]


def common_settings(config: Config) -> tuple[str, ...]:
    """Returns the arguments of all runs, which turn off checks and thresholds."""
    changes = []
    if config.verify:
        changes.append("verify=false")
    if config.train.min_au:
        changes.append("train.min_au=0")
    return tuple(changes)


def _has_extras(config: Config) -> bool:
    train = config.train
    evaluates = bool(train.eval_every_epochs or train.eval_every_steps)
    return evaluates or train.device != "cpu" or train.allreduce_bytes > 0 or config.checkpoint.layout != "none"
