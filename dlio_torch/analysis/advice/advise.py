"""Advice after a run: what to change, on what evidence, and what that will bring.

Each rule looks at the figures of one run and gives an :class:`~dlio_torch.analysis.advice.evidence.Advice` that names
an option, its new value and the figures it rests on, or a sentence on why it says nothing although there was
reason to look, or nothing.  What a change of the loader will bring comes from a replay of the measured times
(:mod:`dlio_torch.analysis.advice.model`); where its inputs were not measured, or it does not agree with the run
itself, nothing is predicted.  Nothing at all is advised on a handful of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from dlio_torch.analysis.advice import layout as advice_layout
from dlio_torch.analysis.advice import loader as advice_loader
from dlio_torch.analysis.advice import memory as advice_memory
from dlio_torch.analysis.advice import run as advice_run
from dlio_torch.analysis.advice import workers as advice_workers
from dlio_torch.analysis.advice.choice import STARVED, TAKEN, Finding
from dlio_torch.analysis.advice.evidence import LEAST, MIN_STEPS, Advice, Evidence, gather
from dlio_torch.analysis.advice.text import percent
from dlio_torch.analysis.advice.workers import CROWDED
from dlio_torch.config.scaling import COMPUTE_ONLY

__all__ = ["RULES", "Advice", "Evidence", "advise", "gather"]

RULES: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    advice_loader.more_readers,
    advice_workers.fewer_workers,
    advice_loader.deeper_prefetch,
    advice_workers.hand_over,
    advice_layout.read_amplification,
    advice_layout.small_transfers,
    advice_layout.compression,
    advice_memory.in_memory,
    advice_run.persistent_workers,
    advice_run.pinned_memory,
    advice_run.checkpoints,
    advice_run.allreduce,
    advice_run.evaluation,
    advice_run.late_compute,
    advice_memory.cold_cache,
)
"""All rules, in the order in which advice of equal gain is given."""

SATURATED = 0.8
"""From this share of what the storage gives, it is what limits the run."""

_CAUSES = {
    "device": "the storage device",
    "page_cache": "copies out of the page cache",
    "decode": "decoding",
    "read": "reading",
    "preprocess": "preprocessing",
    "collate": "collation",
    "hand_over": "the hand-over of batches",
    "starved": "a CPU core",
    "not_started": "batches that were not begun",
}


def advise(evidence: Evidence) -> dict[str, Any]:
    """What to change.

    Returns:
        Plain values: ``conclusion``, one sentence on whether the loader is the bottleneck, or why that cannot be
        said; ``items``, the advice, the largest predicted gain first (fields of
        :class:`~dlio_torch.analysis.advice.evidence.Advice`); ``withheld``, one sentence for each rule that had
        reason to look and too little evidence; ``caveats``; ``model``, how well the model of the loader agrees with
        the run, None where there is none.
    """
    thin = _thin(evidence)
    items: list[Advice] = []
    withheld: list[str] = []
    for rule in () if thin else RULES:
        for found in rule(evidence):
            if isinstance(found, str):
                withheld.append(found)
            else:
                items.append(found)
    items = _best_of_each_key(items)
    model = evidence.model
    return {
        "conclusion": thin or _conclusion(evidence, items),
        "items": [item.to_json() for item in items],
        "withheld": withheld,
        "caveats": [] if thin else _caveats(evidence, items),
        "model": None
        if model is None
        else {
            "measured_step_s": model.measured.step_s,
            "modelled_step_s": model.modelled.step_s,
            "error": model.error,
            "batches": model.batches,
            "run_delay_share": model.starved,
        },
    }


def _best_of_each_key(items: list[Advice]) -> list[Advice]:
    """By predicted gain; of two values for one option the better one."""
    found: list[Advice] = []
    for item in sorted(items, key=lambda item: item.gain, reverse=True):
        if item.key is None or item.key not in {other.key for other in found}:
            found.append(item)
    return found


def _thin(evidence: Evidence) -> str | None:
    """Why nothing can be said; None where it can."""
    why = evidence.figure("train.why")
    if why:
        return f"No advice: {why}."
    replay = evidence.config.loader.replay
    if replay != "none":
        return f"No advice: loader.replay={replay} leaves out costs that a training has."
    steps = int(evidence.number("train.steps") or 0)
    if steps < MIN_STEPS:
        return (
            f"No advice: {MIN_STEPS} measured steps of each rank are needed, and this run has {steps}; "
            f"train.epochs={_enough_epochs(evidence, steps)} gives enough."
        )
    if evidence.number("shares.fetch") is None:
        return "No advice: how long steps waited for data was not measured."
    return None


def _enough_epochs(evidence: Evidence, steps: int) -> int:
    """Epochs with which a run of few steps has enough: they can be raised whatever the data and the scale are."""
    train = evidence.config.train
    warmup = int(evidence.number("warmup.steps") or 0)
    return math.ceil((MIN_STEPS + train.warmup_steps) * train.epochs / (steps + warmup))


def _conclusion(evidence: Evidence, items: list[Advice]) -> str:
    waits = percent(evidence.waits)
    if evidence.waits < LEAST:
        copies = (evidence.number("shares.copy") or 0.0) >= LEAST  # page-locked memory may make them faster
        most = "" if copies else ", which is the most that any setting of it could gain"
        return f"The loader is not the bottleneck: steps wait for data {waits} of the time{most}."
    storage = _storage(evidence)
    if storage is not None:
        return storage
    said = f"Steps wait for data {waits} of the time{_cause(evidence)}."
    if items:
        return said
    return f"{said} {_busy(evidence) or 'Nothing that was recorded says which setting would change that.'}"


def _busy(evidence: Evidence) -> str | None:
    """That the machine had too much to do to learn more from the run; None where it had not."""
    model = evidence.model
    starved = None if model is None else model.starved
    if starved is not None and starved >= STARVED:
        return (
            f"No core was free {percent(starved)} of the time in which batches were made, so nothing can be predicted: "
            "repeat the run while nothing else runs, or on more cores."
        )
    if model is not None and model.others >= TAKEN:
        busy = f"{model.others:.1f} cores busy"
        return f"Other work kept {busy}: a run while nothing else runs tells what more workers bring."
    return None


def _storage(evidence: Evidence) -> str | None:
    """That the storage is what limits the run; None where it is not, or where that was not measured."""
    most, same = evidence.number("storage.share_of_most"), evidence.number("storage.share")
    who = "page cache" if evidence.figure("storage.cached") == "warm" else "storage"
    waits = f"steps wait for data {percent(evidence.waits)} of the time"
    if most is not None and most >= SATURATED:
        return (
            f"The {who} is the bottleneck: it delivers {percent(most)} of the most that it was measured to give, and "
            f"{waits}; more workers or reading further ahead cannot help, reading fewer bytes does."
        )
    if same is not None and same >= SATURATED:
        return (
            f"The {who} is the bottleneck: it delivers {percent(same)} of what it was measured to give for requests of "
            f"this size and order, this many at once, and {waits}; larger requests, or more of them at once, can help."
        )
    return None


def _cause(evidence: Evidence) -> str:
    parts = {name: share for name in _CAUSES if (share := evidence.part(name)) is not None}
    largest = max(parts, key=lambda name: parts[name], default=None)
    if largest is None or parts[largest] < LEAST:
        return ""
    return f", {percent(parts[largest])} of that for {_CAUSES[largest]}"


def _caveats(evidence: Evidence, items: list[Advice]) -> list[str]:
    """What a reader of the conclusion, or of any advice, must know."""
    found = []
    scale = evidence.config.scale
    if scale.compute != 1 and evidence.waits >= LEAST:
        found.append(f"Compute is scaled by {scale.compute:g} (scale={scale.name}) {COMPUTE_ONLY}.")
    model = evidence.model
    if items and model is not None and model.starved is not None and model.starved >= CROWDED:
        wants = model.cpu_share * max(1, model.reading.makers)
        if model.cores is not None and wants <= model.cores:
            found.append(
                f"Batches waited for a core {percent(model.starved)} of the time in which they were made, though there "
                "are enough for this run: other programs used them."
            )
    return found
