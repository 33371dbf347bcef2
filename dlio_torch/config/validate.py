"""Checks of combinations of options; each error names the options, where they were set, and the remedy."""

from __future__ import annotations

from collections.abc import Mapping

from dlio_torch.config.check import ConfigCheck
from dlio_torch.config.extensions import engine_facts, format_facts
from dlio_torch.config.schema import Config
from dlio_torch.config.validate_access import check_access
from dlio_torch.config.validate_cache import check_cache
from dlio_torch.config.validate_checkpoints import check_layout, check_read_options, check_saving_ranks
from dlio_torch.config.validate_dataset import check_dataset
from dlio_torch.config.validate_engine import check_engine
from dlio_torch.config.validate_model import check_model
from dlio_torch.config.validate_mpiio import check_mpiio
from dlio_torch.config.validate_paths import check_paths
from dlio_torch.config.validate_replay import check_replay
from dlio_torch.config.validate_stage import check_stage
from dlio_torch.config.validate_storage import check_storage
from dlio_torch.units import counted


def validate(config: Config, sources: Mapping[str, str] | None = None) -> None:
    """Refuse combinations of options that cannot work with any number of ranks.

    Args:
        config: a complete configuration.
        sources: where each value was set, for the messages.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    check = ConfigCheck(config, sources or {})
    check_storage(config, check.fail)
    check_paths(config, check.fail)
    _loader(config, check)
    _gpu(config, check)
    check_engine(config, check.fail)
    check_dataset(config, check.fail)
    check_access(config, check.fail)
    check_mpiio(config, check.fail)
    check_cache(config, check.fail)
    check_stage(config, check.fail)
    check_replay(config, check.fail)
    _compute(config, check)
    _train(config, check)
    check_model(config, check.fail)
    check_read_options(config, check.fail)
    _checkpoint(config, check)


def check_world(
    config: Config,
    world_size: int,
    num_samples: int | None = None,
    num_files: int | None = None,
    sources: Mapping[str, str] | None = None,
) -> None:
    """Refuse options that do not fit ``world_size`` ranks.

    Args:
        config: a complete configuration.
        world_size: number of ranks.
        num_samples: training samples there are; None: those that the configuration generates, and
            nothing is checked against them where ``dataset.path`` names existing data.
        num_files: training files there are; None likewise.
        sources: where each value was set, for the messages.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    check = ConfigCheck(config, sources or {})
    train, data = config.train, config.dataset
    ranks = f"{world_size} rank{'' if world_size == 1 else 's'}"
    if train.batch_scope == "global" and train.batch_size % world_size:
        fits = max(world_size, train.batch_size - train.batch_size % world_size)
        check.fail(
            ["train.batch_size", "train.batch_scope"],
            f"a global batch of this size cannot be divided equally among {ranks}",
            f"set train.batch_size={fits}, or train.batch_scope=rank",
        )
    if data.path is None:
        num_files = data.num_files if num_files is None else num_files
        num_samples = data.num_files * data.samples_per_file if num_samples is None else num_samples
    is_by_files = config.access.partition == "files" and not config.access.block_samples
    if is_by_files and num_files is not None and num_files < world_size:
        check.fail(
            ["access.partition", "dataset.num_files" if data.path is None else "dataset.path"],
            f"{num_files} file{'' if num_files == 1 else 's'} are too few to give each of {ranks} a file",
            f"set access.partition=batches, or dataset.num_files={world_size}"
            if data.path is None
            else "set access.partition=batches, or start fewer ranks",
        )
    check_saving_ranks(config, world_size, check.fail)
    _check_even_files(check, world_size, num_files)
    endless = config.access.pattern == "lanes" or config.access.repeat
    if num_samples is not None and not endless:
        _check_share(check, world_size, num_samples, num_files, ranks)


def _check_even_files(check: ConfigCheck, world_size: int, num_files: int | None) -> None:
    """Refuse files that each rank reads to the end (``access=file_per_rank``) if some ranks would have more of them."""
    access, data = check.config.access, check.config.dataset
    reads_all = access.partition == "files" and access.order == "sequential" and access.pattern == "samples"
    if not reads_all or access.tail != "drop" or num_files is None or num_files % world_size == 0:
        return
    ranks = max(count for count in range(1, world_size) if num_files % count == 0)
    more = f"dataset.num_files={-(-num_files // world_size) * world_size}, or " if data.path is None else ""
    check.fail(
        ["access.partition", "access.order", "dataset.num_files" if data.path is None else "dataset.path"],
        f"{num_files} files cannot be divided equally among {world_size} ranks, so that the last samples of some files "
        "would never be read",
        f"set {more}access.tail=keep (ranks with fewer files read samples again), or start {counted(ranks, 'rank')}",
    )


