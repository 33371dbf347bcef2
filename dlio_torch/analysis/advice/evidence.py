"""What advice rests on: the figures of a run, its configuration, its machine and the model of its loader."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlio_torch.analysis.advice.clock import Reading
from dlio_torch.analysis.advice.model import Model
from dlio_torch.analysis.advice.times import rank_times
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import validate
from dlio_torch.data.engines import registry as engines
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.registry import facts
from dlio_torch.trace.recording import Recording
from dlio_torch.train.steps import Steps

LEAST = 0.05
"""Share of the time from which a loss is worth advice, and the least gain that is."""
MIN_STEPS = 8
"""Measured steps of a rank below which nothing is said."""
MOST_ERROR = 0.25
"""Difference of model and run, relative, beyond which the model predicts nothing."""
_MOST_NOISE = 0.5

Value = int | float | str | bool | None
Figures = tuple[tuple[str, Value], ...]


@dataclass(frozen=True)
class Predicted:
    """What a figure would be.

    Attributes:
        figure: its dotted name in ``summary.json``.
        now: what was measured.
        low: the least it can become by the model.
        high: the most; None: not known, ``low`` is the best that can happen.
        gain_low: share of the elapsed time that is saved at the least; None: not known.
        gain_high: at the most; None: not known.
        assumption: what the prediction takes for granted.
    """

    figure: str
    now: float
    low: float
    high: float | None
    gain_low: float | None
    gain_high: float | None
    assumption: str


@dataclass(frozen=True)
class Advice:
    """One thing to change, and why.

    Attributes:
        rule: what found it.
        key: the option to change; None: it is no option.
        value: its new value, as the command line takes it; None likewise.
        text: all of it in one line.
        evidence: names and values of the figures it rests on.
        predicted: what will come of it, None where the model's inputs were not measured.
        confidence: ``high``: everything was measured, the model agrees with the run, and its steps were alike;
            ``low``: it rests on estimates, on something that was not measured, or on uneven steps; ``medium``: else.
        also: options and values that have to be set together with it.
    """

    rule: str
    key: str | None
    value: str | None
    text: str
    evidence: Figures
    predicted: Predicted | None
    confidence: str
    also: tuple[tuple[str, str], ...] = ()

    @property
    def gain(self) -> float:
        """By what it is sorted: the predicted gain, the middle of an interval."""
        found = self.predicted
        if found is None or found.gain_high is None:
            return 0.0
        return (found.gain_high + (found.gain_low or 0.0)) / 2

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        found = dataclasses.asdict(self)
        return {**found, "evidence": [list(one) for one in self.evidence], "also": [list(one) for one in self.also]}


@dataclass(frozen=True)
class Evidence:
    """All that rules look at.

    Attributes:
        summary: content of ``summary.json``.
        config: the resolved configuration.
        environment: content of ``environment.json``.
        model: of the loader; None where the making of batches was not recorded.
        ranks_here: ranks that shared this machine.
    """

    summary: Mapping[str, Any]
    config: Config
    environment: Mapping[str, Any] = field(default_factory=dict)
    model: Model | None = None
    ranks_here: int = 1

    def figure(self, path: str) -> Any:
        """A figure by its dotted name; None where it is missing or was not measured."""
        found: Any = self.summary
        for name in path.split("."):
            found = found.get(name) if isinstance(found, Mapping) else None
        return found

    def number(self, path: str) -> float | None:
        """A figure as a number; None likewise."""
        found = self.figure(path)
        return float(found) if isinstance(found, (int, float)) and not isinstance(found, bool) else None

    @property
    def waits(self) -> float:
        """Share of the elapsed time in which trainers waited for data; 0 where that was not measured."""
        return self.number("shares.fetch") or 0.0

    def part(self, *names: str) -> float | None:
        """Share of the waits that these parts of :mod:`dlio_torch.analysis.stalls` make up; None: not measured."""
        known = [share for name in names if (share := self.number(f"stalls.shares.{name}")) is not None]
        return sum(known) if known else None

    @property
    def cores(self) -> float | None:
        """Cores of this machine that the run could keep busy; a fraction where a quota grants one."""
        return self._of_cpu("cores_usable")

    @property
    def full_cores(self) -> float | None:
        """Of these the ones that share nothing: a core that runs two threads counts once."""
        known = [cores for name in ("cores_usable", "cores_physical") if (cores := self._of_cpu(name)) is not None]
        return min(known) if len(known) == 2 else None

    @property
    def idle_cores(self) -> float | None:
        """Cores of this machine that nothing used while this run trained, on average; None: not told."""
        epochs = next(iter(self.figure("epochs") or ()), ())
        if not epochs or any(epoch.get("idle_cores") is None for epoch in epochs):
            return None
        seconds = sum(float(epoch["seconds"]) for epoch in epochs)
        return sum(float(epoch["idle_cores"] * epoch["seconds"]) for epoch in epochs) / seconds

    def _of_cpu(self, name: str) -> float | None:
        found = self.environment.get("cpu")
        cores = found.get(name) if isinstance(found, Mapping) else None
        return float(cores) if cores else None

    @property
    def memory(self) -> int | None:
        """Bytes of memory that were free on this machine, for each of its ranks."""
        found = self.environment.get("memory")
        if not isinstance(found, Mapping) or not found.get("available_bytes"):
            return None
        free = min(found["available_bytes"], found.get("limit_bytes") or found["available_bytes"])
        return int(free) // self.ranks_here

    @property
    def batch_bytes(self) -> float | None:
        """Bytes of the tensors of a batch."""
        steps = sum(int(rank["steps"]) for rank in self.figure("ranks") or ())
        size = self.number("train.bytes")
        return size / steps if steps and size else None

    @property
    def sample_bytes(self) -> float | None:
        """Bytes of the tensors of a sample."""
        samples, size = self.number("train.samples"), self.number("train.bytes")
        return size / samples if samples and size else None

    @property
    def amount_scaled(self) -> bool:
        """Whether files, samples or steps are fewer than those of the experiment."""
        scale = self.config.scale
        return self.config.dataset.path is None and any(
            (scale.max_samples, scale.max_files, scale.max_samples_per_file, scale.max_volume_edge)
        )

    def allows(self, settings: Mapping[str, Value]) -> bool:
        """Whether the configuration can be changed so."""
        try:
            validate(changed(self.config, settings))
        except ConfigError:
            return False
        return True

    def holds(self, batches: int) -> bool:
        """Whether a quarter of a rank's memory holds so many batches; not refused where that is not known."""
        memory, size = self.memory, self.batch_bytes
        return memory is None or size is None or batches * size <= memory / 4

    def forecast(self, reading: Reading, *, sure: bool, assumption: str, changed: Model | None = None) -> Predicted:
        """What the model says of the share of waits.

        One end of the interval takes nothing for costs that were not measured, the other one takes them as large
        as they may be (:meth:`Model.cautious`); making batches is faster at one end and slower at the other by
        the noise of the run; and what the model missed of the run itself (measured / modelled time) it may miss
        again.  No step can be shorter than the storage, at the most that it gives, takes to deliver what the step
        reads (``storage.share_of_most``).  Workers that start anew in each epoch take a time that goes with
        their number.

        Args:
            reading: who makes batches in the changed run.
            sure: whether the upper end is known as well.
            assumption: for the reader.
            changed: of the changed run, where more changes than who makes batches.
        """
        assert self.model is not None
        was, model = self.model, changed or self.model
        measured, noise = was.measured, min(was.noise, _MOST_NOISE)
        ratio = measured.step_s / was.modelled.step_s
        best, worst = model.slower(1 - noise).outcome(reading), model.cautious().slower(1 + noise).outcome(reading)
        rest = best.step_s - best.fetch_s
        floor = max(rest, measured.step_s * (self.number("storage.share_of_most") or 0.0))
        low = max(floor, best.step_s * min(1.0, ratio))
        high = max(floor, worst.step_s * max(1.0, ratio))
        between = self.number("shares.between_epochs") or 0.0
        gap = most_gap = measured.step_s * between / (1 - between) if between < 1 else 0.0
        if reading.by == was.reading.by == "workers" and not self.config.loader.persistent_workers:
            most_gap *= max(1.0, reading.makers / was.reading.makers)
        whole = measured.step_s + gap
        return Predicted(
            figure="shares.fetch",
            now=self.waits,
            low=max(0.0, (low - rest) / (low + gap)),
            high=max(0.0, (high - rest) / (high + most_gap)) if sure else None,
            gain_low=1 - (high + most_gap) / whole if sure else None,
            gain_high=1 - (low + gap) / whole,
            assumption=assumption,
        )


