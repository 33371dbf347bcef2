"""What a ladder of headspace says, in sentences: each names the figures that it rests on."""

from __future__ import annotations

from collections.abc import Sequence

from dlio_torch.report.verdict import percent
from dlio_torch.sweep.headspace.gains import Gain, gain
from dlio_torch.sweep.headspace.results import Measured
from dlio_torch.sweep.headspace.rungs import CONFIGURED, HAND_OVER, LADDER, LOADER, TRAINER
from dlio_torch.sweep.headspace.verdict import ends_low, is_bottleneck, listed, unclear
from dlio_torch.units import format_duration

_PARTS = {
    "copy": "copying batches to the GPU",
    "compute": "the emulated compute",
    "allreduce": "the allreduce of the gradient",
    "checkpoint": "saving checkpoints",
    "between_epochs": "what lies between epochs",
    "other": "the tool's own work",
    "fetch": "handing over batches that are ready",
}
_ROUNDING = 1.01
"""Sums that differ by less are told as equal."""


def words(found: Sequence[Measured]) -> tuple[str, ...]:
    """The verdict first, then its evidence."""
    by_name = {one.rung.name: one for one in found}
    first, last = by_name[CONFIGURED], by_name[HAND_OVER]
    if last.gain is None:
        missing = first if first.why else last
        return (f"Whether the loader is the bottleneck was not measured: {missing.rung.title}: {missing.why}.",)
    verdict = is_bottleneck(found)
    costs = [_costs(found, last.gain), _unclear(found)] if verdict else []
    lines = [_verdict(verdict, last.gain, first, last), *costs, _sides(by_name)]
    return tuple(line for line in lines if line)


def _verdict(found: bool | None, whole: Gain, first: Measured, last: Measured) -> str:
    evidence = ", ".join([_times(first, last), *_utilisation(first, last)])
    if found:
        return (
            f"The loader is the bottleneck: without any of its cost the throughput is {whole.ratio:.3g} times as high "
            f"({_interval(whole)}; {evidence})."
        )
    if found is False and not ends_low(whole):
        waits = percent(first.shares.get("fetch", 0.0))
        return (
            f"The loader is not the bottleneck: a step waits for data for {waits} of its time, and what removing all "
            f"of the loader's cost gains is within noise ({_interval(whole)}; {evidence}).{_instead(last)}"
        )
    if found is False:
        gained = f"gains at most {100 * max((whole.high or 1) - 1, 0):.2g} % of throughput"
        doubt = "" if whole.beyond_noise else ", nothing beyond noise"
        return (
            f"The loader is not the bottleneck: removing all of its cost {gained}{doubt} ({evidence}).{_instead(last)}"
        )
    return (
        f"Whether the loader is the bottleneck cannot be told beyond noise: without any of its cost the throughput is "
        f"{whole.ratio:.3g} times as high ({_interval(whole)}; {evidence}); more rounds (repeats=) or steps may tell."
    )


def _times(first: Measured, last: Measured) -> str:
    if first.step_s is None or last.step_s is None:
        return ""
    before, after = format_duration(first.step_s), format_duration(last.step_s)
    waits = f", {percent(first.shares['fetch'])} of it waiting for data" if "fetch" in first.shares else ""
    return f"a step takes {before}{waits}, without the loader {after}"


def _costs(found: Sequence[Measured], whole: Gain) -> str:
    """Which costs make up what the whole loader does."""
    own = [(one.own, one.rung.removed) for one in found if one.own is not None]
    real = sorted(((one.seconds, name) for one, name in own if one.beyond_noise and one.seconds > 0), reverse=True)
    if not real:
        return "No single one of its costs stands out from noise."
    (most, name), *others = real
    rest = "".join(f", {other}: {format_duration(seconds)}" for seconds, other in others)
    hidden = [one.rung.removed for one in found if one.rung.name in LADDER and _hidden(one)]
    part = f", with {listed(hidden)} in what comes next" if hidden else ""
    text = f"Removed one after the other, {name} gives most: {format_duration(most)} of each step{rest}{part}."
    slower = [f"{format_duration(-one.seconds)} longer without {name}" for one, name in own if one.seconds < 0]
    if slower and sum(seconds for seconds, _ in real) > _ROUNDING * whole.seconds:
        text += (
            f" That is more than the {format_duration(whole.seconds)} of the whole loader, because a step takes "
            f"{listed(slower)}."
        )
    return text


def _hidden(one: Measured) -> bool:
    """Whether a cost could not be removed by itself, and so is removed with the next one."""
    return bool(one.why and one.rung.removed and not one.costless)


def _unclear(found: Sequence[Measured]) -> str:
    """Costs that may be large, and may be nothing."""
    parts = [
        f"{one.rung.removed} (at most {format_duration(one.own.interval_s[1])})"
        for one in unclear(found)
        if one.own is not None and one.own.interval_s is not None
    ]
    return f"Within noise by {'itself' if len(parts) == 1 else 'themselves'}: {listed(parts)}." if parts else ""


def _sides(by_name: dict[str, Measured]) -> str:
    """How fast loader and trainer are by themselves."""
    loader, trainer = by_name[LOADER], by_name[TRAINER]
    name = "compute alone"
    if trainer.rate is None:
        trainer, name = by_name[HAND_OVER], "the trainer without loader"
    ratio = gain(trainer.times, loader.times)
    if loader.rate is None or trainer.rate is None or ratio is None:
        return ""
    text = f"By themselves, the loader delivers {loader.rate:.4g} samples/s and {name} takes {trainer.rate:.4g}"
    if not ratio.beyond_noise:
        return f"{text} samples/s; which of the two is slower cannot be told beyond noise."
    slower, factor = ("loader", 1 / ratio.ratio) if ratio.ratio < 1 else ("trainer", ratio.ratio)
    where = " in the rounds that had both" if ratio.rounds < max(len(loader.times), len(trainer.times)) else ""
    return f"{text} samples/s: the {slower} is the slower one, by a factor of {factor:.3g}{where}."


def _utilisation(first: Measured, last: Measured) -> list[str]:
    if first.au is None or last.au is None:
        return []
    return [f"accelerator utilisation {percent(first.au.median)}, without the loader {percent(last.au.median)}"]


def _instead(last: Measured) -> str:
    if not last.shares:
        return ""
    name = max(last.shares, key=lambda part: last.shares[part])
    return f" What remains is {_PARTS[name]}, {percent(last.shares[name])} of the time."


def _interval(whole: Gain) -> str:
    if whole.low is None or whole.high is None:
        return "a single round"
    return f"95 %: {whole.low:.3g} to {whole.high:.3g}"
