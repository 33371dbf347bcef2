"""Checks of ``loader.engine=decoupled``: what it cannot do is refused, never done otherwise in silence."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from dlio_torch.config.schema import Config, LoaderConfig

Fail = Callable[[list[str], str, str], None]

_OWN = ("prefetch_bytes", "transfer_size")
_LIBRARY = "set loader.engine=dataloader, which reads through the format's library"


def check_decoupled(config: Config, fail: Fail) -> None:
    """Refuse options that the engine, or only another engine, has.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
    """
    loader = config.loader
    if loader.engine != "decoupled":
        for name in _OWN:
            if getattr(loader, name) != getattr(LoaderConfig(), name):
                fail(
                    [f"loader.{name}", "loader.engine"],
                    "only the decoupled engine has that",
                    f"set loader.engine=decoupled, or leave loader.{name} out",
                )
        return
    if config.access.pattern == "stream" and loader.num_workers:
        fail(
            ["loader.num_workers", "access.pattern", "loader.engine"],
            "the threads of one process read its files in their order",
            "set loader.num_workers=0, and loader.read_threads",
        )
    if loader.style == "pipe" and loader.num_workers:
        fail(
            ["loader.style", "loader.num_workers", "loader.engine"],
            "workers share out groups of batches, which a DataPipe does not",
            "set loader.style=map, or loader.num_workers=0 and loader.read_threads",
        )
    only: dict[str, tuple[Any, str, str]] = {
        "loader.prefetch_factor": (None, "it reads ahead by bytes", "set loader.prefetch_factor=null"),
        "loader.prefetch_batches": (1, "it reads ahead by bytes", "set loader.prefetch_bytes instead"),
        "loader.in_memory": (False, "it reads into memory that is used again", "set loader.in_memory=false"),
    }
    for key, (value, problem, way_out) in only.items():
        group, name = key.split(".")
        if getattr(getattr(config, group), name) != value:
            fail([key, "loader.engine"], problem, f"{way_out}, or loader.engine=dataloader")
    if config.access.pattern == "lanes":
        fail(
            ["access.pattern", "loader.engine"],
            "what goes into which lane depends on lengths that are known when samples have been read",
            "set loader.engine=dataloader",
        )
    if loader.replay == "samples":
        fail(["loader.replay", "loader.engine"], "kept samples have no places in files", "set loader.replay=reads")
    _format(config, fail)


def _format(config: Config, fail: Fail) -> None:
    data = config.dataset
    deflated = data.format == "npz" and (data.npz.compressed or data.npz.sample_axis == "last")
    if data.direct_io and (deflated or data.format in ("jpeg", "png", "tfrecord")):
        fail(
            ["dataset.direct_io", "dataset.format", "loader.engine"],
            "such files are read whole, or their framing with them, through the page cache",
            "set dataset.direct_io=false, or loader.engine=dataloader",
        )
    if data.format == "hdf5":
        if data.hdf5.driver != "sec2":
            fail(["dataset.hdf5.driver", "loader.engine"], "it is a driver of the HDF5 library", _LIBRARY)
        if data.hdf5.compression == "lzf":
            fail(["dataset.hdf5.compression", "loader.engine"], "it undoes gzip only", _LIBRARY)
    if data.format == "indexed_binary" and data.binary.access == "mmap":
        fail(["dataset.binary.access", "loader.engine"], "it maps no file", "set dataset.binary.access=file")
