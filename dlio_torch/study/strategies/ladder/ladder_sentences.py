"""Sentences on the result of a ladder; each sentence names its figures."""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.study.strategies.ladder.bottleneck import ends_low, is_bottleneck, unclear
from dlio_torch.study.strategies.ladder.effects import Effect
from dlio_torch.study.strategies.ladder.gains import Gain, gain
from dlio_torch.study.strategies.ladder.rungs import CONFIGURED, HAND_OVER, LADDER, LOADER, TRAINER
from dlio_torch.study.values import listed
from dlio_torch.units import format_duration, percent

_PARTS = {
    "copy": "copying batches to the GPU",
    "compute": "the emulated compute",
    "allreduce": "the allreduce of the gradient",
    "checkpoint": "saving checkpoints",
    "between_epochs": "the work between epochs",
    "other": "the tool's own work",
    "fetch": "transferring batches that are ready",
}
_ROUNDING = 1.01
"""Relative difference below which two sums are reported as equal."""


def sentences(effects: Sequence[Effect]) -> tuple[str, ...]:
    """Returns the verdict, followed by its evidence."""
    by_name = {item.rung.name: item for item in effects}
    first, last = by_name[CONFIGURED], by_name[HAND_OVER]
    if last.gain is None:
        missing = first if first.why else last
        return (f"Whether the loader is the bottleneck was not measured: {missing.rung.title}: {missing.why}.",)
    verdict = is_bottleneck(effects)
    costs = [_costs(effects, last.gain), _unclear(effects)] if verdict else []
    lines = [_verdict(verdict, last.gain, first, last), *costs, _sides(by_name)]
    return tuple(line for line in lines if line)


def _verdict(verdict: bool | None, whole: Gain, first: Effect, last: Effect) -> str:
    evidence = ", ".join([_times(first, last), *_utilisation(first, last)])
    if verdict:
        return (
            f"The loader is the bottleneck: without any of its cost the throughput is {whole.ratio:.3g} times as high "
            f"({_interval(whole)}; {evidence})."
        )
    if verdict is False and not ends_low(whole):
        waits = percent(first.shares.get("fetch", 0.0))
        return (
            f"The loader is not the bottleneck: a step waits for data for {waits} of its time, and the gain from "
            f"removing all of the loader's cost is within noise ({_interval(whole)}; {evidence}).{_instead(last)}"
        )
    if verdict is False:
        gained = f"gains at most {100 * max((whole.high or 1) - 1, 0):.2g} % of throughput"
        doubt = "" if whole.beyond_noise else ", nothing beyond noise"
        return (
            f"The loader is not the bottleneck: removing all of its cost {gained}{doubt} ({evidence}).{_instead(last)}"
        )
    return (
        "Noise hides whether the loader is the bottleneck: without any cost of the loader the throughput is "
        f"{whole.ratio:.3g} times as high ({_interval(whole)}; {evidence}); set more rounds (repeats=) or more "
        "steps to decide."
    )


def _times(first: Effect, last: Effect) -> str:
    if first.step_s is None or last.step_s is None:
        return ""
    before, after = format_duration(first.step_s), format_duration(last.step_s)
    waits = f", {percent(first.shares['fetch'])} of it waiting for data" if "fetch" in first.shares else ""
    return f"a step takes {before}{waits}, without the loader {after}"


def _costs(effects: Sequence[Effect], whole: Gain) -> str:
    """Returns the sentence on the share of each cost in the cost of the loader."""
    local = [(item.cost, item.rung.removed) for item in effects if item.cost is not None]
    real = sorted(
        ((item.seconds, name) for item, name in local if item.beyond_noise and item.seconds > 0), reverse=True
    )
    if not real:
        return "No single cost of the loader stands out from noise."
    (most, name), *others = real
    rest = "".join(f", {other}: {format_duration(seconds)}" for seconds, other in others)
    hidden = [item.rung.removed for item in effects if item.rung.name in LADDER and _hidden(item)]
    part = f" (costs included in the next rung: {listed(hidden)})" if hidden else ""
    text = f"Removed one after the other, {name} gives most: {format_duration(most)} of each step{rest}{part}."
    slower = [f"{format_duration(-item.seconds)} longer without {name}" for item, name in local if item.seconds < 0]
    if slower and sum(seconds for seconds, _ in real) > _ROUNDING * whole.seconds:
        text += (
            f" That is more than the {format_duration(whole.seconds)} of the whole loader, because a step takes "
            f"{listed(slower)}."
        )
    return text


def _hidden(effect: Effect) -> bool:
    """Whether a cost could not be removed alone, and is removed together with the next cost."""
    return bool(effect.why and effect.rung.removed and not effect.costless)


def _unclear(effects: Sequence[Effect]) -> str:
    """Returns the sentence on costs that noise hides, although they may be large."""
    parts = [
        f"{item.rung.removed} (at most {format_duration(item.cost.interval_s[1])})"
        for item in unclear(effects)
        if item.cost is not None and item.cost.interval_s is not None
    ]
    return f"Costs that are within noise when removed alone: {listed(parts)}." if parts else ""


def _sides(by_name: dict[str, Effect]) -> str:
    """Returns the sentence on the speed of loader and trainer alone."""
    loader, trainer = by_name[LOADER], by_name[TRAINER]
    name = "compute alone"
    if trainer.rate is None:
        trainer, name = by_name[HAND_OVER], "the trainer without loader"
    ratio = gain(trainer.times, loader.times)
    if loader.rate is None or trainer.rate is None or ratio is None:
        return ""
    text = f"Alone, the loader delivers {loader.rate:.4g} samples/s and {name} consumes {trainer.rate:.4g}"
    if not ratio.beyond_noise:
        return f"{text} samples/s; the difference of the two is within noise."
    slower, factor = ("loader", 1 / ratio.ratio) if ratio.ratio < 1 else ("trainer", ratio.ratio)
    location = " in the rounds that had both" if ratio.rounds < max(len(loader.times), len(trainer.times)) else ""
    return f"{text} samples/s: the {slower} is the slower one, by a factor of {factor:.3g}{location}."


def _utilisation(first: Effect, last: Effect) -> list[str]:
    if first.au is None or last.au is None:
        return []
    return [f"accelerator utilisation {percent(first.au.median)}, without the loader {percent(last.au.median)}"]


def _instead(last: Effect) -> str:
    if not last.shares:
        return ""
    name = max(last.shares, key=lambda part: last.shares[part])
    return f" The remaining time is mostly {_PARTS[name]}, {percent(last.shares[name])} of a step."


def _interval(whole: Gain) -> str:
    if whole.low is None or whole.high is None:
        return "a single round"
    return f"95 %: {whole.low:.3g} to {whole.high:.3g}"