def _check_share(check: ConfigCheck, world_size: int, num_samples: int, num_files: int | None, ranks: str) -> None:
    train, access = check.config.train, check.config.access
    cut = world_size if train.batch_scope == "global" else 1
    batch = train.batch_size // cut
    share = num_samples
    if access.order == "random_blocks":
        # A block starts anywhere, so it only has to fit into what there is.
        block = batch * world_size if access.partition == "batches" else batch  # of all ranks, or of one
        if block > share:
            fits = share * cut // (world_size if access.partition == "batches" else 1)
            check.fail(
                ["train.batch_size", check.amount],
                f"a block of {block} consecutive samples is larger than the data set, which has {share} samples",
                f"set train.batch_size={max(1, fits)} or less, or provide more samples",
            )
        return
    if access.partition == "files" and num_files and not access.block_samples:
        share = num_files // world_size * (num_samples // num_files)
    elif access.partition != "none":
        share = num_samples // world_size
    if batch > share and access.tail == "drop":
        owner = "the data set, which has" if share == num_samples else f"the share of each of {ranks}, which has"
        check.fail(
            ["train.batch_size", check.amount],
            f"a batch of {batch} samples is larger than {owner} {share} samples",
            f"set train.batch_size={max(1, share) * cut} or less, or access.tail=keep, or provide more samples",
        )


def _loader(config: Config, check: ConfigCheck) -> None:
    loader = config.loader
    if loader.opened_by == "main":
        _inherited(config, check)
    if loader.num_workers == 0:
        needs = "this option needs worker processes"
        if loader.prefetch_factor is not None:
            check.fail(
                ["loader.prefetch_factor", "loader.num_workers"],
                needs,
                "set loader.num_workers=1 or more, or loader.prefetch_factor=null "
                "(to read ahead without workers: loader.read_threads=1)",
            )
        if loader.persistent_workers:
            check.fail(
                ["loader.persistent_workers", "loader.num_workers"],
                needs,
                "set loader.num_workers=1 or more, or loader.persistent_workers=false",
            )
        if loader.multiprocessing_context is not None:
            check.fail(
                ["loader.multiprocessing_context", "loader.num_workers"],
                needs,
                "set loader.num_workers=1 or more, or loader.multiprocessing_context=null",
            )
    elif loader.read_threads and not engine_facts(config).threads_in_workers:
        check.fail(
            ["loader.read_threads", "loader.num_workers"],
            "the workers of this loader.engine have no reader threads",
            "set loader.num_workers=0, or loader.read_threads=0, or loader.engine=decoupled, whose workers have "
            "reader threads",
        )


def _inherited(config: Config, check: ConfigCheck) -> None:
    """Workers inherit mappings alone, and by fork."""
    if config.access.pattern != "samples" or not format_facts(config).maps_files(config):
        check.fail(
            ["loader.opened_by", "dataset.format", "access.pattern"],
            "workers inherit only files that access.pattern=samples reads by page faults on a mapping",
            "set loader.opened_by=workers",
        )
    if config.loader.multiprocessing_context not in (None, "fork"):
        check.fail(
            ["loader.opened_by", "loader.multiprocessing_context"],
            "only workers that start by fork inherit mappings",
            "set loader.opened_by=workers, or loader.multiprocessing_context=fork",
        )


def _gpu(config: Config, check: ConfigCheck) -> None:
    if config.loader.prefetch_to_device and config.train.device != "cuda":
        check.fail(
            ["loader.prefetch_to_device", "train.device"],
            "batches that stay in main memory are not copied to a GPU, and so not ahead of their step",
            "set train.device=cuda, or loader.prefetch_to_device=0",
        )


