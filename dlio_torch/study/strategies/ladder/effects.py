"""Effects of the rungs: the figures of each rung, and the gain of removing each cost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from dlio_torch.analysis.repeats import Spread, spread
from dlio_torch.study.strategies.ladder.gains import METHOD, Gain, gain, geometric_mean
from dlio_torch.study.strategies.ladder.rungs import CONFIGURED, DECODE, DEVICE, LADDER, READS, Rung
from dlio_torch.units import format_duration, percent

SCHEMA = "dlio_torch.headspace"
VERSION = 1

_CALLS_LEFT = 0.1
"""Share of the bytes that calls may still read from files if calls are answered from memory."""
_PROGRAM_BYTES = 512 * 1024
"""Bytes that a process may read of the program itself, for example of decoding libraries."""
_HARDLY_READ = 0.01
"""Bytes read by calls per byte of the batches, below which files are taken as not read by calls."""
_HARDLY_DELIVERED = 0.001
"""Share of bytes from the device up to which the device has no cost; small, because a byte of a disk may take long."""


@dataclass(frozen=True)
class Effect:
    """The measured effect of a rung.

    Attributes:
        rung: which.
        times: by round, seconds of a step, epochs' starts included (elapsed time / steps); empty: not measured.
        step: their middle and range; ``None``: not measured.
        samples_per_s: throughput of all ranks.
        au: accelerator utilisation, mean of the ranks.
        wait: seconds that a step waited for its batch, mean.
        shares: what the time of a step went to, medians of the rounds.
        gain: over the run as configured: what this cost and all before it take.
        cost: over the rung before it that was measured: what this cost takes when those before it are gone.
        why: why there are no figures; ``""`` where there are.
        costless: where there are no figures, whether that is because there is no such cost.
        note: what is to be said with the figures.
        rate: throughput of all ranks in samples per second, geometric mean of the rounds.
    """

    rung: Rung
    times: Mapping[int, float] = field(default_factory=dict)
    step: Spread | None = None
    samples_per_s: Spread | None = None
    au: Spread | None = None
    wait: Spread | None = None
    shares: Mapping[str, float] = field(default_factory=dict)
    gain: Gain | None = None
    cost: Gain | None = None
    why: str = ""
    costless: bool = False
    note: str = ""
    rate: float | None = None

    @property
    def step_s(self) -> float | None:
        """Seconds of a step, geometric mean of the rounds: ratios and differences of these are the gains."""
        return geometric_mean(self.times.values()) if self.times else None

    @property
    def parts(self) -> dict[str, float]:
        """Seconds of a step by part (``fetch``, ``compute``, ``other``); empty: not measured."""
        if self.step is None:
            return {}
        return {name: seconds for name, share in self.shares.items() if (seconds := share * self.step.median) > 0}

    @property
    def remark(self) -> str:
        """Why the rung was not measured, or a note; and the cost with its interval."""
        return "; ".join(text for text in (self.why or self.note, _cost(self.cost)) if text)


def effects(
    rungs: Sequence[Rung],
    summaries: Mapping[str, Mapping[int, Mapping[str, Any]]],
    errors: Mapping[str, str],
    *,
    starts: int = 1,
    looks: int = 1,
) -> list[Effect]:
    """Compute the effects of all rungs from their runs.

    Args:
        rungs: the ladder and the sides.
        summaries: by rung and round, the ``summary.json`` of each finished run.
        errors: by rung, why its last failed run failed.
        starts: processes that read data in a run; a process that starts in each epoch counts once for each.
        looks: how often the rounds are looked at before the study ends, at the most.
    """
    result: list[Effect] = []
    base = _steps(summaries.get(CONFIGURED, {}))
    before = base
    for rung in rungs:
        runs = summaries.get(rung.name, {})
        nothing = _nothing(rung, summaries.get(CONFIGURED, {}))
        why = rung.skipped or nothing or _why_not(rung.name, summaries, errors, starts)
        if why:
            result.append(Effect(rung, why=why, costless=rung.costless if rung.skipped else bool(nothing)))
            continue
        steps = _steps(runs)
        on_ladder = rung.name in LADDER
        first = rung.name == CONFIGURED
        rates = [rate for run in runs.values() if (rate := run["train"]["samples_per_s"]) is not None]
        result.append(
            Effect(
                rung,
                times=steps,
                step=spread(steps.values()),
                samples_per_s=spread(rates),
                au=spread(run["au"]["mean"] for run in runs.values()),
                wait=spread(_of(run["step"]["fetch_s"], "mean") for run in runs.values()),
                shares=_shares(runs.values()),
                gain=None if first else gain(base, steps, looks),
                cost=gain(before, steps, looks) if on_ladder and not first else None,
                note=_note(rung.name, runs, errors.get(rung.name, "")),
                rate=geometric_mean(rates) if rates else None,
            )
        )
        before = steps if on_ladder else before
    return result


def to_json(effects: Sequence[Effect], words: Sequence[str], **about: Any) -> dict[str, Any]:
    """Plain data; ``null`` means not measured."""
    return {"schema": SCHEMA, "version": VERSION, **about, "words": list(words), "how": METHOD,
            "rungs": [_rung(item) for item in effects]}  # fmt: skip


def _rung(effect: Effect) -> dict[str, Any]:
    return {
        "rung": effect.rung.name,
        "left": effect.rung.left,
        "removed": effect.rung.removed or None,
        "settings": list(effect.rung.settings),
        "why": effect.why or None,
        "note": effect.note or None,
        "step_s": _plain(effect.step, effect.step_s),
        "samples_per_s": _plain(effect.samples_per_s, effect.rate),
        "au": _plain(effect.au),
        "wait_s": _plain(effect.wait),
        "shares": dict(effect.shares) or None,
        "gain": _gain(effect.gain),
        "own": _gain(effect.cost),
    }


def _plain(value: Spread | None, mean: float | None = None) -> dict[str, Any] | None:
    if value is None:
        return None
    return asdict(value) if mean is None else {"geometric_mean": mean, **asdict(value)}


def _gain(value: Gain | None) -> dict[str, Any] | None:
    if value is None:
        return None
    ends = value.interval_s or (None, None)
    return {
        "ratio": value.ratio,
        "ratio_low": value.low,
        "ratio_high": value.high,
        "seconds": value.seconds,
        "seconds_low": ends[0],
        "seconds_high": ends[1],
        "rounds": value.rounds,
        "beyond_noise": value.beyond_noise,
    }


def _steps(runs: Mapping[int, Mapping[str, Any]]) -> dict[int, float]:
    """Seconds of a step by round."""
    return {
        number: run["train"]["elapsed_s"] / run["train"]["steps"]
        for number, run in runs.items()
        if run["train"]["elapsed_s"] is not None
    }


def _of(stats: Mapping[str, float] | None, name: str) -> float | None:
    return None if stats is None else stats[name]


def _shares(runs: Any) -> dict[str, float]:
    result: dict[str, list[float | None]] = {}
    for run in runs:
        for name, share in run["shares"].items():
            result.setdefault(name, []).append(share)
    middles = {name: spread(values) for name, values in result.items()}
    return {name: middle.median for name, middle in middles.items() if middle is not None}


def _nothing(rung: Rung, configured: Mapping[int, Mapping[str, Any]]) -> str:
    """Why a cost does not exist, by the runs as configured; ``""``: the cost may exist.

    What the times of such a rung say is noise, and noise is not to be called the cost of a device.
    """
    share = _device_share(configured) if rung.name == DEVICE else None
    if share is None or share > _HARDLY_DELIVERED:
        return ""
    return f"nothing to remove: {_delivered(share)} as configured"


def _why_not(
    name: str,
    summaries: Mapping[str, Mapping[int, Mapping[str, Any]]],
    errors: Mapping[str, str],
    starts: int,
) -> str:
    """Why the runs of a rung cannot be used; ``""`` if they can."""
    runs = summaries.get(name, {})
    if not runs:
        return f"failed: {errors[name]}" if name in errors else "not run"
    if not _steps(runs):
        return str(next(iter(runs.values()))["train"]["why"])
    if name in LADDER[1:-1] and summaries.get(CONFIGURED, {}).keys() - runs.keys():
        # Times can be added up only where all of them are of the same rounds.
        return f"failed: {errors[name]}" if name in errors else "not run in all rounds"
    if name in (DEVICE, READS):
        cold = [why for run in runs.values() if (why := _not_warm(run))]
        if cold:
            return f"the data could not be kept in the page cache: {cold[0]}"
    if name == READS:
        given, without, samples = (
            spread(_bytes(run) for run in summaries.get(item, {}).values()) for item in (CONFIGURED, READS, DECODE)
        )
        if given is not None and without is not None:
            floor = 0.0 if samples is None else min(samples.median, given.median)
            delivered = next(iter(runs.values()))["train"]["bytes"]
            return _not_separable(given.median - floor, without.median - floor, delivered, starts)
    return ""


def _not_warm(run: Mapping[str, Any]) -> str:
    for prepared in (run.get("cache") or {}).get("prepared", ()):
        if prepared["reached"] is False:
            return prepared["why"] or f"{100 * (prepared['cached_share'] or 0):.1f} % of the data were there"
    return ""


def _not_separable(read: float, left: float, delivered: float, starts: int) -> str:
    """Whether the kernel's counts agree that read calls were answered from memory.

    Args:
        read: bytes that read calls returned as configured, beyond those of a run without reading.
        left: the same where they are answered from memory.
        delivered: bytes of all measured batches.
        starts: processes that read data; each reads some program text for it, too.
    """
    if read <= _HARDLY_READ * delivered:
        return "not separable: hardly any bytes are read by calls (the format maps its files)"
    if left > max(_CALLS_LEFT * read, _PROGRAM_BYTES * starts):
        return f"not separable: {100 * left / read:.0f} % of the bytes came by calls that memory cannot answer"
    return ""


def _bytes(run: Mapping[str, Any]) -> float | None:
    """Bytes that read calls returned to all processes, even if no batch was read."""
    counts = [epoch["io"] for rank in run["epochs"] for epoch in rank]
    return None if not counts or None in counts else float(sum(count["rchar"] for count in counts))


def _note(name: str, runs: Mapping[int, Mapping[str, Any]], error: str) -> str:
    sentence = [f"a run failed: {error}"] if error else []
    share = _device_share(runs) if name in (CONFIGURED, DEVICE) else None
    if share is not None:
        sentence.append(_delivered(share))
    return "; ".join(sentence)


def _device_share(runs: Mapping[int, Mapping[str, Any]]) -> float | None:
    """Share of the bytes read that the device delivered, median of the rounds; ``None`` if it was not counted."""
    share = spread(run["io"]["device_read_share"] for run in runs.values())
    return None if share is None else share.median


def _delivered(share: float) -> str:
    return f"the device delivered {percent(share)} of the bytes that were read"


def _cost(gain: Gain | None) -> str:
    if gain is None:
        return ""
    interval = gain.interval_s
    ends = "" if interval is None else f" ({1e3 * interval[0]:.3g} to {1e3 * interval[1]:.3g} ms)"
    doubt = "" if gain.beyond_noise else ", within noise"
    return f"{'-' if gain.seconds < 0 else ''}{format_duration(abs(gain.seconds))} of a step{ends}{doubt}"
