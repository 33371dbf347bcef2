"""Preflight check: all ranks run the same versions with the same options.

Ranks that disagree would read other data than each other, or wait for each other until a timeout.
"""

from __future__ import annotations

import platform
from importlib import metadata
from typing import Any

import dlio_torch
from dlio_torch.config.emit import as_dict
from dlio_torch.config.schema import Config
from dlio_torch.dist.base import Communicator
from dlio_torch.errors import ConfigError, PreconditionError

_MAX_NAMED = 4  # options in one message
_PACKAGES = ("torch", "numpy")  # torch moves the messages, numpy draws the random numbers


def check_ranks_agree(config: Config, comm: Communicator) -> None:
    """Compare versions and options of this rank with those of rank 0; all ranks call this.

    Raises:
        PreconditionError: rank 0 runs another version.
        ConfigError: rank 0 was started with other options.
    """
    own_versions = {"dlio_torch": dlio_torch.__version__, "Python": platform.python_version()}
    own_versions |= {name: _installed_version(name) for name in _PACKAGES}
    defaults = _flatten(as_dict(Config()))  # of the same version, so they need not be sent
    own_options = {key: value for key, value in _flatten(as_dict(config)).items() if value != defaults.get(key)}
    versions, options = comm.broadcast_object((own_versions, own_options))
    for name, version in versions.items():
        if own_versions.get(name) != version:
            raise PreconditionError(
                f"rank {comm.rank} runs {name} {own_versions.get(name)}, rank 0 {version}",
                hint="use the same environment on all nodes",
            )
    options, own_options = defaults | options, defaults | own_options
    different = sorted(key for key in options.keys() | own_options.keys() if options.get(key) != own_options.get(key))
    if different:
        key, *others = different
        more = f" ({', '.join(others[: _MAX_NAMED - 1])} differ as well)" if others else ""
        raise ConfigError(
            f"rank {comm.rank} was started with {key}={own_options.get(key)!r}, rank 0 with {options.get(key)!r}{more}",
            hint="start all ranks with the same arguments and recipe",
        )
    comm.barrier()  # rank 0 has nothing to compare: it must not make a run directory before all ranks agree


def _installed_version(package: str) -> str:
    """Version of an installed package, found without importing the package."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "unknown"


def _flatten(value: Any, prefix: str = "") -> dict[str, Any]:
    if isinstance(value, dict):
        return {
            key: leaf
            for name, item in value.items()
            for key, leaf in _flatten(item, f"{prefix}.{name}" if prefix else name).items()
        }
    return {prefix: value}
