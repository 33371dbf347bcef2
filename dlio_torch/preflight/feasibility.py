"""Whether a run can come to its end on this machine: asked of its plan, before anything is written.

Numbers that each are right can make a run of centuries, or batches that no memory holds.  What only needs more time
than it is worth is a mistake in the configuration; what needs a larger machine is a precondition that this one fails.
Nothing is allocated to find out.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dlio_torch.config.check import Check
from dlio_torch.config.checkpoint_amount import held_bytes as kept_for_saving
from dlio_torch.config.schema import Config
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines import registry as engines
from dlio_torch.data.order.held_plan import HeldPlan, fetched_by
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.data.order.pipe_plan import PipePlan, Plan
from dlio_torch.data.order.planning import eval_sampler, train_sampler
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.environment.memory import memory_in_all
from dlio_torch.errors import PreconditionError
from dlio_torch.formats.core.format import Format
from dlio_torch.units import format_duration, format_size

LONGEST_S = 366 * 86400.0
"""A run that must take longer is a slip of the pen."""
_OWN_STEP_S = 1e-5  # what a step takes at the least, with no compute and no reading
_WORKER_BYTES = 4 << 20  # memory of its own that a worker process takes at the least


@dataclass(frozen=True)
class Needs:
    """What a rank needs, before it is known what there is.

    Attributes:
        batch_bytes: batches that are held at once, beside torch, and what waits with them.
        state_bytes: payload of a checkpoint that is kept in memory.
        gradient_bytes: tensors that the ranks reduce.
        processes: loader workers and threads at once.
    """

    batch_bytes: float
    state_bytes: int
    gradient_bytes: int
    processes: int


def check_possible(
    config: Config, manifests: Mapping[str, Manifest], rank: int, world_size: int, sources: Mapping[str, str]
) -> BatchSampler | PipePlan | HeldPlan:
    """Refuse a plan that leads nowhere; returns the order of the rank's training samples.

    Args:
        config: the experiment.
        manifests: the data, by split.
        rank: this rank.
        world_size: all ranks.
        sources: where each value was set, for the messages.

    Raises:
        ConfigError: batch or steps do not fit the data, or the run would take longer than :data:`LONGEST_S`.
    """
    sampler = train_sampler(config, manifests["train"], rank, world_size)
    evaluation = eval_sampler(config, manifests.get("eval", manifests["train"]), rank, world_size, sampler.batch_size)
    seconds = _seconds(config, sampler, 0 if evaluation is None else len(evaluation))
    if seconds > LONGEST_S:
        keys = ["train.epochs", "train.steps", "compute.step_s"]
        keys += ["compute.eval_step_s"] if evaluation is not None else []
        keys += ["compute.preprocess_s"] if config.compute.preprocess_s else []
        Check(config, dict(sources)).fail(
            keys,
            f"{len(sampler)} steps of each epoch take {format_duration(seconds)} at the least, more than a year",
            "take fewer steps or epochs, or a shorter step",
        )
    return sampler


def check_specs(fmt: Format, sampler: Plan) -> None:
    """Refuse samples that the access pattern has no use for.

    Raises:
        ConfigError: the pattern cuts samples of variable length, and these have none.
    """
    plan = fetched_by(sampler)
    if isinstance(plan, LanesPlan):
        plan.cut(fmt.specs())


def needs(config: Config, fmt: Format, sampler: Plan, *, reduces: bool) -> Needs:
    """What a rank needs for the training; sizes are of samples as the format says them.

    Args:
        config: the experiment.
        fmt: of the data.
        sampler: the order of the rank's training samples.
        reduces: whether the rank holds a gradient for a reduction, as one that no launcher has started does not.
    """
    saved = config.checkpoint
    busy = config.compute.threads if config.compute.mode == "spin" else 0
    return Needs(
        held_bytes(config, fmt, sampler),
        kept_for_saving(saved),
        config.train.allreduce_bytes if reduces else 0,
        engines.facts(config.loader.engine).demand(config.loader).readers + _interleaving(config) + busy,
    )


def held_bytes(config: Config, fmt: Format, sampler: Plan) -> float:
    """Bytes of batches that a rank holds at once, beside torch."""
    loader = config.loader
    fetched = fetched_by(sampler)
    samples = len(fetched) * config.train.epochs * sampler.batch_size
    endless = isinstance(fetched, PipePlan) and fetched.endless  # read on into the next epochs
    demand = engines.facts(loader.engine).demand(loader)
    held = demand.held_bytes(sampler.batch_size * fmt.sample_bytes(), None if endless else len(fetched))
    if loader.in_memory:
        held += min(len(sampler.share), samples) * fmt.sample_bytes()
    if isinstance(fetched, PipePlan):
        held += fetched.held_samples * fmt.sample_bytes()
    return held


def check_room(config: Config, fmt: Format, sampler: Plan, sources: Mapping[str, str], *, reduces: bool) -> None:
    """Refuse what this machine has no memory and no processes for.

    Raises:
        PreconditionError: it has not; names the options that ask for it.
    """
    problem = lacking(config, fmt, sampler, sources, reduces=reduces)
    if problem is not None:
        raise problem


def lacking(
    config: Config, fmt: Format, sampler: Plan, sources: Mapping[str, str], *, reduces: bool
) -> PreconditionError | None:
    """What this machine lacks for a run, as the error that a run ends with; ``None``: nothing that is known."""
    wanted, check = needs(config, fmt, sampler, reduces=reduces), Check(config, dict(sources))
    memory = memory_in_all()
    loader = config.loader
    if wanted.processes > (most := _most_processes()):
        keys = ["loader.num_workers", "loader.read_threads"]
        keys += ["access.interleave", "access.interleave_prefetch"] if _interleaving(config) else []
        keys += ["compute.threads"] if config.compute.mode == "spin" else []
        return _lacks(check, keys, f"this machine permits {most} processes and threads", "take fewer")
    if (problem := engines.open_files(loader, len(fmt.specs())).lacking()) is not None:
        return problem
    if loader.num_workers * _WORKER_BYTES > memory:
        text = f"so many processes do not fit into {format_size(memory)} of memory"
        return _lacks(check, ["loader.num_workers"], text, "take fewer")
    if wanted.batch_bytes > memory:
        keys = ["train.batch_size", *engines.facts(loader.engine).demand(loader).memory_keys]
        keys += ["loader.in_memory"] if loader.in_memory else []
        keys += ["access.shuffle_pool"] if config.access.shuffle_pool else []
        text = f"{format_size(wanted.batch_bytes)} of samples would be held, this machine has {format_size(memory)}"
        return _lacks(check, keys, text, "lower one of them, or take smaller samples")
    if wanted.state_bytes > memory:
        kinds = {"files": "checkpoint.files", "tensorflow": "checkpoint.tensorflow.meta_bytes"}
        key = kinds.get(config.checkpoint.kind, "checkpoint.state_bytes")
        text = f"{format_size(wanted.state_bytes)} are kept in memory, and this machine has {format_size(memory)}"
        return _lacks(check, [key], text, "take a smaller state, smaller write_bytes, or a smaller scale")
    if wanted.gradient_bytes > (room := max(memory, _gpu_bytes())):
        text = f"{format_size(wanted.gradient_bytes)} of gradient would be held, this machine has {format_size(room)}"
        return _lacks(check, ["train.allreduce_bytes"], text, "take a smaller gradient, or a smaller scale")
    return None


def _gpu_bytes() -> int:
    """Memory of the largest GPU, where the gradient may lie; 0 without one."""
    if not torch.cuda.is_available():
        return 0
    return max(torch.cuda.get_device_properties(index).total_memory for index in range(torch.cuda.device_count()))


def _lacks(check: Check, keys: list[str], problem: str, way_out: str) -> PreconditionError:
    return PreconditionError(f"{' with '.join(check.text(key) for key in keys)}: {problem}", hint=way_out)


def _interleaving(config: Config) -> int:
    """Threads of a rank that read the interleaved files of a stream."""
    access, loader = config.access, config.loader
    if not access.interleave_buffer:
        return 0
    return max(1, loader.num_workers) * (access.interleave + access.interleave_prefetch)


def _seconds(config: Config, sampler: Plan, eval_steps: int) -> float:
    compute, train = config.compute, config.train
    steps = len(sampler) * train.epochs
    times = steps // train.eval_every_steps if train.eval_every_steps else 0
    times += train.epochs // train.eval_every_epochs if train.eval_every_epochs else 0
    step_s, eval_s = compute.emulated_step_s, compute.emulated_eval_step_s
    if config.loader.replay == "none" and not config.loader.in_memory:
        # Whoever reads samples is busy with each; that many of them at once, however few cores there are.
        readers = engines.facts(config.loader.engine).demand(config.loader).readers
        step_s = max(step_s, sampler.batch_size * compute.preprocess_s / max(1, readers))
    return float(steps) * max(step_s, _OWN_STEP_S) + float(times) * eval_steps * max(eval_s, _OWN_STEP_S)


def _most_processes() -> int:
    """Processes and threads that the system permits this user."""
    found = [2**31]
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:  # root is not held to it
        found.append(soft)
    for name in ("threads-max", "pid_max"):
        try:
            with open(f"/proc/sys/kernel/{name}", encoding="ascii") as file:
                found.append(int(file.read()))
        except (OSError, ValueError):
            continue
    return min(found)
