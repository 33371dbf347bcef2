"""Checks of checkpoints of a described job: layout, saves in the background, the ranks that save and read."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.extensions import unread_options
from dlio_torch.config.fields import leaves, lookup
from dlio_torch.config.schema import Config
from dlio_torch.config.validate_model import check_job_ranks
from dlio_torch.config.validate_tensors import check_tensors
from dlio_torch.units import counted

_LAYOUT = "checkpoint.layout"
_HUGGING_FACE = "safetensors"


def check_saving_ranks(config: Config, world_size: int, fail: Fail) -> None:
    """Refuse checkpoints that do not fit ``world_size`` ranks.

    Args:
        config: a complete configuration.
        world_size: number of ranks.
        fail: raises the error; called with keys, problem and remedy.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    check_job_ranks(config, world_size, fail)
    check_restoring_ranks(config, world_size, fail)
    check_saved_parts(config, world_size, fail)


def check_layout(config: Config, fail: Fail) -> None:
    """Refuse a layout without the model that it saves, and jobs that it cannot save.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    layout = config.checkpoint.layout
    if layout == "megatron_deepspeed":
        _check_described(config, fail)
        _check_deepspeed(config, fail)
    elif layout == _HUGGING_FACE:
        _check_described(config, fail)
        _check_parts(config, fail)
        _check_consolidation(config, fail)
    elif layout == "torch_save":
        _check_torch_save(config, fail)
    elif layout == "dcp":
        check_dcp(config, fail)
    if config.checkpoint.tensors:
        check_tensors(config, fail)


def check_read_options(config: Config, fail: Fail) -> None:
    """Refuse options that the layout does not read.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the option, its value, the layout and the layouts that read the option.
    """
    for name, layouts in unread_options(config.checkpoint).items():
        readers = f"layout {layouts[0]} reads" if len(layouts) == 1 else f"layouts {', '.join(layouts)} read"
        fail(
            [changed_key(config, name), _LAYOUT],
            f"only the {readers} this option",
            f"set {_LAYOUT}={' or '.join(layouts)}, or leave checkpoint.{name} out",
        )


def changed_key(config: Config, name: str) -> str:
    """Key of the option of ``checkpoint``; of a group, the first of its options that differs from the default."""
    option = lookup(("checkpoint", name))
    if option is None or option.kind != "group":
        return f"checkpoint.{name}"
    parts = leaves(getattr(config.checkpoint, name), option)
    return next(part.key for part, value in parts if value != part.default)


def check_saved_parts(config: Config, world_size: int, fail: Fail) -> None:
    """Refuse to make whole files of the parts of too few ranks.

    Args:
        config: a complete configuration.
        world_size: number of ranks.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    if config.checkpoint.consolidate and world_size < config.parallel.world_size:
        ranks = counted(config.parallel.world_size, "rank")
        fail(
            ["checkpoint.consolidate", "parallel.data"],
            f"whole files need the parts of the {ranks} of the job, but {world_size} were started",
            f"start {ranks}, or set checkpoint.consolidate=false",
        )


def _check_consolidation(config: Config, fail: Fail) -> None:
    if config.checkpoint.consolidate and config.checkpoint.ranks != "all":
        fail(
            ["checkpoint.consolidate", "checkpoint.ranks"],
            "whole files are made of the parts of all ranks",
            "set checkpoint.ranks=all, or checkpoint.consolidate=false",
        )
    if config.checkpoint.consolidate_ranks == "all" and not config.checkpoint.consolidate:
        fail(
            ["checkpoint.consolidate_ranks", "checkpoint.consolidate"],
            "no whole files are made",
            "set checkpoint.consolidate=true, or checkpoint.consolidate_ranks=first",
        )


def _check_parts(config: Config, fail: Fail) -> None:
    if config.checkpoint.ranks == "all" and config.parallel.zero == 3:
        fail(
            ["checkpoint.ranks", "parallel.zero"],
            "the parts of ZeRO 3 are pieces of rows, which the files cannot describe",
            "set checkpoint.ranks=first, or parallel.zero=0 with parallel.fsdp=full",
        )


def _check_torch_save(config: Config, fail: Fail) -> None:
    """Refuse a state that a model and a size describe at once, or none of them, and parts of a state by size."""
    if config.model.described and config.checkpoint.state_bytes:
        fail(
            ["checkpoint.state_bytes", "model.hidden_size"],
            "the state has the size that the described model gives it, and cannot have another one",
            "set checkpoint.state_bytes=0, or model.hidden_size=0 and the other sizes of model likewise",
        )
    if not (config.model.described or config.checkpoint.state_bytes or config.checkpoint.tensors):
        fail(
            [_LAYOUT, "checkpoint.state_bytes"],
            "the checkpoint has a state of 0 bytes",
            "set the size of the state, for example checkpoint.state_bytes=100MiB, or describe a model (group model)",
        )
    if not config.model.described and config.checkpoint.restore_part == "model":
        fail(
            ["checkpoint.restore_part", _LAYOUT],
            "only the checkpoint of a described model has parts",
            "set checkpoint.restore_part=all, or describe a model (group model)",
        )


