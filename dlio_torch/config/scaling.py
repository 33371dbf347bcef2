"""Shrinks the amount of data and compute of a published experiment; the pattern of its I/O stays the same.

Files, samples, steps, epochs, seconds of emulated compute, the size of the gradient and the number of layers are
amounts.  Request sizes, chunking, order, threads, what a file looks like inside and the tensors of a layer are shape,
and are never touched.  A key that the user set on the command line is never changed.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Collection
from dataclasses import astuple, dataclass, is_dataclass
from functools import reduce
from typing import Any

from dlio_torch.config.extensions import fitting_layers, format_facts
from dlio_torch.config.schema import CheckpointTensorConfig, Config


@dataclass(frozen=True)
class Change:
    """An option whose value the scale replaced."""

    key: str
    before: Any
    after: Any

    @property
    def texts(self) -> tuple[str, str]:
        """Both values as a note shows them."""
        return _short(self.before), _short(self.after)


COMPUTE_ONLY = "and reading is not: waits for data are a larger share of the time here than in the full-size experiment"
"""Ending of a sentence that says that compute is scaled."""


def scale(config: Config, *, fixed: Collection[str], world_size: int = 1) -> tuple[Config, list[Change]]:
    """Applies the limits of ``config.scale`` to the configuration.

    Args:
        config: the experiment as published, with the user's changes.
        fixed: dotted keys that must not change.
        world_size: ranks that share the data now; what an epoch's data give depends on it.

    Returns:
        The scaled experiment and what changed, in the order of the schema's groups.
    """
    work = Scaler(config, fixed)
    _batch(work)
    before, facts = work.config, format_facts(config)
    # Existing files are what they are: only generated data can be made smaller.
    if config.dataset.path is None:
        limits = config.scale
        for key in ("dataset.samples_per_file", "dataset.samples_per_file_eval"):
            _cap(work, key, limits.max_samples_per_file)
        _amount(work, "num_files", "samples_per_file", limits.max_files, limits.max_samples)
        _amount(work, "num_files_eval", "samples_per_file_eval", 0, limits.max_samples_eval)
        facts.scale(work)
    if config.scale.first_touch:
        facts.first_touch(work, before, _samples_read(work, world_size))
    _steps(work, before, world_size)
    _cap(work, "train.epochs", config.scale.max_epochs)
    _cap(work, "access.shuffle_pool", config.scale.max_shuffle_pool)
    _checkpoint_size(work)
    if config.model.described:
        _model(work)
    gradient = config.train.allreduce_bytes
    if gradient:
        # A float32 at least: ranks that reduce nothing would not wait for each other any more.
        work.set("train.allreduce_bytes", max(min(gradient, 4), round(gradient * config.scale.allreduce)))
    for key in ("step_s", "stdev_s", "eval_step_s", "preprocess_s"):
        value = getattr(config.compute, key)
        # Rounded, so that 0.43 * 0.1 is shown as 0.043 and not with the dust of binary fractions.
        work.set(f"compute.{key}", float(f"{value * config.scale.compute:.12g}"))
    interval = config.checkpoint.every_steps
    if interval:
        work.set("checkpoint.every_steps", max(1, round(interval * config.scale.checkpoint)))
    return work.config, work.changes


def data_steps(config: Config, world_size: int = 1) -> int:
    """Returns the training steps per epoch that generated data provide to each of ``world_size`` ranks."""
    data = config.dataset
    batches = _count(config, data.num_files, data.samples_per_file, rank_batch(config, world_size), world_size)
    return batches * config.access.hold_steps


def eval_data_steps(config: Config, world_size: int = 1) -> int:
    """Returns the steps per evaluation that generated data provide to each of ``world_size`` ranks."""
    data = config.dataset
    batch = config.train.eval_batch_size or rank_batch(config, world_size)
    return _count(config, data.num_files_eval, data.samples_per_file_eval, batch, world_size)


def rank_batch(config: Config, world_size: int) -> int:
    """Returns the number of samples in a batch of one rank."""
    train = config.train
    return max(1, train.batch_size // world_size) if train.batch_scope == "global" else train.batch_size


def _count(config: Config, files: int, per_file: int, batch: int, world_size: int) -> int:
    drop = config.access.tail == "drop"

    def part(whole: int, parts: int) -> int:
        return whole // parts if drop else -(-whole // parts)

    if config.access.partition == "none":
        share = files * per_file
    elif config.access.partition == "files" and not config.access.block_samples:
        share = part(files, world_size) * per_file
    else:
        share = part(files * per_file, world_size)
    return part(share, batch)


class Scaler:
    """Applies the limits one by one; holds the scaled configuration and the list of changes.

    Attributes:
        config: with the changes so far.
        fixed: dotted keys that must not change.
        changes: what was changed.
    """

    def __init__(self, config: Config, fixed: Collection[str]) -> None:
        self.config = config
        self.fixed = fixed
        self.changes: list[Change] = []

    def get(self, key: str) -> Any:
        """Returns the present value of the option ``key``."""
        return reduce(getattr, key.split("."), self.config)

    def set(self, key: str, value: Any) -> None:
        """Changes the value of the option ``key``, unless the user set it or an element of it."""
        before = self.get(key)
        if before == value or any(name == key or name.startswith(f"{key}.") for name in self.fixed):
            return
        self.config = _replace(self.config, key.split("."), value)
        self.changes.append(Change(key, before, value))


def _replace(record: Any, path: list[str], value: Any) -> Any:
    name, *rest = path
    return dataclasses.replace(record, **{name: _replace(getattr(record, name), rest, value) if rest else value})


def _samples_read(work: Scaler, world_size: int) -> int:
    """Returns the number of samples that a rank reads in the scaled run."""
    limits = [number for number in (work.get("train.steps"), work.config.scale.max_steps) if number]
    steps = min(limits) if limits else data_steps(work.config, world_size)
    return steps * rank_batch(work.config, world_size)


def _batch(work: Scaler) -> None:
    """Sets the batch size per rank of the published run; batch_size and batch_scope change together or not at all."""
    train = work.config.train
    if not work.config.scale.keep_rank_batch or train.batch_scope == "rank":
        return
    if {"train.batch_size", "train.batch_scope"} & set(work.fixed):
        return
    work.set("train.batch_size", max(1, train.batch_size // work.config.system.world_size))
    work.set("train.batch_scope", "rank")


def _amount(work: Scaler, files_key: str, samples_key: str, max_files: int, max_samples: int) -> None:
    """Reduces the number of files first, then the samples per file, so that files keep their size if possible."""
    files_key, samples_key = f"dataset.{files_key}", f"dataset.{samples_key}"
    files, per_file = work.get(files_key), work.get(samples_key)
    if not files or not per_file:
        return
    if max_files:
        work.set(files_key, min(files, max_files))
    if max_samples and work.get(files_key) * per_file > max_samples:
        work.set(files_key, max(1, min(work.get(files_key), max_samples // per_file)))
        work.set(samples_key, min(per_file, max(1, max_samples // work.get(files_key))))
    _merge(work, files_key)
    _merge(work, samples_key)


def _checkpoint_size(work: Scaler) -> None:
    factor, options = work.config.scale.checkpoint_size, work.config.checkpoint

    def scaled(size: int) -> int:
        return max(min(size, 1), round(size * factor))  # what was something stays something

    work.set("checkpoint.state_bytes", scaled(options.state_bytes))
    graphs = ("index_bytes", "meta_bytes", "graph_text_bytes", "graph_bytes") if options.layout == "tensorflow" else ()
    for name in graphs:
        size, least = getattr(options.tensorflow, name), 128 if name == "index_bytes" else 0
        work.set(f"checkpoint.tensorflow.{name}", max(least, scaled(size)))
    if not any(key.startswith("checkpoint.files") for key in work.fixed):  # keys of elements are among them
        files = [dataclasses.replace(file, bytes=scaled(file.bytes)) for file in options.files]
        work.set("checkpoint.files", files)
    if not any(key.startswith("checkpoint.tensors") for key in work.fixed):
        work.set("checkpoint.tensors", [_scaled_tensor(tensor, factor) for tensor in options.tensors])


def _scaled_tensor(tensor: CheckpointTensorConfig, factor: float) -> CheckpointTensorConfig:
    """A tensor with fewer rows; one without dimensions, and a value that is no tensor, stay."""
    if not tensor.shape or tensor.dtype == "object":
        return tensor
    rows = max(min(tensor.shape[0], 1), round(tensor.shape[0] * factor))
    return dataclasses.replace(tensor, shape=[rows, *tensor.shape[1:]])


def _merge(work: Scaler, key: str) -> None:
    """Merges two changes of one option into one."""
    changes = [change for change in work.changes if change.key == key]
    if len(changes) > 1:
        merged = Change(key, changes[0].before, changes[-1].after)
        work.changes[work.changes.index(changes[0])] = merged
        for change in changes[1:]:
            work.changes.remove(change)


def _steps(work: Scaler, before: Config, world_size: int) -> None:
    limit = work.config.scale.max_steps
    train = work.config.train
    if train.steps:
        _cap(work, "train.steps", limit)
    elif limit and (work.config.dataset.path is not None or _most_steps(work.config, world_size) > limit):
        work.set("train.steps", limit)
    # A published number of steps that the published data gave must not outlive data that were cut; some
    # patterns take any number of steps out of any data.
    access = work.config.access
    if access.pattern != "lanes" and access.order != "random_blocks":
        if not access.repeat:  # evaluations never start over
            _follow(work, "train.steps", data_steps, before, world_size)
        _follow(work, "train.eval_steps", eval_data_steps, before, world_size)
    _merge(work, "train.steps")


def _most_steps(config: Config, world_size: int) -> int:
    """Training steps per epoch that the data may provide: each worker of a stream has a last batch of its own."""
    access, data, workers = config.access, config.dataset, config.loader.num_workers
    steps = data_steps(config, world_size)
    if access.pattern != "stream" or access.tail == "drop" or workers < 2:
        return steps
    if access.tail == "keep":
        return steps + (workers - 1) * access.hold_steps
    files = data.num_files if access.partition == "none" else -(-data.num_files // world_size)
    samples = -(-files // workers) * data.samples_per_file  # of the worker that has most; all have as many steps
    return workers * -(-samples // rank_batch(config, world_size)) * access.hold_steps


def _follow(work: Scaler, key: str, give: Callable[[Config, int], int], before: Config, world_size: int) -> None:
    steps = work.get(key)
    given, then = give(work.config, world_size), give(before, world_size)
    if steps and 0 < given < min(steps, then):
        work.set(key, given)


def _model(work: Scaler) -> None:
    """Cuts the vocabulary to what the tensor-parallel ranks can share, and leaves out layers."""
    limits, parallel = work.config.scale, work.config.parallel
    _cap(work, "model.vocab_size", -(-limits.max_vocab_size // parallel.tensor) * parallel.tensor)
    if limits.max_state_bytes:
        work.set("model.num_layers", fitting_layers(work.config.model, parallel, limits.max_state_bytes))


def _cap(work: Scaler, key: str, limit: int) -> None:
    if limit:
        work.set(key, min(work.get(key), limit))


def _short(value: object) -> str:
    """Formats a value for a note; a list of groups is shown by its numbers, which a scale can change."""
    if isinstance(value, list) and value and is_dataclass(value[0]):
        return f"[{', '.join('/'.join(str(v) for v in astuple(part) if isinstance(v, int)) for part in value)}]"
    return str(value)
