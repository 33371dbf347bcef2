"""Evidence for advice: the run's figures, configuration, machine, and loader model."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from dlio_torch.analysis.advice.advice_item import Predicted, Value
from dlio_torch.analysis.advice.batch_times import rank_times
from dlio_torch.analysis.advice.loader_model import LoaderModel
from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import validate
from dlio_torch.data.engines import registry as engines
from dlio_torch.errors import ConfigError
from dlio_torch.formats.core.registry import facts
from dlio_torch.iotrace.events.recording import Recording
from dlio_torch.train.steps import Steps

LEAST = 0.05
"""Smallest share of the time that a loss, or a gain, must have to be worth advice."""
MIN_STEPS = 8
"""Smallest number of measured steps of a rank that advice needs."""
MOST_ERROR = 0.25
"""Largest relative difference between loader model and run at which the model may predict."""
_MOST_NOISE = 0.5


@dataclass(frozen=True)
class Evidence:
    """Evidence about one run: the input of all advice rules.

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
    model: LoaderModel | None = None
    ranks_here: int = 1

    def figure(self, path: str) -> Any:
        """A figure by its dotted name; None if it is missing or was not measured."""
        value: Any = self.summary
        for name in path.split("."):
            value = value.get(name) if isinstance(value, Mapping) else None
        return value

    def number(self, path: str) -> float | None:
        """A figure as a number, by its dotted name; None if it is missing or was not measured."""
        value = self.figure(path)
        return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None

    @property
    def waits(self) -> float:
        """Share of the elapsed time in which trainers waited for data; 0 if it was not measured."""
        return self.number("shares.fetch") or 0.0

    def part(self, *names: str) -> float | None:
        """Share of the waits with these causes, see :mod:`dlio_torch.analysis.stalls`; None if it was not measured."""
        known = [share for name in names if (share := self.number(f"stalls.shares.{name}")) is not None]
        return sum(known) if known else None

    @property
    def cores(self) -> float | None:
        """Number of this machine's cores that the run could use; a fraction under a CPU quota."""
        return self._of_cpu("cores_usable")

    @property
    def full_cores(self) -> float | None:
        """Number of physical cores that the run could use: a core with two hardware threads counts once."""
        known = [cores for name in ("cores_usable", "cores_physical") if (cores := self._of_cpu(name)) is not None]
        return min(known) if len(known) == 2 else None

    @property
    def idle_cores(self) -> float | None:
        """Mean number of cores of this machine that were idle during training; None if it is not known."""
        epochs = next(iter(self.figure("epochs") or ()), ())
        if not epochs or any(epoch.get("idle_cores") is None for epoch in epochs):
            return None
        seconds = sum(float(epoch["seconds"]) for epoch in epochs)
        return sum(float(epoch["idle_cores"] * epoch["seconds"]) for epoch in epochs) / seconds

    def _of_cpu(self, name: str) -> float | None:
        cpu = self.environment.get("cpu")
        cores = cpu.get(name) if isinstance(cpu, Mapping) else None
        return float(cores) if cores else None

    @property
    def memory(self) -> int | None:
        """Bytes of free memory per rank on this machine."""
        memory = self.environment.get("memory")
        if not isinstance(memory, Mapping) or not memory.get("available_bytes"):
            return None
        free = min(memory["available_bytes"], memory.get("limit_bytes") or memory["available_bytes"])
        return int(free) // self.ranks_here

    @property
    def batch_bytes(self) -> float | None:
        """Bytes of the tensors of one batch."""
        steps = sum(int(rank["steps"]) for rank in self.figure("ranks") or ())
        size = self.number("train.bytes")
        return size / steps if steps and size else None

    @property
    def sample_bytes(self) -> float | None:
        """Bytes of the tensors of one sample."""
        samples, size = self.number("train.samples"), self.number("train.bytes")
        return size / samples if samples and size else None

    @property
    def amount_scaled(self) -> bool:
        """Whether the scale reduced the number of files, samples or steps."""
        scale = self.config.scale
        return self.config.dataset.path is None and any(
            (scale.max_samples, scale.max_files, scale.max_samples_per_file, scale.max_volume_edge)
        )

    def allows(self, settings: Mapping[str, Value]) -> bool:
        """Whether the configuration remains valid with the changed options."""
        try:
            validate(changed(self.config, settings))
        except ConfigError:
            return False
        return True

    def holds(self, batches: int) -> bool:
        """Whether a quarter of a rank's free memory holds this many batches; True if the size is not known."""
        memory, size = self.memory, self.batch_bytes
        return memory is None or size is None or batches * size <= memory / 4

    def forecast(
        self, setup: LoaderSetup, *, sure: bool, assumption: str, changed: LoaderModel | None = None
    ) -> Predicted:
        """Predicts the share of waits with another loader setup, by the loader model.

        One end of the interval neglects costs that were not measured; the other one takes their largest possible values
        (:meth:`LoaderModel.cautious`).  Production is faster at one end and slower at the other by the noise of the
        run.  The model's error on the run itself (measured / modelled time) applies to the prediction, too.  No step is
        shorter than the storage needs for its bytes at the largest measured rate (``storage.share_of_most``).  The
        start of workers in each epoch takes time in proportion to their number.

        Args:
            setup: producers of batches in the changed run.
            sure: whether the upper end is known as well.
            assumption: assumption of the prediction, for the reader.
            changed: model of the changed run, if more than the producers change.
        """
        assert self.model is not None
        was, model = self.model, changed or self.model
        measured, noise = was.measured, min(was.noise, _MOST_NOISE)
        ratio = measured.step_s / was.modelled.step_s
        best, worst = model.slower(1 - noise).outcome(setup), model.cautious().slower(1 + noise).outcome(setup)
        rest = best.step_s - best.fetch_s
        floor = max(rest, measured.step_s * (self.number("storage.share_of_most") or 0.0))
        low = max(floor, best.step_s * min(1.0, ratio))
        high = max(floor, worst.step_s * max(1.0, ratio))
        between = self.number("shares.between_epochs") or 0.0
        gap = most_gap = measured.step_s * between / (1 - between) if between < 1 else 0.0
        if setup.by == was.setup.by == "workers" and not self.config.loader.persistent_workers:
            most_gap *= max(1.0, setup.producers / was.setup.producers)
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
    """Collects the evidence of a run.

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
    if times is None or not any(rank.measured.any() for rank in times):
        return evidence
    if engines.facts(config.loader.engine).counts_bytes(config.loader):
        return evidence  # the model deals batches out
    compute = config.compute
    busy = {"spin": compute.threads, "cuda": 1}.get(compute.mode, 0)
    free, full = (
        None if cores is None else cores / evidence.ranks_here - busy for cores in (evidence.cores, evidence.full_cores)
    )
    if free is not None and full is not None:
        full = max(full, free / 2)  # compute may share a core with a producer
    one_lock = facts(config.dataset.format).one_lock and not config.loader.in_memory
    model = LoaderModel(times, loader_setup_of(config), free, one_lock, full)
    if free is not None and evidence.idle_cores is not None and model.used is not None:
        others = max(0.0, free - model.used - evidence.idle_cores / evidence.ranks_here)
        model = dataclasses.replace(model, others=others)
    return dataclasses.replace(evidence, model=model)


def loader_setup_of(config: Config) -> LoaderSetup:
    """Setup of the producers of batches in a run with this configuration."""
    loader = config.loader
    if loader.num_workers:
        return LoaderSetup("workers", loader.num_workers, loader.num_workers * loader.prefetched)
    if loader.read_threads:
        return LoaderSetup("threads", loader.read_threads, loader.prefetch_batches)
    return LoaderSetup("trainer")


def changed(config: Config, settings: Mapping[str, Value]) -> Config:
    """The configuration with changed option values, given by dotted key."""
    for key, value in settings.items():
        config = _changed(config, key.split("."), value)
    return config


def _changed(node: Any, path: Sequence[str], value: Value) -> Any:
    name, rest = path[0], path[1:]
    return dataclasses.replace(node, **{name: _changed(getattr(node, name), rest, value) if rest else value})
