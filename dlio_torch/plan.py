"""``--dry-run``: bytes, files, steps, memory and time of a run, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from dlio_torch.config.compose import Composed
from dlio_torch.config.schema import Config
from dlio_torch.config.validate import check_world
from dlio_torch.data import layout
from dlio_torch.data.assemble import eval_sampler, fit_steps, train_sampler
from dlio_torch.data.hold import HeldPlan
from dlio_torch.data.layout import Manifest
from dlio_torch.data.pipeplan import PipePlan, Plan
from dlio_torch.dist.launcher import detect
from dlio_torch.formats import registry
from dlio_torch.formats.base import Format
from dlio_torch.report.found import found_lines
from dlio_torch.units import format_duration, format_size


def dry_run(composed: Composed, phases: Sequence[str] = ("generate", "train")) -> int:
    """Print the plan on rank 0; returns the exit code.

    Raises:
        DlioError: what a run would raise before it writes anything.
    """
    config, launch = composed.config, detect()
    world_size = 1 if config.dist.backend == "single" else launch.world_size
    places, mpi_io = config.loader.engine == "decoupled", config.access.io != "posix"
    fmt = registry.create(config.dataset, config.seed, places=places, mpi_io=mpi_io)
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
    sampler = train_sampler(config, train, 0, world_size)
    if launch.rank == 0:
        lines = [f"scale: {note}" for note in composed.notes]
        lines += _data(config, fmt, manifests, details)
        if "train" in phases:
            lines += _training(config, fmt, sampler, world_size)
            lines += _evaluation(config, manifests, sampler, world_size)
        print("\n".join(lines))
    return 0


def _data(config: Config, fmt: Format, manifests: dict[str, Manifest], details: Mapping[str, Any]) -> Iterator[str]:
    for split, manifest in manifests.items():
        what = f"data: {split}: {manifest.num_files} file(s), {manifest.num_samples} samples"
        if config.dataset.path is not None:
            yield from found_lines(config.dataset.path, details)
        elif fmt.needs_files:
            there = sum(fmt.is_there(manifest.path(file)) for file in range(manifest.num_files))
            size = format_size(manifest.num_samples * fmt.stored_bytes())
            yield f"{what}, about {size} in {layout.data_folder(config, fmt)} ({there} already there)"
        else:
            yield f"{what} in memory"


def _training(config: Config, fmt: Format, sampler: Plan, world_size: int) -> Iterator[str]:
    loader, steps, epochs = config.loader, len(sampler), config.train.epochs
    if config.stage.dir is not None:
        who = "the ranks of a node read" if config.stage.per == "node" else "each rank reads"
        yield f"stage: what {who} is copied to {config.stage.dir} before it is read"
    fetched = sampler.fetched if isinstance(sampler, HeldPlan) else sampler
    samples = len(fetched) * epochs * sampler.batch_size
    ahead = loader.num_workers * (loader.prefetch_factor or 2)
    if loader.read_threads:
        ahead = loader.prefetch_batches
    held = (ahead + 1) * sampler.batch_size * fmt.sample_bytes()
    if loader.engine == "decoupled":
        held = loader.prefetch_bytes + sampler.batch_size * fmt.sample_bytes()
    if loader.in_memory:
        held += min(len(sampler.share), samples) * fmt.sample_bytes()
    if isinstance(fetched, PipePlan):
        held += fetched.held_samples * fmt.sample_bytes()
    compute = 0.0 if config.compute.mode == "none" else steps * epochs * config.compute.step_s
    yield f"ranks: {world_size}"
    yield f"steps: {steps} a rank and epoch, {epochs} epoch(s), {sampler.batch_size} samples a rank and step"
    yield (
        f"reads: {format_size(samples * fmt.sample_bytes())} of tensors a rank, "
        f"about {format_size(samples * fmt.stored_bytes())} of stored data"
    )
    yield _checkpoints(config, steps, world_size)
    yield f"memory: about {format_size(held)} of batches a rank, beside torch"
    yield f"time: at least {format_duration(compute)} of emulated compute a rank, beside generating, reading and saving"


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
    options, epochs = config.checkpoint, config.train.epochs
    if options.kind == "none":
        return "checkpoints: none"
    saves = steps * epochs // options.every_steps if options.every_steps else 0
    saves += epochs // options.every_epochs if options.every_epochs else 0
    size = sum(file.bytes for file in options.files) if options.kind == "files" else options.state_bytes
    ranks = world_size if options.ranks == "all" else 1
    return f"checkpoints: {saves} of {format_size(size)} by {ranks} rank(s)"
