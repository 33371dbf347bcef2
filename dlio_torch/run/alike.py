"""All ranks must have been started alike, else they would wait for each other for ever, or make other data."""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import dlio_torch
from dlio_torch.config.emit import as_dict
from dlio_torch.config.schema import Config
from dlio_torch.dist.base import Communicator
from dlio_torch.errors import ConfigError, PreconditionError

_MOST = 4  # options that a line names
_PACKAGES = ("torch", "numpy")  # which move the messages, and draw the random numbers


def same_on_all(config: Config, comm: Communicator) -> None:
    """Compare versions and options of this rank with those of rank 0.

    Raises:
        PreconditionError: rank 0 runs another version.
        ConfigError: it was started with other options.
    """
    mine = {"dlio_torch": dlio_torch.__version__, "Python": platform.python_version()}
    mine |= {name: _version(name) for name in _PACKAGES}
    options = _flat(as_dict(config))
    versions, first = comm.broadcast_object((mine, options))
    for name, version in versions.items():
        if mine.get(name) != version:
            raise PreconditionError(
                f"rank {comm.rank} runs {name} {mine.get(name)}, rank 0 {version}",
                hint="use the same environment on all nodes",
            )
    different = sorted(key for key in first.keys() | options.keys() if first.get(key) != options.get(key))
    if different:
        key, *others = different
        more = f" ({', '.join(others[: _MOST - 1])} differ, too)" if others else ""
        raise ConfigError(
            f"rank {comm.rank} was started with {key}={options.get(key)!r}, rank 0 with {first.get(key)!r}{more}",
            hint="start all ranks with the same arguments and recipe",
        )
    comm.barrier()  # rank 0, which has nothing to compare, makes no run directory before all agree


def _version(package: str) -> str:
    """What is installed, without importing it."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _flat(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            k: v for name, item in value.items() for k, v in _flat(item, f"{prefix}.{name}" if prefix else name).items()
        }
    return {prefix: value}
