"""Checks of storage locations: URLs with an unknown scheme, and options that the storage does not support.

Only the class of a storage is asked; nothing is opened or created.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, NamedTuple

from dlio_torch.config.check import Fail
from dlio_torch.config.extensions import (
    LOCAL,
    format_facts,
    no_local_path,
    open_storage,
    scheme_of,
    storage_class,
    unknown_scheme,
)
from dlio_torch.config.schema import Config


class _Need(NamedTuple):
    """A storage capability that the value of an option needs.

    Attributes:
        capability: attribute of :class:`~dlio_torch.storage.base.Capabilities`.
        key: the option.
        problem: the missing capability, in words.
        fix: value to set instead.
    """

    capability: str
    key: str
    problem: str
    fix: str


def check_storage(config: Config, fail: Fail) -> None:
    """Refuse URLs with an unknown scheme, and options that the storage of the data does not support.

    Args:
        config: a complete configuration.
        fail: raises the error; called with keys, problem and way out.

    Raises:
        ConfigError: naming the keys, their values and what to change.
        DlioError: a storage of another package cannot be imported.
    """
    for key, path in _local_paths(config):
        if (refusal := no_local_path(path)) is not None:
            fail([key], *refusal)
    for key, location in _data_locations(config):
        if (refusal := unknown_scheme(location)) is not None:
            fail([key], *refusal)
        if scheme_of(location) == LOCAL:
            continue  # a local folder can do all of it; its class need not be imported
        can = storage_class(location).capabilities
        for need in _needs(config, key):
            if not getattr(can, need.capability):
                keys = [need.key] if need.key == key else [need.key, key]
                fail(keys, f"{_name(location)} {need.problem}", need.fix)


def with_local_paths(config: Config) -> tuple[Config, list[str]]:
    """Replaces URLs and a leading ``~`` by paths on this machine; returns the configuration and a line about each URL.

    Args:
        config: a configuration that :func:`check_storage` accepts.
    """
    lines = []
    for key, location in _data_locations(config):
        path = os.path.expanduser(location)  # shells leave a ~ behind "=" as it is
        if scheme_of(location) != LOCAL:
            path = str(open_storage(location).path())
            lines.append(f"{key} {location} -> {path} (the path on this machine)")
        if path != location:
            changed: dict[str, Any] = {key.rpartition(".")[2]: path}
            config = replace(config, dataset=replace(config.dataset, **changed))
    return config, lines


def _data_locations(config: Config) -> Iterator[tuple[str, str]]:
    """Yields the options that name the location of a data set."""
    yield "dataset.root", config.dataset.root
    if config.dataset.path is not None:
        yield "dataset.path", config.dataset.path


def _local_paths(config: Config) -> Iterator[tuple[str, str]]:
    """Yields the options that must be local paths: results are locked and appended to, copies need a local
    disk, and checkpoints are written by path.
    """
    paths = {
        "output.dir": config.output.dir,
        "output.root": config.output.root,
        "stage.dir": config.stage.dir,
        "train.resume": config.train.resume,
        "checkpoint.root": config.checkpoint.root,
    }
    yield from ((key, path) for key, path in paths.items() if path is not None)
    yield from (("trace.posix_paths", path) for path in config.trace.posix_paths)


def _needs(config: Config, root: str) -> Iterator[_Need]:
    """Yields the storage capabilities that the options need; ``root`` is the option that names the storage."""
    if config.stage.dir is None:
        yield from _needs_of_reads(config)
    else:  # copies on a disk of the node are read
        yield _Need("paths", "stage.dir", "has no file paths, and staging copies files by path", "set stage.dir=null")
    if config.access.io != "posix":
        yield _Need("paths", "access.io", "has no file paths, and MPI-IO opens files by path", "set access.io=posix")
    if config.loader.replay == "reads":
        problem = "has no file paths, and only calls on file paths can be answered from memory"
        yield _Need("paths", "loader.replay", problem, "set loader.replay=none")
    yield _Need(
        "paths",
        root,
        "has no file paths, and the format opens files by path",
        f"mount the storage as a folder, and set {root} to that folder",
    )


def _needs_of_reads(config: Config) -> Iterator[_Need]:
    """Yields the storage capabilities that reading samples without staging needs."""
    if config.dataset.direct_io:
        problem = "does not support reads that bypass the page cache (O_DIRECT)"
        yield _Need("direct_io", "dataset.direct_io", problem, "set dataset.direct_io=false")
    facts = format_facts(config)
    if facts.unmapped is not None and facts.maps_files(config):
        key = facts.key(facts.unmapped[0])
        yield _Need("maps", key, "cannot map files into memory (mmap)", f"set {key}={facts.unmapped[1]}")
    uncached = "does not keep files in the page cache of this machine"
    if config.cache.state not in ("auto", "as_is"):
        yield _Need("page_cache", "cache.state", uncached, "set cache.state=as_is")
    if config.cache.every_epoch:
        yield _Need("page_cache", "cache.every_epoch", uncached, "set cache.every_epoch=false")
    if config.storage.limits in ("measure", "remeasure"):
        problem = f"{uncached}, so the limits of its device cannot be measured"
        yield _Need("page_cache", "storage.limits", problem, "set storage.limits=off")


def _name(location: str) -> str:
    """Returns the storage of a location in words, for messages."""
    return f"{scheme_of(location)}:// storage"
