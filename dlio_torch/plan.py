"""``--dry-run``: bytes, files, steps, memory and time of a run, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlio_torch.config.checkpoint_amount import checkpoint_bytes, saves, start_bytes
from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import check_world
from dlio_torch.data.dataset import manifest as layout
from dlio_torch.data.dataset.disk_space import no_room, stored_bytes
from dlio_torch.data.dataset.manifest import Manifest
from dlio_torch.data.engines.registry import format_of
from dlio_torch.data.order.held_plan import fetched_by
from dlio_torch.data.order.pipe_plan import Plan
from dlio_torch.data.order.planning import eval_sampler, fit_steps
from dlio_torch.dist.launcher import Launch, detect
from dlio_torch.dist.registry import check_mpi4py, choose_backend
from dlio_torch.errors import ConfigError, DlioError, PreconditionError
from dlio_torch.formats.core.format import Format
from dlio_torch.preflight.checkpoint_space import no_checkpoint_room, peak_bytes, results_folder
from dlio_torch.preflight.feasibility import check_possible, check_specs, held_bytes, lacking
from dlio_torch.report.found import found_lines
from dlio_torch.units import format_duration, format_size

_MOST_COUNTED = 1_000_000  # files that are looked for, one by one


def dry_run(composed: Composed, phases: Sequence[str] = ("generate", "train")) -> int:
    """Print the plan on rank 0; returns the exit code.

    Raises:
        DlioError: what a run would raise before it writes anything.
    """
    config, launch = composed.config, detect()
    world_size = 1 if config.dist.backend == "single" else launch.world_size
    fmt = format_of(config)
    details: dict[str, Any] = {}
    if config.dataset.path is None:
        manifests = layout.generated(config, fmt)
        if "generate" not in phases and fmt.needs_files:
            layout.check_present(manifests, fmt)
    else:
        manifest, details = layout.existing(config, fmt)
        manifests = {"train": manifest}
        details = {"files": manifest.num_files, "samples": manifest.num_samples, **details}
    train = manifests["train"]
    config = fit_steps(config, manifests, world_size, composed.scaled)
    check_world(config, world_size, train.num_samples, train.num_files, composed.sources)
    sampler = check_possible(config, manifests, 0, world_size, composed.sources)
    check_specs(fmt, sampler)
    if launch.rank == 0:
        lines = [f"scale: {note}" for note in composed.notes]
        lines += _data(config, fmt, manifests, details)
        if "train" in phases:
            lines += _training(config, fmt, sampler, world_size)
            lines += _evaluation(config, manifests, sampler, world_size)
            lines += _not_here(config, fmt, manifests, sampler, launch, composed.sources)
        print("\n".join(lines))
    return 0


def _data(config: Config, fmt: Format, manifests: dict[str, Manifest], details: Mapping[str, Any]) -> Iterator[str]:
    for split, manifest in manifests.items():
        what = f"data: {split}: {manifest.num_files} file(s), {manifest.num_samples} samples"
        if config.dataset.path is not None:
            yield from found_lines(config.dataset.path, details)
        elif fmt.needs_files:
            there = "not counted which are"
            if manifest.num_files <= _MOST_COUNTED:
                there = f"{sum(fmt.is_there(manifest.path(file)) for file in range(manifest.num_files))}"
            size = format_size(manifest.num_samples * stored_bytes(fmt))
            yield f"{what}, about {size} in {layout.data_folder(config, fmt)} ({there} already there)"
        else:
            yield f"{what} in memory"


def _training(config: Config, fmt: Format, sampler: Plan, world_size: int) -> Iterator[str]:
    steps, epochs = len(sampler), config.train.epochs
    if config.stage.dir is not None:
        who = "the ranks of a node read" if config.stage.per == "node" else "each rank reads"
        yield f"stage: what {who} is copied to {config.stage.dir} before it is read"
    fetched = fetched_by(sampler)
    samples = len(fetched) * epochs * sampler.batch_size
    compute = steps * epochs * config.compute.emulated_step_s
    yield f"ranks: {_ranks(config, world_size)}"
    yield f"steps: {steps} a rank and epoch, {epochs} epoch(s), {sampler.batch_size} samples a rank and step"
    yield (
        f"reads: {format_size(samples * fmt.sample_bytes())} of tensors a rank, "
        f"about {format_size(samples * stored_bytes(fmt))} of stored data"
    )
    yield _checkpoints(config, steps, world_size)
    yield f"memory: about {format_size(held_bytes(config, fmt, sampler))} of batches a rank, beside torch"
    yield f"time: at least {format_duration(compute)} of emulated compute a rank, beside generating, reading and saving"


def _ranks(config: Config, world_size: int) -> str:
    """How many ranks were started, and how many the published run had where those were more."""
    published = config.system.world_size
    if published <= world_size:
        return f"{world_size}"
    return f"{world_size}; the published run had {published} (system.world_size), which a launcher starts"


def _not_here(
    config: Config,
    fmt: Format,
    manifests: Mapping[str, Manifest],
    sampler: Plan,
    launch: Launch,
    sources: Mapping[str, str],
) -> Iterator[str]:
    """Why this machine would refuse the run; another one may have what it takes."""
    problems: list[DlioError | None] = []
    try:
        reduces = choose_backend(config.dist.backend, launch) != "single"
    except ConfigError as error:
        problems.append(error)
        reduces = True
    problems.append(lacking(config, fmt, sampler, sources, reduces=reduces))
    problems.append(no_checkpoint_room(config, len(sampler), launch.world_size))
    if config.access.io != "posix":
        try:
            fmt.check_shared()
            check_mpi4py(f"access.io={config.access.io}")
        except PreconditionError as error:
            problems.append(error)
    if config.dataset.path is None and fmt.needs_files:
        problems.append(no_room(config, fmt, manifests.values()))
    yield from (f"not possible here: {problem}" for problem in problems if problem is not None)


def _evaluation(config: Config, manifests: dict[str, Manifest], sampler: Plan, world_size: int) -> Iterator[str]:
    """How often and how much the first rank evaluates; nothing where no run does."""
    train, manifest = config.train, manifests.get("eval", manifests["train"])
    order = eval_sampler(config, manifest, 0, world_size, sampler.batch_size)
    if order is None:
        return
    times = len(sampler) * train.epochs // train.eval_every_steps if train.eval_every_steps else 0
    times += train.epochs // train.eval_every_epochs if train.eval_every_epochs else 0
    who = f"each of {world_size} rank(s)" if train.eval_ranks == "all" else "the first rank"
    yield f"evaluations: {times} of {len(order)} steps, {order.batch_size} samples each, by {who}"


def _checkpoints(config: Config, steps: int, world_size: int) -> str:
    if config.checkpoint.kind == "none":
        return "checkpoints: none"
    ranks = world_size if config.checkpoint.ranks == "all" else 1
    options = config.checkpoint
    count, before = saves(options, steps, config.train.epochs), start_bytes(options)
    graphs = f", {format_size(before)} of graphs before the first" if before else ""
    return (
        f"checkpoints: {count} of {format_size(checkpoint_bytes(options))} by {ranks} rank(s){graphs}, "
        f"up to {format_size(peak_bytes(config, steps, world_size))} of disk at a time in {results_folder(config)}"
    )
