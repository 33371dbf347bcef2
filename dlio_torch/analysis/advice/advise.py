"""Derives advice from a finished run: option changes, their evidence, and the predicted gain.

Each rule looks at the figures of one run and gives an :class:`~dlio_torch.analysis.advice.advice_item.Advice` that
names an option, its new value and the figures it rests on, or a sentence on why it says nothing although there was
reason to look, or nothing.  What a change of the loader will bring comes from a replay of the measured times
(:mod:`dlio_torch.analysis.advice.loader_model`); where its inputs were not measured, or it does not agree with the run
itself, nothing is predicted.  Nothing at all is advised on a handful of steps.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from typing import Any

from dlio_torch.analysis.advice import (
    checkpoint_rules,
    layout_rules,
    loader_rules,
    memory_rules,
    run_rules,
    worker_rules,
)
from dlio_torch.analysis.advice.advice_item import Advice
from dlio_torch.analysis.advice.choice import STARVED, TAKEN, Finding
from dlio_torch.analysis.advice.evidence import LEAST, MIN_STEPS, Evidence, gather
from dlio_torch.analysis.advice.worker_rules import CROWDED
from dlio_torch.config.scaling import COMPUTE_ONLY
from dlio_torch.units import percent

__all__ = ["RULES", "Advice", "Evidence", "advise", "gather"]

RULES: tuple[Callable[[Evidence], Iterator[Finding]], ...] = (
    loader_rules.more_readers,
    worker_rules.fewer_workers,
    loader_rules.deeper_prefetch,
    worker_rules.hand_over,
    layout_rules.read_amplification,
    layout_rules.small_transfers,
    layout_rules.compression,
    memory_rules.in_memory,
    run_rules.persistent_workers,
    run_rules.pinned_memory,
    checkpoint_rules.checkpoints,
    run_rules.allreduce,
    run_rules.evaluation,
    run_rules.late_compute,
    memory_rules.cold_cache,
)
"""All rules; advice of equal gain keeps their order."""

SATURATED = 0.8
"""Share of the storage's largest measured rate above which the storage counts as the bottleneck."""

_CAUSES = {
    "device": "the storage device",
    "page_cache": "copying data out of the page cache",
    "decode": "decoding",
    "read": "reading",
    "preprocess": "preprocessing",
    "collate": "collation",
    "hand_over": "the transfer of finished batches to the trainer",
    "starved": "a lack of CPU cores",
    "not_started": "batches that no worker had begun",
}


def advise(evidence: Evidence) -> dict[str, Any]:
    """Gives advice on a finished run.

    Returns:
        Plain values: ``conclusion``, one sentence on whether the loader is the bottleneck, or why that cannot be
        said; ``items``, the advice, the largest predicted gain first (fields of
        :class:`~dlio_torch.analysis.advice.advice_item.Advice`); ``withheld``, one sentence for each rule that had
        reason to look and too little evidence; ``caveats``; ``model``, how well the model of the loader agrees with
        the run, None where there is none.
    """
    thin = _thin(evidence)
    items: list[Advice] = []
    withheld: list[str] = []
    for rule in () if thin else RULES:
        for finding in rule(evidence):
            if isinstance(finding, str):
                withheld.append(finding)
            else:
                items.append(finding)
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
    """Sorts advice by predicted gain; keeps the better of two values for one option."""
    advice: list[Advice] = []
    for item in sorted(items, key=lambda item: item.gain, reverse=True):
        if item.key is None or item.key not in {other.key for other in advice}:
            advice.append(item)
    return advice


def _thin(evidence: Evidence) -> str | None:
    """Reason why no advice on this run is possible; None if advice is possible."""
    why = evidence.figure("train.why")
    if why:
        return f"No advice: {why}."
    replay = evidence.config.loader.replay
    if replay != "none":
        return f"No advice: loader.replay={replay} leaves out costs of the loader that a real training pays."
    steps = int(evidence.number("train.steps") or 0)
    if steps < MIN_STEPS:
        return (
            f"No advice: each rank needs at least {MIN_STEPS} measured steps, but this run has {steps}; set "
            f"train.epochs={_enough_epochs(evidence, steps)} for enough steps."
        )
    if evidence.number("shares.fetch") is None:
        return "No advice: the time that steps waited for data was not measured."
    return None