def _compute(config: Config, check: ConfigCheck) -> None:
    compute = config.compute
    keys = ["compute.stdev_s", "compute.distribution"]
    if compute.stdev_s and compute.distribution == "constant":
        check.fail(
            keys,
            "a constant step time has no standard deviation",
            "set compute.distribution=normal, or compute.stdev_s=0",
        )
    if compute.stdev_s > compute.step_s and compute.distribution == "exponential":
        check.fail(
            [*keys, "compute.step_s"],
            "the standard deviation of an exponential distribution is at most the mean",
            "set compute.distribution=gamma, or compute.stdev_s=0",
        )


def _train(config: Config, check: ConfigCheck) -> None:
    train, data = config.train, config.dataset
    if train.min_au > 1:
        check.fail(
            ["train.min_au"],
            "a utilisation lies between 0 and 1",
            "write a fraction, for example train.min_au=0.9 for 90 %",
        )
    if train.resume is not None and config.loader.replay != "none":
        check.fail(
            ["train.resume", "loader.replay"],
            "a replay delivers the same batches again, so there is no position in the samples from which to resume",
            "set loader.replay=none, or train.resume=null",
        )
    if train.resume is not None and not config.loader.in_order:
        check.fail(
            ["train.resume", "loader.in_order"],
            "batches are not delivered in the sampler's order, so the samples that the earlier run used are unknown",
            "set loader.in_order=true, or train.resume=null",
        )
    for interval in ("eval_every_epochs", "eval_every_steps"):
        if not getattr(train, interval) or data.path is not None:
            continue
        for key in ("num_files_eval", "samples_per_file_eval"):
            if not getattr(data, key):
                check.fail(
                    [f"train.{interval}", f"dataset.{key}"],
                    "an evaluation is configured, but the data set has no evaluation samples",
                    f"set dataset.{key}=1 or more, or train.{interval}=0",
                )


def _checkpoint(config: Config, check: ConfigCheck) -> None:
    saved = config.checkpoint
    interval = "checkpoint.every_steps" if saved.every_steps else "checkpoint.every_epochs"
    if saved.restart_s and not saved.mtbf_s:
        check.fail(
            ["checkpoint.restart_s", "checkpoint.mtbf_s"],
            "the time of a restart has no effect without a time between failures",
            "set checkpoint.mtbf_s, for example checkpoint.mtbf_s=3h, or checkpoint.restart_s=0",
        )
    if saved.layout == "none":
        if saved.every_steps or saved.every_epochs:
            check.fail(
                [interval, "checkpoint.layout"],
                "saving is configured, but checkpoints have no content",
                f"set checkpoint.layout=torch_save or files, or {interval}=0 (checkpoint=none turns checkpoints off)",
            )
        if saved.restore:
            check.fail(
                ["checkpoint.restore", "checkpoint.layout"],
                "restoring is configured, but checkpoints have no content",
                "set checkpoint.layout=torch_save or files, or checkpoint.restore=false",
            )
        return
    if not (saved.every_steps or saved.every_epochs or saved.restore or saved.before_first or saved.after_last):
        check.fail(
            ["checkpoint.layout", "checkpoint.every_steps"],
            "checkpoints are configured, but no option says when to save them",
            "set checkpoint.every_steps or checkpoint.every_epochs to 1 or more, or checkpoint.layout=none",
        )
    if saved.layout == "files" and not saved.files:
        check.fail(
            ["checkpoint.layout", "checkpoint.files"],
            "the list of files that make up a checkpoint is empty",
            "set checkpoint.files=[{name: model, bytes: 4MiB}], or checkpoint.layout=torch_save",
        )
    check_layout(config, check.fail)
    if saved.layout == "tensorflow" and not saved.state_bytes:
        check.fail(
            ["checkpoint.layout", "checkpoint.state_bytes"],
            "the checkpoint has a state of 0 bytes",
            "set the size of the state, for example checkpoint.state_bytes=100MiB",
        )
    names = {f"checkpoint.files.{i}.name": item.name for i, item in enumerate(saved.files)}
    for key, name in {"checkpoint.file_name": saved.file_name, **names}.items():
        # The name becomes a file in the run directory and must stay there.
        if "/" in name or name in ("", ".", ".."):
            check.fail(
                [key],
                "this is not a file name",
                "write a name that is not empty and has no '/'",
            )
    if saved.layout == "tensorflow" and ("/" in saved.tensorflow.name or "{step}" not in saved.tensorflow.name):
        check.fail(
            ["checkpoint.tensorflow.name"],
            "without {step} every checkpoint would get the same name, and with '/' the text is not a file name",
            "write a name with {step} and without '/'",
        )