def _check_described(config: Config, fail: Fail) -> None:
    if not config.model.described:
        fail(
            [_LAYOUT, "model.hidden_size"],
            "this layout saves the state of a model, but none is described",
            "set the options of model, or checkpoint.layout=torch_save with checkpoint.state_bytes",
        )


def _check_deepspeed(config: Config, fail: Fail) -> None:
    if config.parallel.fsdp != "none":
        fail(
            [_LAYOUT, "parallel.fsdp"],
            "DeepSpeed divides the state by ZeRO, not by FSDP",
            "set parallel.fsdp=none and parallel.zero=3, or checkpoint.layout=torch_save",
        )
    if config.model.num_experts:
        fail(
            [_LAYOUT, "model.num_experts"],
            "DeepSpeed saves each expert in a file of its own, which this layout does not write",
            "set model.num_experts=0, or checkpoint.layout=torch_save",
        )


def check_dcp(config: Config, fail: Fail) -> None:
    """Refuse a job that ``torch.distributed.checkpoint`` does not save, and options that exclude each other.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    _check_job(config, fail)
    _check_saves(config, fail)
    _check_restore(config, fail)


def check_restoring_ranks(config: Config, world_size: int, fail: Fail) -> None:
    """Refuse to read on more ranks than were started, or on others where the job is started in part.

    Args:
        config: a complete configuration.
        world_size: number of ranks.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    ranks = config.checkpoint.restore_ranks
    if not ranks or config.checkpoint.layout != "dcp":
        return
    if ranks > world_size:
        fail(
            ["checkpoint.restore_ranks"],
            f"only {counted(world_size, 'rank')} were started",
            f"start {ranks} ranks, or set checkpoint.restore_ranks={world_size} or less",
        )
    if world_size < config.parallel.world_size:
        fail(
            ["checkpoint.restore_ranks"],
            f"the job has {counted(config.parallel.world_size, 'rank')}, of which {world_size} save their part only, "
            "so that other ranks would miss most of theirs",
            f"start all {config.parallel.world_size} ranks, or set checkpoint.restore_ranks=0",
        )


def _check_job(config: Config, fail: Fail) -> None:
    if not config.checkpoint.tensors:
        _check_described(config, fail)
    if config.parallel.zero:
        fail(
            ["checkpoint.layout", "parallel.zero"],
            "DeepSpeed's ZeRO does not save by torch.distributed.checkpoint",
            "set parallel.zero=0 with parallel.fsdp=full, or another checkpoint.layout",
        )


def _check_saves(config: Config, fail: Fail) -> None:
    saved = config.checkpoint
    if saved.fsync and not saved.sync_files:
        fail(
            ["checkpoint.fsync", "checkpoint.sync_files"],
            "one asks for flushed files, the other for files that are not",
            "set checkpoint.fsync=false, or checkpoint.sync_files=true",
        )
    if saved.pinned_staging and config.train.device != "cuda":
        fail(
            ["checkpoint.pinned_staging", "train.device"],
            "page-locked memory serves copies from a GPU",
            "set train.device=cuda, or checkpoint.pinned_staging=false",
        )
    if saved.pinned_staging and saved.async_save == "none":
        fail(
            ["checkpoint.pinned_staging", "checkpoint.async_save"],
            "only saves in the background are copied first",
            "set checkpoint.async_save=thread or process, or checkpoint.pinned_staging=false",
        )


def _check_restore(config: Config, fail: Fail) -> None:
    ranks, parallel = config.checkpoint.restore_ranks, config.parallel
    if not ranks:
        return
    if not config.checkpoint.use_collectives:
        fail(
            ["checkpoint.restore_ranks", "checkpoint.use_collectives"],
            "without collectives each rank describes its own files only",
            "set checkpoint.use_collectives=true, or checkpoint.restore_ranks=0",
        )
    part = parallel.tensor * parallel.pipeline * parallel.expert
    if ranks % part:
        keys = ["parallel.tensor", "parallel.pipeline", "parallel.expert"]
        fail(
            ["checkpoint.restore_ranks", *keys],
            f"the ranks that read keep these, and so are a multiple of {part}",
            f"set checkpoint.restore_ranks={max(1, ranks // part) * part}",
        )
