"""Checks of ``checkpoint.layout=dcp``: the described job, saves in the background, and the ranks that read."""

from __future__ import annotations

from dlio_torch.config.check import Fail
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.units import counted

DCP_OPTIONS = (
    "async_save",
    "thread_count",
    "single_file_per_rank",
    "sync_files",
    "plan_cache",
    "use_collectives",
    "pinned_staging",
    "restore_ranks",
)
"""Options of ``checkpoint`` that no other layout reads."""


def check_dcp(config: Config, fail: Fail) -> None:
    """Refuse a job that ``torch.distributed.checkpoint`` does not save, and its options with other layouts.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    if config.checkpoint.layout != "dcp":
        _check_unused(config.checkpoint, fail)
        return
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


def _check_unused(saved: CheckpointConfig, fail: Fail) -> None:
    plain = CheckpointConfig()
    for name in DCP_OPTIONS:
        default = getattr(plain, name)
        if getattr(saved, name) != default:
            value = str(default).lower() if isinstance(default, bool) else default
            fail(
                [f"checkpoint.{name}", "checkpoint.layout"],
                "this layout has no such option",
                f"set checkpoint.layout=dcp, or checkpoint.{name}={value}",
            )


def _check_job(config: Config, fail: Fail) -> None:
    if not config.model.described:
        fail(
            ["checkpoint.layout", "model.hidden_size"],
            "this layout saves the state of a described model",
            "choose a recipe that describes one, for example recipe=llama3_8b, or set the sizes of model",
        )
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
