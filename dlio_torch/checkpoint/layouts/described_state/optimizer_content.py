"""The optimizer's tensors as PyTorch nests them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from dlio_torch.checkpoint.job.saved_state import StateTensor


def state_groups(tensors: Iterable[StateTensor]) -> list[dict[str, StateTensor]]:
    """The optimizer's tensors of each parameter, or with ZeRO of each group, by the name of the state."""
    groups: dict[str, dict[str, StateTensor]] = defaultdict(dict)
    for tensor in tensors:
        group, _, state = tensor.name.rpartition(".")
        groups[group][state] = tensor
    return list(groups.values())


def optimizer_content(groups: list[dict[str, StateTensor]]) -> dict[str, Any]:
    """Content of ``Optimizer.state_dict``, which numbers the parameters."""
    return {
        "state": dict(enumerate(groups)),
        "param_groups": [{"lr": 1e-3, "betas": [0.9, 0.999], "eps": 1e-8, "params": list(range(len(groups)))}],
    }
