"""Plan of the measurement of a node: the recipe, its data, its demand, the combinations, and the expected time."""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from dlio_torch.config.arguments import keys_of
from dlio_torch.config.compose import Composed, compose
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.stored_size import stored_bytes
from dlio_torch.data.engines.registry import format_of
from dlio_torch.data.order.planning import fit_to_data, train_sampler
from dlio_torch.environment.cores import whole_cores
from dlio_torch.environment.topology.node_topology import Topology, describe_topology
from dlio_torch.environment.topology.numa import cpu_sets
from dlio_torch.formats.core.format import Format
from dlio_torch.formats.core.registry import available
from dlio_torch.node.combinations import Combination, combinations, runnable, trial_settings
from dlio_torch.node.demand import CountSource, NodeDemand, demand_of
from dlio_torch.node.limits.node_limit import NodeLimit
from dlio_torch.node.node_request import NodeRequest
from dlio_torch.node.node_verdict import accelerators_text
from dlio_torch.node.run_length import RunLength, run_length
from dlio_torch.preflight.data_location import LocatedData, locate_data
from dlio_torch.run_directory.results_folder import check_results_folder
from dlio_torch.study.model import Point
from dlio_torch.study.needs import START_S, WARM_S, StudyNeeds, needs, require_space
from dlio_torch.study.resolve import resolve_point
from dlio_torch.study.short_runs import batches_ahead
from dlio_torch.units import counted, format_duration, format_number, format_size

DEFAULT_RECIPE = "resnet50"
"""Recipe that is measured if none is given: samples of 115 KB, which need storage and decoding alike."""
_LIMITS = 9  # measurements of limits, each alone
_WRITE_BYTES_PER_S = 200e6  # of generated data, a guess for the plan
_TIME_WITHOUT_STEPS = 0.5
_MORE_STEPS = 8  # beyond the batches that a loader reads ahead: warm-up, measured steps, and uneven shares of workers
_MOST_BYTES = 2 << 30  # of data that are made larger than the scale makes them
_AMOUNTS = ("scale", "dataset.num_files", "dataset.samples_per_file")
THROUGHPUT_PART = 50
"""Most time of the runs of all combinations, in lengths of a measurement."""


@dataclass(frozen=True)
class NodePlan:
    """Everything that is known before the first measurement.

    Attributes:
        request: request of the command line.
        settings: arguments of all runs, the recipe among them.
        composed: the recipe with its step time as published.
        config: its configuration, fitted to the data.
        topology: of the machine.
        demand: of the accelerators.
        combinations: those that can run.
        notes: combinations that cannot run, one line each.
        needs: data and space that the combinations need.
        samples: samples of the data set.
        steps: steps of an epoch that the data give to each combination.
    """

    request: NodeRequest
    settings: tuple[str, ...]
    composed: Composed
    config: Config
    topology: Topology
    demand: NodeDemand
    combinations: tuple[Combination, ...]
    notes: tuple[str, ...]
    needs: StudyNeeds
    samples: int
    steps: int

    @property
    def points(self) -> list[Point]:
        """The points of the combinations."""
        return [combination.point for combination in self.combinations]

    @property
    def missing_bytes(self) -> float:
        """Bytes of the data that have to be generated."""
        return sum(data.missing_bytes for data in self.needs.data)

    @property
    def expected_s(self) -> float:
        """Expected seconds of the whole measurement."""
        seconds, length = self.request.seconds, self.length()
        starts = START_S + sum(START_S if point.fresh else WARM_S for point in self.points) * length.repeats
        runs = len(self.points) * length.repeats * (length.run_s + _TIME_WITHOUT_STEPS)
        throughput = min(starts + runs, THROUGHPUT_PART * seconds)
        return self.missing_bytes / _WRITE_BYTES_PER_S + (_LIMITS + 2) * seconds + throughput

    def length(self, slowest: NodeLimit | None = None) -> RunLength:
        """Length of the runs.

        Args:
            slowest: the limit that the loader meets; ``None``: not known yet.
        """
        ahead = max(combination.batches_ahead for combination in self.combinations)
        return run_length(self.demand, slowest, self.request.seconds, self.steps, ahead)

    def lines(self) -> Iterator[str]:
        """Returns the plan, line by line."""
        config, demand = self.config, self.demand
        variant = f", accelerator={config.accelerator}" if config.accelerator else ""
        yield f"node: recipe {config.recipe}{variant}, scale {config.scale.name}: {self.samples} samples"
        yield from self.composed.remarks
        rate = demand.samples_per_s
        need = demand.why if rate is None else f"{format_number(rate)} samples/s"
        yield f"demand: {accelerators_text(demand)} ({demand.source}): {need}"
        if self.missing_bytes:
            yield f"data: about {format_size(self.missing_bytes)} to write below {config.dataset.root}"
        yield f"limits: {_LIMITS} alone, then all at the same time, {format_duration(self.request.seconds)} each"
        length = self.length()
        runs = f"{counted(len(self.points), 'combination')}, {counted(length.repeats, 'run')} of each"
        yield f"throughput: {runs}, about {format_duration(length.run_s)} of training"
        if length.step_s is not None:
            full, part = format_duration(config.compute.emulated_step_s), format_duration(length.step_s)
            yield f"  a step of {part} in these runs stands for {full} of the recipe: they ask more of the loader"
        yield from (f"  {note}" for note in self.notes)
        yield f"time: about {format_duration(self.expected_s)}"