def _enough_epochs(evidence: Evidence, steps: int) -> int:
    """Number of epochs that gives a short run enough measured steps; epochs can be raised for any data and scale."""
    train = evidence.config.train
    warmup = int(evidence.number("warmup.steps") or 0)
    return math.ceil((MIN_STEPS + train.warmup_steps) * train.epochs / (steps + warmup))


def _conclusion(evidence: Evidence, items: list[Advice]) -> str:
    waits = percent(evidence.waits)
    if evidence.waits < LEAST:
        copies = (evidence.number("shares.copy") or 0.0) >= LEAST  # page-locked memory may make them faster
        most = "" if copies else ", and no change of the loader can save more than that"
        return f"The loader is not the bottleneck: steps wait for data {waits} of the time{most}."
    storage = _storage(evidence)
    if storage is not None:
        return storage
    said = f"Steps wait for data {waits} of the time{_cause(evidence)}."
    if items:
        return said
    return f"{said} {_busy(evidence) or 'No recorded figure shows which setting would change that.'}"


def _busy(evidence: Evidence) -> str | None:
    """Sentence that the machine was too busy for more advice; None if it was not too busy."""
    model = evidence.model
    starved = None if model is None else model.starved
    if starved is not None and starved >= STARVED:
        return (
            f"Batches that were in production waited for a CPU core {percent(starved)} of the time, so no prediction "
            "is possible: repeat the run on an idle machine or on more cores."
        )
    if model is not None and model.others >= TAKEN:
        busy = f"{model.others:.1f} CPU cores busy"
        return f"Other programs kept {busy}: repeat the run on an idle machine to learn whether more workers help."
    return None


def _storage(evidence: Evidence) -> str | None:
    """Sentence that the storage limits the run; None if it does not, or if the storage rate was not measured."""
    most, same = evidence.number("storage.share_of_most"), evidence.number("storage.share")
    who = "page cache" if evidence.figure("storage.cached") == "warm" else "storage"
    waits = f"steps wait for data {percent(evidence.waits)} of the time"
    if most is not None and most >= SATURATED:
        return (
            f"The {who} is the bottleneck: it delivers {percent(most)} of its largest measured rate, and {waits}. "
            "More workers or deeper prefetching cannot help; reading fewer bytes can."
        )
    if same is not None and same >= SATURATED:
        return (
            f"The {who} is the bottleneck: it delivers {percent(same)} of the rate measured for requests of this "
            f"size, order and concurrency, and {waits}. Larger requests, or more concurrent requests, can help."
        )
    return None


def _cause(evidence: Evidence) -> str:
    parts = {name: share for name in _CAUSES if (share := evidence.part(name)) is not None}
    largest = max(parts, key=lambda name: parts[name], default=None)
    if largest is None or parts[largest] < LEAST:
        return ""
    return f", {percent(parts[largest])} of this time because of {_CAUSES[largest]}"


def _caveats(evidence: Evidence, items: list[Advice]) -> list[str]:
    """Caveats that apply to the conclusion and to all advice."""
    notes = []
    scale = evidence.config.scale
    if scale.compute != 1 and evidence.waits >= LEAST:
        notes.append(f"Compute is scaled by {scale.compute:g} (scale={scale.name}) {COMPUTE_ONLY}.")
    model = evidence.model
    if items and model is not None and model.starved is not None and model.starved >= CROWDED:
        wants = model.cpu_share * max(1, model.setup.producers)
        if model.cores is not None and wants <= model.cores:
            notes.append(
                f"Batches in production waited for a CPU core {percent(model.starved)} of the time, although the "
                "machine has enough cores for this run: other programs used the cores; repeat the run on an idle "
                "machine."
            )
    return notes
