"""Parts of PyTorch that the layout needs, and that older versions do not have."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any

from dlio_torch.config.schema import CheckpointConfig
from dlio_torch.errors import PreconditionError


def check_torch(options: CheckpointConfig) -> None:
    """Refuse options that the installed PyTorch does not have.

    Args:
        options: of the checkpoints.

    Raises:
        PreconditionError: naming the option, and the PyTorch that has it.
    """
    from torch.distributed.checkpoint import default_planner, staging, state_dict_saver
    from torch.distributed.device_mesh import DeviceMesh

    _need(_takes(DeviceMesh, "_rank"), "checkpoint.layout=dcp", "2.8", "checkpoint.layout=torch_save")
    if options.plan_cache:
        takes = _takes(default_planner.DefaultSavePlanner, "enable_plan_caching")
        _need(takes, "checkpoint.plan_cache=true", "2.7", "checkpoint.plan_cache=false")
    if not options.use_collectives:
        takes = _takes(state_dict_saver.save, "use_collectives")
        _need(takes, "checkpoint.use_collectives=false", "2.9", "checkpoint.use_collectives=true")
    if options.async_save != "none":
        there = hasattr(staging, "DefaultStager")
        _need(there, f"checkpoint.async_save={options.async_save}", "2.9", "checkpoint.async_save=none")


def _takes(function: Callable[..., Any], parameter: str) -> bool:
    return parameter in inspect.signature(function).parameters


def _need(there: bool, option: str, version: str, other: str) -> None:
    if not there:
        raise PreconditionError(
            f"{option}: the installed PyTorch cannot do this",
            hint=f"install PyTorch {version} or newer, or set {other}",
        )