def plan_node(request: NodeRequest) -> NodePlan:
    """Plan the measurement; writes nothing.

    Args:
        request: request of the command line.

    Raises:
        DlioError: the configuration is wrong, or data or space are missing.
    """
    given = with_recipe(request.settings)
    plan = _plan(request, given)
    more = larger_data(plan, given)
    return _plan(request, (*given, *more)) if more else plan


def larger_data(plan: NodePlan, given: Sequence[str]) -> tuple[str, ...]:
    """Arguments for as much data as every combination needs for steps that were not read before the first one.

    Empty where the data suffice, exist already, become too large, or were chosen by the user.

    Args:
        plan: with the data of the recipe's scale.
        given: arguments of the command line.
    """
    config = plan.config.dataset
    chosen = keys_of(given)
    wanted = max(combination.batches_ahead for combination in plan.combinations) + _MORE_STEPS
    factor = wanted / plan.steps
    size = sum(data.bytes for data in plan.needs.data) * factor
    named = any(key in _AMOUNTS or key.startswith("scale.") for key in chosen)
    if named or config.path is not None or factor <= 1 or not 0 < size <= _MOST_BYTES:
        return ()
    return (
        f"dataset.num_files={math.ceil(config.num_files * factor)}",
        f"dataset.samples_per_file={config.samples_per_file}",
    )


def _plan(request: NodeRequest, given: Sequence[str]) -> NodePlan:
    composed = compose(_full_time(given), formats=available())
    config = composed.config
    check_results_folder(Path(config.output.root), "output.root", composed.sources["output.root"], empty=False)
    topology = describe_topology(paths={"data": config.dataset.path or config.dataset.root})
    fmt = format_of(config)
    data = locate_data(config, fmt)
    config = fit_to_data(config, data.manifests, 1, scaled=composed.scaled, fits_batch=composed.fits_batch)
    demand = _demand(request, config, topology, fmt, data)
    settings = (
        *trial_settings(composed, _full_time(given), visible_gpus(topology)),
        *_batch_of_accelerator(config, demand),
    )
    fixed = keys_of(given)
    nodes = len(cpu_sets(os.sched_getaffinity(0)))
    values = combinations(config, cores=whole_cores(), numa_nodes=nodes, gpus=visible_gpus(topology), fixed=fixed)
    usable, notes = runnable(composed, settings, values, lambda run: _amounts(run, fmt, data))
    required = needs([resolve_point(combination.point) for combination in usable])
    require_space(required, Path(config.output.root))
    return NodePlan(
        request, settings, composed, config, topology, demand, tuple(usable), tuple(notes), required,
        data.manifests["train"].num_samples, min(combination.steps for combination in usable),
    )  # fmt: skip


def with_recipe(settings: Sequence[str]) -> tuple[str, ...]:
    """Returns the settings with the default recipe if they name neither a recipe nor data."""
    given = keys_of(settings) & {"recipe", "dataset.path"}
    return tuple(settings) if given else (f"recipe={DEFAULT_RECIPE}", *settings)


def _full_time(settings: Sequence[str]) -> tuple[str, ...]:
    """The settings with the step time of the recipe as published: a scale shrinks the data alone."""
    return tuple(settings) if "scale.compute" in keys_of(settings) else (*settings, "scale.compute=1")


def _demand(request: NodeRequest, config: Config, topology: Topology, fmt: Format, data: LocatedData) -> NodeDemand:
    count, source = accelerators_of(request.accelerators, visible_gpus(topology))
    samples = data.manifests["train"].num_samples
    stored = data.bytes / samples if data.bytes else stored_bytes(fmt) * fmt.sharing() if fmt.needs_files else 0.0
    return demand_of(config, count, source, stored_sample_bytes=stored, sample_bytes=fmt.sample_bytes())


def _batch_of_accelerator(config: Config, demand: NodeDemand) -> tuple[str, ...]:
    """Arguments for the batch of one accelerator, where the recipe's batch is that of all ranks."""
    if config.train.batch_scope == "rank":
        return ()
    return (f"train.batch_size={demand.batch_size}", "train.batch_scope=rank")


def visible_gpus(topology: Topology) -> int:
    """Number of devices that CUDA shows to this process; each MIG instance counts."""
    return sum(len(gpu.visible or ()) for gpu in topology.gpus)


def accelerators_of(given: int | None, gpus: int) -> tuple[int, CountSource]:
    """Number of accelerators and its origin: as given, else the visible GPUs, else 1."""
    if given is not None:
        return given, "--accelerators"
    return (gpus, "visible GPUs") if gpus else (1, "default")


def _amounts(run: Composed, fmt: Format, data: LocatedData) -> tuple[int, int]:
    """Steps of an epoch that the data give to a run, and batches that it reads ahead.

    Workers that each read files of their own lose parts of batches.

    Raises:
        ConfigError: the data give no step.
    """
    config = fit_to_data(run.config, data.manifests, 1, scaled=run.scaled, fits_batch=run.fits_batch)
    plan = train_sampler(config, data.manifests["train"], 0, 1, fmt)
    return len(plan), batches_ahead(config, plan.batch_size * fmt.sample_bytes())
