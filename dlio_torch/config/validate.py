"""Checks that concern more than one option; each names both keys, where they were set, and a way out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from dlio_torch.config.schema import Config, FieldConfig
from dlio_torch.config.validate_access import check_access
from dlio_torch.errors import ConfigError

_DTYPES = frozenset(
    ["bool", "float16", "float32", "float64"] + [f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)]
)


def validate(config: Config, sources: Mapping[str, str] | None = None) -> None:
    """Refuse combinations that cannot work, whatever the number of ranks.

    Args:
        config: a complete configuration.
        sources: where each value was set, for the messages.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    check = _Check(config, sources or {})
    _loader(config, check)
    _dataset(config, check)
    check_access(config, check.fail)
    _compute(config, check)
    _train(config, check)
    _checkpoint(config, check)


def check_world(
    config: Config,
    world_size: int,
    num_samples: int | None = None,
    num_files: int | None = None,
    sources: Mapping[str, str] | None = None,
) -> None:
    """Refuse what does not fit ``world_size`` ranks.

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
    check = _Check(config, sources or {})
    train, data = config.train, config.dataset
    ranks = f"{world_size} rank{'' if world_size == 1 else 's'}"
    if train.batch_scope == "global" and train.batch_size % world_size:
        fits = max(world_size, train.batch_size - train.batch_size % world_size)
        check.fail(
            ["train.batch_size", "train.batch_scope"],
            f"a global batch cannot be cut equally among {ranks}",
            f"set train.batch_size={fits}, or train.batch_scope=rank",
        )
    if data.path is None:
        num_files = data.num_files if num_files is None else num_files
        num_samples = data.num_files * data.samples_per_file if num_samples is None else num_samples
    if config.access.partition == "files" and num_files is not None and num_files < world_size:
        check.fail(
            ["access.partition", "dataset.num_files" if data.path is None else "dataset.path"],
            f"{num_files} file{'' if num_files == 1 else 's'} cannot be dealt to {ranks}",
            f"set access.partition=batches, or dataset.num_files={world_size}"
            if data.path is None
            else "set access.partition=batches, or start fewer ranks",
        )
    endless = config.access.pattern == "lanes" or config.access.repeat
    if num_samples is not None and not endless:
        _check_share(check, world_size, num_samples, num_files, ranks)


def _check_share(check: _Check, world_size: int, num_samples: int, num_files: int | None, ranks: str) -> None:
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
                f"a block of {block} consecutive samples does not fit, the data set has {share}",
                f"set train.batch_size={max(1, fits)} or less, or more samples",
            )
        return
    if access.partition == "files" and num_files:
        share = num_files // world_size * (num_samples // num_files)
    elif access.partition != "none":
        share = num_samples // world_size
    if batch > share and access.tail == "drop":
        owner = "the data set has" if share == num_samples else f"the share of each of {ranks} has"
        check.fail(
            ["train.batch_size", check.amount],
            f"a batch of {batch} samples does not fit, {owner} {share}",
            f"set train.batch_size={max(1, share) * cut} or less, access.tail=pad, or more samples",
        )


class _Check:
    """Builds the messages."""

    def __init__(self, config: Config, sources: Mapping[str, str]) -> None:
        self.config = config
        self.sources = sources
        self.amount = "dataset.samples_per_file" if config.dataset.path is None else "dataset.path"

    def fail(self, keys: list[str], problem: str, way_out: str) -> None:
        raise ConfigError(f"{' with '.join(self.text(key) for key in keys)}: {problem}", hint=way_out)

    def text(self, key: str) -> str:
        value: Any = self.config
        for part in key.split("."):
            value = value[int(part)] if isinstance(value, list) else getattr(value, part)
        if isinstance(value, bool) or value is None:
            value = {True: "true", False: "false", None: "null"}[value]
        elif isinstance(value, list) and not all(isinstance(item, (int, str)) for item in value):
            value = f"[{len(value)} elements]"
        source = self.sources.get(key)
        return f"{key}={value} ({source})" if source else f"{key}={value}"


def _loader(config: Config, check: _Check) -> None:
    loader = config.loader
    if loader.num_workers == 0:
        needs = "worker processes are needed for that"
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
    elif loader.read_threads:
        check.fail(
            ["loader.read_threads", "loader.num_workers"],
            "reader threads live in the rank's own process, workers beside it",
            "choose one: loader.num_workers=0 or loader.read_threads=0",
        )
    if loader.engine == "nodes":
        if loader.style == "pipe":
            check.fail(
                ["loader.engine", "loader.style"],
                "nodes are a pipeline of their own and take no DataPipe",
                "set loader.style=map, or loader.engine=dataloader",
            )
        if loader.persistent_workers:
            check.fail(
                ["loader.engine", "loader.persistent_workers"],
                "nodes start their workers anew in each epoch",
                "set loader.persistent_workers=false, or loader.engine=dataloader",
            )


def _dataset(config: Config, check: _Check) -> None:
    data = config.dataset
    if config.verify and data.path is not None:
        check.fail(
            ["verify", "dataset.path"],
            "only generated samples have a known content",
            "set verify=false, or leave dataset.path out",
        )
    if data.format == "synthetic" and data.path is not None:
        check.fail(
            ["dataset.format", "dataset.path"],
            "synthetic samples are made in memory, no file is read",
            "leave dataset.path out, or choose the format of the files",
        )
    names: set[str] = set()
    for i, item in enumerate(data.fields):
        key = f"dataset.fields.{i}"
        if item.dtype not in _DTYPES:
            check.fail([f"{key}.dtype"], "no such element type", f"types are {', '.join(sorted(_DTYPES))}")
        if item.name in names or not item.name.strip("/"):
            check.fail([f"{key}.name"], "names must be unique and not empty", "rename one of them")
        names.add(item.name)
        _positive(item.shape, f"{key}.shape", check)
        _positive(item.chunk or [], f"{key}.chunk", check)
        if item.length_stdev and not item.length_mean:
            check.fail(
                [f"{key}.length_stdev", f"{key}.length_mean"],
                "a spread needs a mean length",
                f"set {key}.length_mean, or {key}.length_stdev=0",
            )
    _positive(data.larcv3.image_shape, "dataset.larcv3.image_shape", check)
    for key, level in (("hdf5", data.hdf5.compression_level), ("larcv3", data.larcv3.compression_level)):
        if level > 9:
            check.fail([f"dataset.{key}.compression_level"], "levels are 0 to 9", "set 9 or less")
    if data.hdf5.compressibility > 1:
        check.fail(["dataset.hdf5.compressibility"], "a share is 0 to 1", "set 1 or less")
    if data.format == "hdf5":
        if not data.fields and data.path is None:
            check.fail(
                ["dataset.fields", "dataset.format"],
                "no arrays to write",
                "set dataset.fields=[{name: data, shape: [64]}]",
            )
        for i, item in enumerate(data.fields):
            _chunking(config, item, i, check)
    if data.format == "larcv3" and not data.larcv3.producers:
        check.fail(
            ["dataset.larcv3.producers", "dataset.format"],
            "no groups to read",
            "set dataset.larcv3.producers=[{name: sparse2d_image}]",
        )


def _chunking(config: Config, item: FieldConfig, index: int, check: _Check) -> None:
    hdf5 = config.dataset.hdf5
    if hdf5.compression != "none" and not hdf5.chunk_bytes and item.chunk is None:
        check.fail(
            ["dataset.hdf5.compression", "dataset.hdf5.chunk_bytes"],
            f"only chunked arrays can be compressed, and dataset.fields.{index} ({item.name}) is contiguous",
            "set dataset.hdf5.chunk_bytes=64KiB, or dataset.hdf5.compression=none",
        )


def _positive(shape: list[int], key: str, check: _Check) -> None:
    if any(length < 1 for length in shape):
        check.fail([key], "every length must be at least 1", f"set {key}=[64,64], for example")


def _compute(config: Config, check: _Check) -> None:
    compute = config.compute
    keys = ["compute.stdev_s", "compute.distribution"]
    if compute.stdev_s and compute.distribution == "constant":
        check.fail(keys, "a constant step time has no spread", "set compute.distribution=normal, or compute.stdev_s=0")
    if compute.stdev_s and compute.distribution == "exponential":
        check.fail(
            keys,
            "the spread of an exponential distribution is its mean",
            "set compute.distribution=gamma, or compute.stdev_s=0",
        )


def _train(config: Config, check: _Check) -> None:
    train, data = config.train, config.dataset
    if train.min_au > 1:
        check.fail(["train.min_au"], "a utilisation is 0 to 1", "set 0.9 for 90 %")
    for interval in ("eval_every_epochs", "eval_every_steps"):
        if not getattr(train, interval) or data.path is not None:
            continue
        for key in ("num_files_eval", "samples_per_file_eval"):
            if not getattr(data, key):
                check.fail(
                    [f"train.{interval}", f"dataset.{key}"],
                    "there is nothing to evaluate on",
                    f"set dataset.{key}=1 or more, or train.{interval}=0",
                )


def _checkpoint(config: Config, check: _Check) -> None:
    saved = config.checkpoint
    interval = "checkpoint.every_steps" if saved.every_steps else "checkpoint.every_epochs"
    if saved.kind == "none":
        if saved.every_steps or saved.every_epochs:
            check.fail(
                [interval, "checkpoint.kind"],
                "there is nothing to save",
                f"set checkpoint.kind=torch or files, or {interval}=0 (checkpoint=none does both)",
            )
        if saved.restore:
            check.fail(
                ["checkpoint.restore", "checkpoint.kind"],
                "there is nothing to restore",
                "set checkpoint.kind=torch or files, or checkpoint.restore=false",
            )
        return
    if not (saved.every_steps or saved.every_epochs or saved.restore):
        check.fail(
            ["checkpoint.kind", "checkpoint.every_steps"],
            "no interval says when to save",
            "set checkpoint.every_steps or checkpoint.every_epochs to 1 or more, or checkpoint.kind=none",
        )
    if saved.kind == "files" and not saved.files:
        check.fail(
            ["checkpoint.kind", "checkpoint.files"],
            "no files are listed",
            "set checkpoint.files=[{name: model, bytes: 4MiB}], or checkpoint.kind=torch",
        )
    if saved.kind == "torch" and not saved.state_bytes:
        check.fail(
            ["checkpoint.kind", "checkpoint.state_bytes"],
            "a state needs a size",
            "set checkpoint.state_bytes=100MiB, for example",
        )
    for i, item in enumerate(saved.files):
        # The name becomes a file in the run directory and must stay there.
        if "/" in item.name or item.name in ("", ".", ".."):
            check.fail([f"checkpoint.files.{i}.name"], "not a file name", "write a name without '/'")
