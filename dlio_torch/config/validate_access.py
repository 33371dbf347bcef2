"""Checks of the access pattern: each pattern (samples, stream, lanes) accepts only some of the options."""

from __future__ import annotations

from typing import Any

from dlio_torch.config.check import Fail
from dlio_torch.config.extensions import all_engines, format_facts
from dlio_torch.config.schema import Config


def check_access(config: Config, fail: Fail) -> None:
    """Refuse combinations of ``access`` and ``loader`` that cannot work.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and remedy.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    access = config.access
    if access.pattern != "stream":
        unused = {"shard": "before_shuffle", "interleave": 1, "interleave_buffer": 0, "interleave_prefetch": 0}
        unused |= {"shuffle_pool": 0, "repeat": False, "block_samples": 0}
        for name, value in unused.items():
            if getattr(access, name) != value:
                fail(
                    [f"access.{name}", "access.pattern"],
                    "only access.pattern=stream uses this option",
                    f"set access.pattern=stream, or leave access.{name} out",
                )
        if access.unit == "file":
            fail(
                ["access.unit", "access.pattern"],
                "only access.pattern=stream can read whole files",
                "set access.pattern=stream, or access.unit=block",
            )
    if access.pattern == "samples":
        return
    allowed: dict[str, tuple[Any, ...]] = {
        "access.partition": ("files", "none") if access.pattern == "stream" else ("none",),
        "access.order": ("sequential", "shuffled"),
        "access.unit": ("sample", "block", "file") if access.pattern == "stream" else ("sample",),
        "loader.engine": tuple(engine.name for engine in all_engines() if engine.streams),
        "loader.in_memory": (False,),
    }
    for key, values in allowed.items():
        group, name = key.split(".")
        if getattr(getattr(config, group), name) not in values:
            choices = " or ".join(f"{key}={str(value).lower()}" for value in values)
            fail(
                [key, "access.pattern"],
                f"access.pattern={access.pattern} does not support this value of {key}",
                f"set {choices}",
            )
    if access.pattern == "stream":
        _stream(config, fail)
    else:
        _lanes(config, fail)


def _stream(config: Config, fail: Fail) -> None:
    access = config.access
    if access.interleave_prefetch and not access.interleave_buffer:
        fail(
            ["access.interleave_prefetch", "access.interleave_buffer"],
            "only one reader thread per file (access.interleave_buffer) can read files before the stream needs them",
            "set access.interleave_buffer=2 (TensorFlow's default), or access.interleave_prefetch=0",
        )
    unordered = format_facts(config).unordered
    if unordered:
        fail(["dataset.format", "access.pattern"], unordered, "set access.pattern=samples")
    if access.shard == "after_shuffle":
        for key, needed in (("order", "shuffled"), ("partition", "files")):
            if getattr(access, key) != needed:
                fail(
                    ["access.shard", f"access.{key}"],
                    "after_shuffle distributes shuffled whole files to the ranks again in each epoch, which "
                    f"needs access.{key}={needed}",
                    f"set access.{key}={needed}, or access.shard=before_shuffle",
                )
    _blocks(config, fail)
    if access.unit != "sample" and access.shuffle_pool:
        fail(
            ["access.shuffle_pool", "access.unit"],
            "each sample in the pool would keep its whole file or block in memory",
            "set access.shuffle_pool=0 (access.order=shuffled permutes the samples of a file), or access.unit=sample",
        )


def _blocks(config: Config, fail: Fail) -> None:
    access = config.access
    if access.unit == "block" and not access.block_samples:
        fail(
            ["access.unit", "access.pattern"],
            "a stream that reads blocks needs their number of samples",
            "set access.block_samples (for example 64), or access.unit=sample or file",
        )
    if access.block_samples and access.unit != "block":
        fail(
            ["access.block_samples", "access.unit"],
            "only access.unit=block reads blocks",
            "set access.unit=block, or access.block_samples=0",
        )


def _lanes(config: Config, fail: Fail) -> None:
    train = config.train
    needed = ["steps"] + (["eval_steps"] if train.eval_every_epochs or train.eval_every_steps else [])
    for name in needed:
        if not getattr(train, name):
            fail(
                [f"train.{name}", "access.pattern"],
                "lanes read without end, so the number of steps must be set",
                f"set a number of steps, for example train.{name}=100",
            )
