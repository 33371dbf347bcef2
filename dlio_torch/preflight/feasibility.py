"""Preflight check: the training ends within a year, and this machine has enough memory and processes for the run.

Values that are valid one by one can together ask for centuries, or for batches that no memory holds.  A run that lasts
too long anywhere is an error of the configuration; a run that needs a larger machine fails a precondition.  The checks
allocate nothing.
"""

from __future__ import annotations

import os
import resource
from collections.abc import Mapping
from dataclasses import dataclass

import torch

from dlio_torch.checkpoint.registry import layout_of
from dlio_torch.checkpoint.saves import held_bytes, is_saved
from dlio_torch.config.check import ConfigCheck
from dlio_torch.config.schema import Config
from dlio_torch.data.engines import registry as engines
from dlio_torch.data.order.held_plan import fetched_by
from dlio_torch.data.order.lanes_plan import LanesPlan
from dlio_torch.data.order.pipe_plan import PipePlan, Plan
from dlio_torch.data.order.planning import RankOrder
from dlio_torch.environment.memory_limits import memory_in_all
from dlio_torch.errors import PreconditionError
from dlio_torch.formats.core.format import Format
from dlio_torch.units import format_duration, format_size

LONGEST_S = 366 * 86400.0
"""Longest training in seconds; a configuration that needs more is taken for a typing mistake."""
_MIN_STEP_S = 1e-5  # duration of a step without compute and reads
_MIN_WORKER_BYTES = 4 << 20  # private memory of a worker process


@dataclass(frozen=True)
class NodeRanks:
    """Ranks of this node.

    Attributes:
        numbers: of the ranks.
        world_size: number of ranks on all nodes.
    """

    numbers: tuple[int, ...]
    world_size: int


@dataclass(frozen=True)
class ResourceNeeds:
    """Memory and processes that one rank needs, apart from checkpoints.

    Attributes:
        batch_bytes: batches and samples that it holds at once, without torch's own memory.
        gradient_bytes: tensors that the ranks reduce.
        processes: loader workers and threads that run at once.
    """

    batch_bytes: float
    gradient_bytes: int
    processes: int


def check_duration(config: Config, order: RankOrder, sources: Mapping[str, str]) -> None:
    """Refuse a training that lasts longer than :data:`LONGEST_S`.

    Args:
        config: the experiment.
        order: the order of the rank's samples.
        sources: where each value was set, for the message.

    Raises:
        ConfigError: it lasts longer.
    """
    evaluation = order.evaluation
    seconds = _min_seconds(config, order.train, 0 if evaluation is None else len(evaluation))
    if seconds > LONGEST_S:
        keys = ["train.epochs", "train.steps", "compute.step_s"]
        keys += ["compute.eval_step_s"] if evaluation is not None else []
        keys += ["compute.preprocess_s"] if config.compute.preprocess_s else []
        ConfigCheck(config, dict(sources)).fail(
            keys,
            f"the emulated compute of {len(order.train)} steps per epoch takes at least "
            f"{format_duration(seconds)}, more than a year",
            "lower the number of steps or epochs, or the time of a step",
        )


def check_sample_shapes(fmt: Format, sampler: Plan) -> None:
    """Refuse samples of fixed length with an access pattern that cuts batches from samples of variable length.

    Raises:
        ConfigError: the samples have a fixed length.
    """
    plan = fetched_by(sampler)
    if isinstance(plan, LanesPlan):
        plan.cut(fmt.specs())


def resource_needs(config: Config, fmt: Format, sampler: Plan, *, reduces: bool) -> ResourceNeeds:
    """Memory and processes that a rank needs for the training, from the sizes of samples that the format states.

    Args:
        config: the experiment.
        fmt: format of the data.
        sampler: the order of the rank's training samples.
        reduces: whether the rank holds a gradient to reduce; a process without a launcher holds none.
    """
    spinning = config.compute.threads if config.compute.mode == "spin" else 0
    return ResourceNeeds(
        held_batch_bytes(config, fmt, sampler),
        config.train.allreduce_bytes if reduces else 0,
        engines.facts(config.loader.engine).demand(config.loader).readers + _interleave_threads(config) + spinning,
    )


def held_batch_bytes(config: Config, fmt: Format, sampler: Plan) -> float:
    """Bytes of batches and samples that a rank holds in memory at once, without torch's own memory."""
    loader = config.loader
    fetched = fetched_by(sampler)
    samples = sampler.epoch_samples * config.train.epochs
    endless = isinstance(fetched, PipePlan) and fetched.endless  # its pipes read on into the next epoch
    demand = engines.facts(loader.engine).demand(loader)
    batch = min(sampler.batch_size, sampler.epoch_samples) * fmt.sample_bytes()
    held = demand.held_bytes(batch, None if endless else len(fetched))
    held += min(loader.prefetch_to_device, len(fetched)) * batch
    if loader.in_memory:
        held += min(len(sampler.share), samples) * fmt.sample_bytes()
    if isinstance(fetched, PipePlan):
        held += fetched.held_samples * fmt.sample_bytes()
    return held


