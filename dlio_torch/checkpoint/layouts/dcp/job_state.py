"""State of one rank of the described job, as ``get_state_dict`` of PyTorch gives it for FSDP2 and its optimizer."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch.distributed.tensor import DTensor

from dlio_torch.checkpoint.job.ranks import Shard, rank_shards
from dlio_torch.checkpoint.job.saved_state import StateTensor, optimizer_states
from dlio_torch.checkpoint.layouts.dcp.job_mesh import sharding
from dlio_torch.checkpoint.layouts.described_state.state_content import make_content
from dlio_torch.checkpoint.listed_state import listed_state
from dlio_torch.checkpoint.tensor_content import fill
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig

State = dict[str, Any]
"""``{"model": {parameter: weight}, "optim": {"state": {parameter: {...}}, "param_groups": [...]}}``."""

MODEL, OPTIMIZER = "model", "optim"
STEP = "step"
"""Name of Adam's number of steps, one of each parameter: the training step of the save."""


def job_state(
    model: ModelConfig,
    parallel: ParallelConfig,
    rank: int,
    *,
    device: str = "cpu",
    seed: int | None = None,
    part: str = "all",
) -> State:
    """Makes the state of a rank: DTensors where ranks share a parameter, plain tensors elsewhere.

    With pipeline stages the optimizer's part is flat (``state.<parameter>.<name>``, and a value
    ``param_groups.<parameter>.<option>`` of each parameter), as torchtitan saves it: lists of groups of several stages
    would have one name.

    Args:
        model: the model and its optimizer.
        parallel: ranks of the job.
        rank: number of the rank.
        device: where the tensors are; ``meta``: they have no content, and take no memory.
        seed: the tensors get the content of this seed (see :mod:`dlio_torch.checkpoint.tensor_content`); None: they
            get none.
        part: ``model`` leaves out the optimizer.

    Raises:
        RuntimeError: the state does not fit into memory.
    """
    tensors = _RankTensors(parallel, rank, device, seed)
    shards = rank_shards(model, parallel, rank)
    weights = {s.parameter.name: tensors.tensor(f"{MODEL}.{s.parameter.name}", s, model.dtype) for s in shards}
    if part == "model":
        return {MODEL: weights}
    # Strings of their own, as get_state_dict makes them: the description is pickled, where equal objects count once.
    states = {s.parameter.name.encode().decode(): _parameter_state(model, s, tensors) for s in shards}
    group = optimizer_options(model) if states else {}
    if parallel.pipeline > 1:
        return {MODEL: weights, OPTIMIZER: _flat(states, group)}
    return {MODEL: weights, OPTIMIZER: {"state": states, "param_groups": [{**group, "params": list(weights)}]}}


def saved_state(
    config: Config, parallel: ParallelConfig, rank: int, *, device: str, seed: int | None = None, part: str = "all"
) -> State:
    """The state that a rank saves: the listed tensors, by their names, or its part of the described model.

    Args:
        config: the experiment.
        parallel: ranks of the job.
        rank: number of the rank.
        device: where the tensors are.
        seed: of their content; None: they get none.
        part: see :func:`job_state`.

    Raises:
        RuntimeError: the state does not fit into memory.
    """
    listed = listed_state(config.checkpoint)
    if not listed:
        return job_state(config.model, parallel, rank, device=device, seed=seed, part=part)
    return {name: _listed(value, device, seed) for name, value in listed.items()}


def _listed(value: StateTensor | str, device: str, seed: int | None) -> torch.Tensor | str:
    if isinstance(value, str):
        return value
    if seed is None:
        return torch.empty(value.local_shape, dtype=getattr(torch, value.dtype), device=device)
    tensor: torch.Tensor = make_content(value, seed)
    return tensor.to(device)


def state_device(options: CheckpointConfig) -> str:
    """Type of the device that holds the state: that of the training where it is copied by way of pinned memory."""
    return "cuda" if options.pinned_staging else "cpu"


def set_step(state: State, step: int) -> None:
    """Write the training step into the optimizer's state, as each step of Adam does."""
    for tensor in _steps(state.get(OPTIMIZER, {})):
        tensor.fill_(step)


class _RankTensors:
    """Tensors of a rank, with their content."""

    def __init__(self, parallel: ParallelConfig, rank: int, device: str, seed: int | None) -> None:
        self._parallel, self._rank, self._device, self._seed = parallel, rank, device, seed
        self._devices = "cpu" if device == "meta" else device  # a mesh of real devices, also for meta tensors

    def tensor(self, name: str, shard: Shard, dtype: str) -> torch.Tensor:
        """The part of the tensor ``name`` that the rank holds."""
        fills = self._seed is not None and self._device != "meta"
        device = "cpu" if fills else self._device
        local = torch.empty(shard.local_shape, dtype=getattr(torch, dtype), device=device)
        if fills:
            assert self._seed is not None
            fill(local, self._seed, name, shard.offsets, shard.global_shape)
            local = local.to(self._device)
        spread = sharding(self._parallel, self._rank, shard.parameter, self._devices)
        if spread is None:
            return local
        shape = torch.Size(shard.global_shape)
        strides = torch.empty(shape, device="meta").stride()
        whole: torch.Tensor = DTensor.from_local(local, *spread, run_check=False, shape=shape, stride=strides)
        return whole

    def count(self) -> torch.Tensor:
        """A number of steps."""
        return torch.zeros((), dtype=torch.float32, device="meta" if self._device == "meta" else "cpu")


def _parameter_state(model: ModelConfig, shard: Shard, tensors: _RankTensors) -> dict[str, torch.Tensor]:
    prefix = f"{OPTIMIZER}.state.{shard.parameter.name}"
    states = {name: tensors.tensor(f"{prefix}.{name}", shard, dtype) for name, dtype in optimizer_states(model)}
    return {STEP: tensors.count(), **states} if model.optimizer_states > 1 else states


def optimizer_options(model: ModelConfig) -> dict[str, Any]:
    """Options of the group of all parameters, as the optimizer of this torch has them."""
    parameters = [torch.nn.Parameter(torch.zeros(1))]
    optimizer: torch.optim.Optimizer
    if model.optimizer_states > 1:
        optimizer = torch.optim.AdamW(parameters, amsgrad=model.optimizer_states > 2)
    else:
        optimizer = torch.optim.SGD(parameters, momentum=0.9 * model.optimizer_states)
    group: dict[str, Any] = optimizer.state_dict()["param_groups"][0]
    return {name: value for name, value in group.items() if name != "params"}


def _flat(states: dict[str, dict[str, torch.Tensor]], group: dict[str, Any]) -> dict[str, Any]:
    tensors = {f"state.{name}.{key}": value for name, state in states.items() for key, value in state.items()}
    return tensors | {f"param_groups.{name}.{key}": value for name in states for key, value in group.items()}


def _steps(optimizer: dict[str, Any]) -> Iterator[torch.Tensor]:
    if "state" in optimizer:
        yield from (state[STEP] for state in optimizer["state"].values() if STEP in state)
    else:
        yield from (value for name, value in optimizer.items() if name.endswith(f".{STEP}") and torch.is_tensor(value))
