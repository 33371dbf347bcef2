"""For each component of a comparison, the option that closes a gap between a recording (A) and an emulated run (B).

A component without such an option says why there is none.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from dlio_torch.iotrace.events.call_names import CLOSE, MAP, META, OPEN, READ, SEEK, SYNC, WRITE
from dlio_torch.iotrace.fidelity.components import Comparison, Component

Direction = Literal["raise", "lower", "set"]
_OF_FORMAT = "the options of its format (`explain dataset.<format>`)"


@dataclass(frozen=True)
class Remedy:
    """Change to the options of side B that brings a component closer to side A.

    Attributes:
        option: dotted key of the option, or group of options; ``None``: no option changes the component.
        direction: what to do with its value; ``None`` without an option.
        text: the advice, or the reason why there is none; one line.
    """

    option: str | None
    direction: Direction | None
    text: str


Rule = Callable[[float, float], Remedy]
"""Function of the figures of A and B; both are 0 where no single number describes a side."""


def remedy(component: Component) -> Remedy:
    """The remedy of a component in which the sides differ."""
    return RULES[component.name](*(component.values or (0.0, 0.0)))


def remedies(comparison: Comparison) -> dict[str, Remedy]:
    """Remedies by the names of the components that are off, worst first."""
    return {component.name: remedy(component) for component in comparison.components if not component.alike}


def _with_more(option: str, more: str, less: str) -> Rule:
    """Rule for an option that raises the component: ``more`` is the advice if B has too little of it."""
    return lambda a, b: Remedy(option, "raise", more) if b < a else Remedy(option, "lower", less)


def _with_less(option: str, more: str, less: str) -> Rule:
    """Rule for an option that lowers the component: ``more`` is the advice if B has too little of it."""
    return lambda a, b: Remedy(option, "lower", more) if b < a else Remedy(option, "raise", less)


def _choice(option: str, more: str, less: str) -> Rule:
    """Rule for an option with named values: ``more`` is the advice if B has too little of the component."""
    return lambda a, b: Remedy(option, "set", more if b < a else less)


def _setting(option: str, text: str) -> Rule:
    return lambda a, b: Remedy(option, "set", text)


def _none(reason: str) -> Rule:
    return lambda a, b: Remedy(None, None, reason)


_AMOUNT = _with_more(
    "train.epochs",
    "raise train.epochs or train.steps, or enlarge the samples (dataset.fields)",
    "lower train.epochs or train.steps, or make the samples smaller (dataset.fields)",
)
_READ_SIZES = _choice(
    "dataset",
    f"enlarge the chunks, buffer or transfers: {_OF_FORMAT}, or raise loader.transfer_size",
    f"make the chunks, buffer or transfers smaller: {_OF_FORMAT}, or lower loader.transfer_size",
)
_READS = _choice(
    "dataset",
    f"read more samples (train.steps, train.epochs), or smaller chunks or transfers: {_OF_FORMAT}",
    f"read fewer samples (train.steps, train.epochs), or larger chunks or transfers: {_OF_FORMAT}",
)
_READS_PER_MIB = _choice(
    "dataset",
    f"make the chunks, buffer or transfers smaller: {_OF_FORMAT}, or lower loader.transfer_size",
    f"enlarge the chunks, buffer or transfers: {_OF_FORMAT}, or raise loader.transfer_size",
)
_OPENS = _with_less(
    "loader.max_open_files",
    f"lower loader.max_open_files, or reopen files more often: {_OF_FORMAT}",
    f"raise loader.max_open_files, or keep files open: {_OF_FORMAT}",
)
_WRITES = _choice(
    "checkpoint.every_steps",
    "save more often (checkpoint.every_steps, every_epochs), or in smaller pieces (checkpoint.layout)",
    "save less often (checkpoint.every_steps, every_epochs), or in larger pieces (checkpoint.layout)",
)
_WRITE_ORDER = _setting("checkpoint.layout", "choose the layout of the program's checkpoints (checkpoint.layout)")
_READ_ORDER = _choice(
    "access.order",
    "read in order: access.order=sequential, or access.unit=block",
    "read in random order: access.order=shuffled",
)
_STORAGE = _none("no option: the storage and its page cache decide it; compare on one storage in one cache state")

RULES: dict[str, Rule] = {
    f"{OPEN} count": _OPENS,
    "opens per file": _OPENS,
    f"{CLOSE} count": _none("no option: files are closed as often as they are opened; see the opens"),
    f"{READ} count": _READS,
    "reads per MiB": _READS_PER_MIB,
    f"{READ} sizes": _READ_SIZES,
    f"{READ} bytes": _AMOUNT,
    f"{WRITE} count": _WRITES,
    "writes per MiB": _WRITE_ORDER,
    f"{WRITE} sizes": _WRITE_ORDER,
    f"{WRITE} bytes": _with_more(
        "model",
        "enlarge the saved state (model, checkpoint.state_bytes), or save more often (checkpoint.every_steps)",
        "make the saved state smaller (model, checkpoint.state_bytes), or save less often (checkpoint.every_steps)",
    ),
    f"{SEEK} count": _none("no option: seeks follow from the library that reads; they move no data"),
    f"{MAP} count": _choice(
        "dataset",
        f"read mapped files: {_OF_FORMAT}",
        f"read without mapping: {_OF_FORMAT}",
    ),
    f"{SYNC} count": _choice(
        "checkpoint.fsync",
        "checkpoint.fsync=true, or checkpoint.sync_files=true with layout=dcp",
        "checkpoint.fsync=false, and checkpoint.sync_files=false with layout=dcp",
    ),
    f"{META} count": _none("no option: it counts stat, fstat, access and the like, which move no data"),
    "calls by class": _none("no option of its own: the opens and reads per file decide it"),
    "bytes by file": _setting(
        "access.partition", "choose which samples are read (access.partition, access.order), or the size of the files"
    ),
    "files": _with_more("dataset.num_files", "raise dataset.num_files", "lower dataset.num_files"),
    f"{READ} jumps": _setting("access.order", "choose the order of the samples (access.order, access.unit)"),
    f"{WRITE} jumps": _WRITE_ORDER,
    f"{READ} stretches": _READ_ORDER,
    f"{WRITE} stretches": _WRITE_ORDER,
    **{f"{rule} reads{per}": _READ_ORDER for rule in ("sequential", "consecutive") for per in ("", " per stream")},
    **{f"{rule} writes{per}": _WRITE_ORDER for rule in ("sequential", "consecutive") for per in ("", " per stream")},
    "order": _setting("access.order", "choose the order of the samples (access.order, access.interleave)"),
    "operations": _none("no option of its own: the counts of calls and the order of reads decide it"),
    "readers": _with_more(
        "loader.num_workers",
        "raise loader.num_workers, or loader.read_threads",
        "lower loader.num_workers, or loader.read_threads",
    ),
    **{f"{name} {figure}": _STORAGE for name in (READ, WRITE) for figure in ("durations", "bandwidth")},
    "overlap": _with_more(
        "loader.prefetch_factor",
        "raise loader.prefetch_factor or loader.num_workers, or compute.step_s",
        "lower loader.prefetch_factor or loader.num_workers, or compute.step_s",
    ),
    "exposed I/O": _with_less(
        "compute.step_s",
        "lower compute.step_s, or loader.prefetch_factor",
        "raise compute.step_s, or loader.prefetch_factor",
    ),
}
"""Rules of all components."""