def resource_problem(
    config: Config,
    fmt: Format,
    sampler: Plan,
    sources: Mapping[str, str],
    *,
    reduces: bool,
    ranks: NodeRanks = NodeRanks((0,), 1),
) -> PreconditionError | None:
    """Returns the error if the training needs more resources than this machine has; ``None`` if they suffice."""
    wanted, check = resource_needs(config, fmt, sampler, reduces=reduces), ConfigCheck(config, dict(sources))
    memory = memory_in_all()
    loader = config.loader
    if wanted.processes > (limit := _process_limit()):
        keys = ["loader.num_workers", "loader.read_threads"]
        keys += ["access.interleave", "access.interleave_prefetch"] if _interleave_threads(config) else []
        keys += ["compute.threads"] if config.compute.mode == "spin" else []
        return _insufficient(
            check, keys, f"more processes and threads than the {limit} that this machine permits", "lower these numbers"
        )
    if (problem := engines.open_files(loader, len(fmt.specs())).lacking()) is not None:
        return problem
    if loader.num_workers * _MIN_WORKER_BYTES > memory:
        text = f"so many worker processes do not fit into the {format_size(memory)} of memory of this machine"
        return _insufficient(check, ["loader.num_workers"], text, "lower these numbers")
    if wanted.batch_bytes > memory:
        keys = ["train.batch_size", *engines.facts(loader.engine).demand(loader).memory_keys]
        keys += ["loader.prefetch_to_device"] if loader.prefetch_to_device else []
        keys += ["loader.in_memory"] if loader.in_memory else []
        keys += ["access.shuffle_pool"] if config.access.shuffle_pool else []
        text = (
            f"a rank would hold {format_size(wanted.batch_bytes)} of samples in memory, but this machine has "
            f"{format_size(memory)}"
        )
        return _insufficient(check, keys, text, "lower one of these options, or make samples smaller")
    saved = is_saved(config, len(sampler))
    if saved and (excess := checkpoint_memory_problem(config, sources, ranks)) is not None:
        return excess
    if wanted.gradient_bytes > (room := max(memory, _gpu_bytes())):
        text = (
            f"a rank would hold {format_size(wanted.gradient_bytes)} of gradient in memory, but this machine has "
            f"{format_size(room)}"
        )
        return _insufficient(
            check, ["train.allreduce_bytes"], text, "lower train.allreduce_bytes, or choose a smaller scale"
        )
    return None


def checkpoint_memory_problem(config: Config, sources: Mapping[str, str], ranks: NodeRanks) -> PreconditionError | None:
    """Returns the error if this machine has less memory than its ranks hold to save checkpoints; ``None`` if it has it.

    Args:
        config: the experiment.
        sources: where each value was set, for the message.
        ranks: those of this node, which hold checkpoints at the same time.
    """
    held, memory = held_bytes(config, ranks.numbers, ranks.world_size), memory_in_all()
    if held <= memory:
        return None
    kinds = {"files": "checkpoint.files", "tensorflow": "checkpoint.tensorflow.meta_bytes"}
    layout = layout_of(config.checkpoint.layout)
    by_model = layout is not None and layout.saves_job(config)
    key = "model.num_layers" if by_model else kinds.get(config.checkpoint.layout, "checkpoint.state_bytes")
    remedy = (
        "start fewer ranks on a node, lower the number of layers"
        if by_model
        else "lower the size of the state or write_bytes"
    )
    count = len(ranks.numbers)
    who = "a rank keeps" if count == 1 else f"the {count} ranks of this node keep"
    return _insufficient(
        ConfigCheck(config, dict(sources)),
        [key],
        f"{who} {format_size(held)} of checkpoint content in memory, but this machine has {format_size(memory)}",
        f"{remedy}, or choose a smaller scale",
    )


def _gpu_bytes() -> int:
    """Memory of the largest GPU, in bytes, because the gradient may lie there; 0 without a GPU."""
    if not torch.cuda.is_available():
        return 0
    return max(torch.cuda.get_device_properties(index).total_memory for index in range(torch.cuda.device_count()))


def _insufficient(check: ConfigCheck, keys: list[str], problem: str, hint: str) -> PreconditionError:
    return PreconditionError(f"{' with '.join(check.text(key) for key in keys)}: {problem}", hint=hint)


def _interleave_threads(config: Config) -> int:
    """Threads of a rank that read interleaved files."""
    access, loader = config.access, config.loader
    if not access.interleave_buffer:
        return 0
    return max(1, loader.num_workers) * (access.interleave + access.interleave_prefetch)


def _min_seconds(config: Config, sampler: Plan, eval_steps: int) -> float:
    """Minimum duration of a rank's training in seconds, from the emulated compute and preprocessing."""
    compute, train = config.compute, config.train
    steps = len(sampler) * train.epochs
    times = steps // train.eval_every_steps if train.eval_every_steps else 0
    times += train.epochs // train.eval_every_epochs if train.eval_every_epochs else 0
    step_s, eval_s = compute.emulated_step_s, compute.emulated_eval_step_s
    if config.loader.replay == "none" and not config.loader.in_memory:
        # Each reader preprocesses its own samples, and all readers work at once however few cores there are.
        readers = engines.facts(config.loader.engine).demand(config.loader).readers
        fetched = fetched_by(sampler)
        batch = min(sampler.batch_size, fetched.epoch_samples / len(fetched))
        step_s = max(step_s, batch * compute.preprocess_s / max(1, readers))
    return float(steps) * max(step_s, _MIN_STEP_S) + float(times) * eval_steps * max(eval_s, _MIN_STEP_S)


def _process_limit() -> int:
    """Number of processes and threads that the system permits this user."""
    limits = [2**31]
    soft, _ = resource.getrlimit(resource.RLIMIT_NPROC)
    if soft != resource.RLIM_INFINITY and os.geteuid() != 0:  # the limit does not hold for root
        limits.append(soft)
    for name in ("threads-max", "pid_max"):
        try:
            with open(f"/proc/sys/kernel/{name}", encoding="ascii") as file:
                limits.append(int(file.read()))
        except (OSError, ValueError):
            continue
    return min(limits)
