"""Verdict on a node: the first limit below the demand of its accelerators, in one sentence."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from dlio_torch.node.demand import NodeDemand
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.units import counted, format_number, format_rate

_COPIES = ("copy_pageable", "copy_pinned")
# A first epoch meets neither large reads nor cached ones, and the compute is the demand itself.
_NOT_COUNTED = ("storage_large", "page_cache", "compute")


@dataclass(frozen=True)
class NodeVerdict:
    """Verdict on a node.

    Attributes:
        sentence: the verdict for people.
        feeds: whether every limit reaches the demand; ``None``: unknown.
        first_limit: name of the smallest limit; ``None``: nothing was measured.
        ratio: samples per second of that limit over those of the demand; ``None``: unknown.
        alone: whether that limit was measured alone; ``None``: there is none.
    """

    sentence: str
    feeds: bool | None = None
    first_limit: str | None = None
    ratio: float | None = None
    alone: bool | None = None

    def to_record(self) -> dict[str, Any]:
        """The verdict as JSON-ready values."""
        return asdict(self)


def verdict_of(
    demand: NodeDemand, alone: Sequence[NodeLimit], combined: Sequence[NodeLimit], recipe: str
) -> NodeVerdict:
    """Compares the demand with the limits, first with those measured alone.

    Args:
        demand: of all accelerators.
        alone: limits, each measured alone.
        combined: limits that were measured at the same time.
        recipe: name of the recipe.
    """
    first, rate = first_limit(alone), demand.samples_per_s
    if rate is None:
        return _without_demand(first, demand)
    need = f"{accelerators_text(demand)} of {recipe} need{'s' * (demand.accelerators == 1)} {_rates(rate, demand)}"
    if first is None:
        return NodeVerdict(f"{need}; no limit of this node could be measured.")
    if _samples(first) < rate:
        sentence = f"{need}; the first limit is {_improve(first, demand)}"
        return NodeVerdict(sentence, False, first.name, _samples(first) / rate, True)
    shared = first_limit(combined)
    if shared is not None and _samples(shared) < rate:
        sentence = (
            f"{need}; each limit alone is above that, but with all at the same time the first limit is "
            f"{_improve(shared, demand)}"
        )
        return NodeVerdict(sentence, False, shared.name, _samples(shared) / rate, False)
    lowest = min((limit for limit in (first, shared) if limit is not None), key=_samples)
    sentence = (
        f"{need}; this node feeds {'them' if demand.accelerators > 1 else 'it'}: the first limit would be "
        f"{lowest.resource}, at {format_number(_samples(lowest) / rate)} times the demand."
    )
    return NodeVerdict(sentence, True, lowest.name, _samples(lowest) / rate, lowest.alone)


def first_limit(limits: Sequence[NodeLimit]) -> NodeLimit | None:
    """The smallest limit that a training meets; ``None`` if none was measured.

    Large reads of the storage, reads from the page cache and the compute do not count.  Of the two kinds of copies to
    a GPU the faster one counts, because ``loader.pin_memory`` chooses between them.
    """
    counting = [limit for limit in limits if limit.samples_per_s is not None and limit.name not in _NOT_COUNTED]
    copies = [limit for limit in counting if limit.name in _COPIES]
    best = max(copies, key=_samples, default=None)
    return min((limit for limit in counting if limit not in copies or limit is best), key=_samples, default=None)


def accelerators_text(demand: NodeDemand) -> str:
    """Number of accelerators in words: ``8 GPUs``, ``1 accelerator``."""
    return counted(demand.accelerators, "GPU" if demand.source == "visible GPUs" else "accelerator")


def _without_demand(first: NodeLimit | None, demand: NodeDemand) -> NodeVerdict:
    sentence = f"There is no demand to compare with: {demand.why}"
    if first is None:
        return NodeVerdict(f"{sentence}; no limit of this node could be measured.")
    text = f"{sentence}; the first limit is {first.resource}, at {_rates(_samples(first), demand)}."
    return NodeVerdict(text, None, first.name, None, True)


def _improve(limit: NodeLimit, demand: NodeDemand) -> str:
    return f"{limit.resource}, at {_rates(_samples(limit), demand)}: improve {limit.resource} first."


def _samples(limit: NodeLimit) -> float:
    """Samples per second of a limit that was measured."""
    return limit.samples_per_s or 0.0


def _rates(samples_per_s: float, demand: NodeDemand) -> str:
    """Samples per second, and the bytes of their files."""
    text = f"{format_number(samples_per_s)} samples/s"
    size = demand.stored_sample_bytes or demand.sample_bytes
    return f"{text} ({format_rate(samples_per_s * size)})" if size else text