def gather(
    summary: Mapping[str, Any],
    config: Config,
    environment: Mapping[str, Any] | None,
    recording: Recording,
    steps: Mapping[int, Steps],
) -> Evidence:
    """The evidence of a run.

    Args:
        summary: content of ``summary.json``.
        config: the resolved configuration.
        environment: content of ``environment.json``.
        recording: events of the run.
        steps: records of steps, by rank.
    """
    environment = environment or {}
    trainers = [process for process in recording.events.processes if process.role == "trainer"]
    here = {process.rank for process in trainers if process.host == trainers[0].host}
    evidence = Evidence(summary, config, environment, None, len(here) or len(steps) or 1)
    times = rank_times(recording, steps) if config.trace.spans and config.loader.replay == "none" else None
    if times is None or not any(one.measured.any() for one in times):
        return evidence
    if engines.facts(config.loader.engine).counts_bytes(config.loader):
        return evidence  # the model deals batches out
    compute = config.compute
    busy = {"spin": compute.threads, "cuda": 1}.get(compute.mode, 0)
    free, full = (
        None if cores is None else cores / evidence.ranks_here - busy for cores in (evidence.cores, evidence.full_cores)
    )
    if free is not None and full is not None:
        full = max(full, free / 2)  # compute may share a core with a maker
    one_lock = facts(config.dataset.format).one_lock and not config.loader.in_memory
    model = Model(times, reading_of(config), free, one_lock, full)
    if free is not None and evidence.idle_cores is not None and model.used is not None:
        others = max(0.0, free - model.used - evidence.idle_cores / evidence.ranks_here)
        model = dataclasses.replace(model, others=others)
    return dataclasses.replace(evidence, model=model)


def reading_of(config: Config) -> Reading:
    """Who makes batches in a run of this configuration."""
    loader = config.loader
    if loader.num_workers:
        return Reading("workers", loader.num_workers, loader.num_workers * loader.prefetched)
    if loader.read_threads:
        return Reading("threads", loader.read_threads, loader.prefetch_batches)
    return Reading("trainer")


def changed(config: Config, settings: Mapping[str, Value]) -> Config:
    """The configuration with other values, by dotted key."""
    for key, value in settings.items():
        config = _changed(config, key.split("."), value)
    return config


def _changed(node: Any, path: Sequence[str], value: Value) -> Any:
    name, rest = path[0], path[1:]
    return dataclasses.replace(node, **{name: _changed(getattr(node, name), rest, value) if rest else value})
