"""The plan that ``--dry-run`` prints: bytes, files, steps, memory and time of a run; nothing is written."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence

from dlio_torch.checkpoint.saves import checkpoint_bytes, is_saved, saves, saving_ranks, start_bytes, total_bytes
from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import check_world
from dlio_torch.data.dataset.manifest import Manifest, check_present, data_folder
from dlio_torch.data.dataset.stored_size import stored_bytes
from dlio_torch.data.engines import registry as engines
from dlio_torch.data.engines.placement_plan import LocalRank, placement_lines, plan_placement
from dlio_torch.data.engines.registry import format_of
from dlio_torch.data.order.held_plan import fetched_by
from dlio_torch.data.order.pipe_plan import Plan
from dlio_torch.data.order.planning import RankOrder, fit_to_data, left_over, plan_order
from dlio_torch.dist.launcher import Launch, detect
from dlio_torch.dist.registry import choose_backend
from dlio_torch.errors import ConfigError, DlioError, PreconditionError
from dlio_torch.formats.core.format import Format
from dlio_torch.preflight.checkpoint_layout import check_checkpoints
from dlio_torch.preflight.checkpoint_space import (
    checkpoint_location,
    checkpoint_root_problem,
    checkpoint_space_problem,
    peak_bytes,
)
from dlio_torch.preflight.crowded_cores import crowded_cores
from dlio_torch.preflight.data_location import LocatedData, locate_data
from dlio_torch.preflight.data_space import data_space_problem
from dlio_torch.preflight.feasibility import (
    NodeRanks,
    check_duration,
    check_sample_shapes,
    held_batch_bytes,
    resource_problem,
)
from dlio_torch.preflight.mpi_io import check_mpi_io
from dlio_torch.preflight.uring_reads import uring_lines
from dlio_torch.report.checkpoint_plan_text import checkpoint_plan_lines, undue_line
from dlio_torch.report.data_text import data_lines
from dlio_torch.report.job_text import job_lines
from dlio_torch.report.scale_text import scale_line
from dlio_torch.units import counted, format_duration, format_size

_MAX_COUNTED = 1_000_000  # files of a split that are looked for


def dry_run(composed: Composed, phases: Sequence[str] = ("generate", "train")) -> int:
    """Print the plan on rank 0; returns the exit code.

    Args:
        composed: the configuration and its sources.
        phases: ``generate``, ``train`` or both.

    Raises:
        DlioError: the configuration is wrong, or data are missing or damaged.
    """
    launch, fmt = detect(), format_of(composed.config)
    world_size = 1 if composed.config.dist.backend == "single" else launch.world_size
    data = locate_data(composed.config, fmt)
    if composed.config.dataset.path is None and "generate" not in phases and fmt.needs_files:
        check_present(data.manifests, fmt)
    train = data.manifests["train"]
    config = fit_to_data(
        composed.config, data.manifests, world_size, scaled=composed.scaled, fits_batch=composed.fits_batch
    )
    check_world(config, world_size, train.num_samples, train.num_files, composed.sources)
    order = plan_order(config, fmt, data.manifests, 0, world_size)
    check_duration(config, order, composed.sources)
    check_sample_shapes(fmt, order.train)
    if launch.rank == 0:
        lines = [*composed.remarks, *([scale_line(config.scale.name, composed.notes)] if composed.notes else [])]
        lines += _data(config, fmt, data)
        lines += filter(None, [left_over(config, train, order.train, world_size)])
        if "train" in phases:
            lines += _training(config, fmt, order.train, world_size, composed.sources)
            lines += _evaluation(config, order, world_size)
            lines += _problems(config, fmt, data.manifests, order.train, launch, composed.sources)
        print("\n".join(lines))
    return 0


def _data(config: Config, fmt: Format, data: LocatedData) -> Iterator[str]:
    if data.details is not None:
        yield from data_lines(config.dataset.path, data.details)
        return
    for split, manifest in data.manifests.items():
        amount = f"data: {split}: {counted(manifest.num_files, 'file')}, {manifest.num_samples} samples"
        if not fmt.needs_files:
            yield f"{amount} in memory"
            continue
        present = "existing files are not counted"
        if manifest.num_files <= _MAX_COUNTED:
            present = f"{sum(fmt.is_there(manifest.path(file)) for file in range(manifest.num_files))}"
        size = format_size(manifest.num_samples * stored_bytes(fmt))
        yield f"{amount}, about {size} in {data_folder(config, fmt)} ({present} already there)"


def _training(config: Config, fmt: Format, sampler: Plan, world_size: int, sources: Mapping[str, str]) -> Iterator[str]:
    steps, epochs = len(sampler), config.train.epochs
    if config.stage.dir is not None:
        readers = "the ranks of a node read" if config.stage.per == "node" else "each rank reads"
        yield f"stage: the files that {readers} are copied to {config.stage.dir} before they are read"
    samples = sampler.epoch_samples * epochs
    compute = steps * epochs * config.compute.emulated_step_s
    yield f"ranks: {_ranks(config, world_size)}"
    yield f"steps: {steps} per rank and epoch, {counted(epochs, 'epoch')}, {_samples_of_a_step(sampler)}"
    yield (
        f"reads: {format_size(samples * fmt.sample_bytes())} of tensors per rank, about "
        f"{format_size(samples * stored_bytes(fmt) * fmt.sharing())} of stored data"
    )
    if fmt.needs_files:
        yield _page_cache(config)
    if config.loader.io == "io_uring":
        yield f"io: io_uring, up to {counted(config.loader.queue_depth, 'request')} in flight per reader thread"
    yield from job_lines(config, world_size)
    yield _checkpoints(config, steps, world_size, sources)
    yield from _job_checkpoint(config, steps)
    yield (
        f"memory: about {format_size(held_batch_bytes(config, fmt, sampler))} of batches per rank, in addition to torch"
    )
    yield f"time: at least {format_duration(compute)} of emulated compute per rank, plus generating, reading and saving"


def _samples_of_a_step(sampler: Plan) -> str:
    if sampler.epoch_samples == len(fetched_by(sampler)) * sampler.batch_size:
        return f"{sampler.batch_size} samples per rank and step"
    return f"at most {sampler.batch_size} samples per rank and step, {sampler.epoch_samples} per rank and epoch"


def _job_checkpoint(config: Config, steps: int) -> Iterator[str]:
    """Lines on one checkpoint of the described job with all its ranks; none if no model is described."""
    if config.model.described:
        yield from checkpoint_plan_lines(config, peak_bytes(config, steps, config.parallel.world_size))


def _page_cache(config: Config) -> str:
    """State of the page cache when training begins, and so what the first epoch measures."""
    words = {
        "cold": "the data are evicted before training: the first epoch reads from the storage device",
        "warm": "all data are read before training: the first epoch reads from memory",
        "as_is": "left as it is: data that are in memory are read from there (cache=cold evicts them)",
    }
    if config.dataset.direct_io:
        return "page cache: not used (dataset.direct_io=true)"
    return f"page cache: {words[config.cache_goal]}"


def _ranks(config: Config, world_size: int) -> str:
    """Number of ranks of this run, and of the published run if it had more ranks."""
    published = config.system.world_size
    if published <= world_size:
        return f"{world_size}"
    return f"{world_size}; the published run had {published} (system.world_size); start more ranks with a launcher"


def _problems(
    config: Config,
    fmt: Format,
    manifests: Mapping[str, Manifest],
    sampler: Plan,
    launch: Launch,
    sources: Mapping[str, str],
) -> Iterator[str]:
    """Reasons why this machine would refuse the run; another machine may be large enough."""
    problems: list[DlioError | None] = []
    try:
        reduces = choose_backend(config.dist.backend, launch) != "single"
    except ConfigError as error:
        problems.append(error)
        reduces = True
    if (line := crowded_cores(config, 1, sources)) is not None:
        yield line
    yield from uring_lines(config)
    demand = engines.facts(config.loader.engine).demand(config.loader)
    yield from placement_lines(config, plan_placement(config, demand, LocalRank(launch.local_rank)))
    problems.append(resource_problem(config, fmt, sampler, sources, reduces=reduces, ranks=_node_ranks(launch)))
    problems.append(checkpoint_space_problem(config, len(sampler), launch.world_size))
    problems.append(checkpoint_root_problem(config, sources))
    try:
        check_mpi_io(config, fmt)
    except PreconditionError as error:
        problems.append(error)
    try:
        check_checkpoints(config)
    except PreconditionError as error:
        problems.append(error)
    if config.dataset.path is None and fmt.needs_files:
        problems.append(data_space_problem(config, fmt, manifests.values()))
    yield from (f"not possible on this machine: {problem}" for problem in problems if problem is not None)


def _node_ranks(launch: Launch) -> NodeRanks:
    """Ranks that torchrun starts on this node; the number is not known of other launchers, and this rank counts."""
    count = int(os.environ.get("LOCAL_WORLD_SIZE", "1")) if launch.name == "torchrun" else 1
    first = launch.rank - launch.local_rank if count > 1 else launch.rank
    return NodeRanks(tuple(range(first, first + count)), launch.world_size)


def _evaluation(config: Config, order: RankOrder, world_size: int) -> Iterator[str]:
    """Yields a line about the evaluations of rank 0; no line for a run without evaluation."""
    train, sampler, evaluation = config.train, order.train, order.evaluation
    if evaluation is None:
        return
    times = len(sampler) * train.epochs // train.eval_every_steps if train.eval_every_steps else 0
    times += train.epochs // train.eval_every_epochs if train.eval_every_epochs else 0
    ranks = f"each of {counted(world_size, 'rank')}" if train.eval_ranks == "all" else "the first rank"
    full = evaluation.epoch_samples == len(evaluation) * evaluation.batch_size
    samples = f"{evaluation.batch_size} samples each" if full else f"{evaluation.epoch_samples} samples in all"
    yield f"evaluations: {times} of {len(evaluation)} steps, {samples}, by {ranks}"


def _checkpoints(config: Config, steps: int, world_size: int, sources: Mapping[str, str]) -> str:
    if config.checkpoint.layout == "none":
        return "checkpoints: none"
    ranks = saving_ranks(config, world_size)
    options = config.checkpoint
    count, before = saves(options, steps, config.train.epochs), start_bytes(config)
    if not is_saved(config, steps):
        return undue_line(config, steps, sources)
    graphs = f", {format_size(before)} of graphs before the first" if before else ""
    size, total = checkpoint_bytes(config), total_bytes(config, world_size)
    average = f"{format_size(size)}" if total == ranks * size else f"{format_size(total / ranks)} on average"
    return (
        f"checkpoints: {count} of {average} by {counted(ranks, 'rank')}{graphs}, up to "
        f"{format_size(peak_bytes(config, steps, world_size))} of disk space at a time in "
        f"{checkpoint_location(config)}"
    )
