"""Planner of a load: PyTorch's own, with times, without what was never saved, and with a check of what was read."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.planner import LoadItemType, LoadPlan, ReadItem

from dlio_torch.checkpoint.layouts.dcp.job_state import STEP
from dlio_torch.checkpoint.layouts.dcp.part_times import PartTimes
from dlio_torch.checkpoint.tensor_content import first_difference


class JobLoadPlanner(DefaultLoadPlanner):
    """``DefaultLoadPlanner`` of a rank.

    Args:
        times: gets the times of planning and of copying.
        counts_steps: whether the state holds Adam's number of steps, which is that of the checkpoint.
    """

    def __init__(self, times: PartTimes, *, counts_steps: bool = True) -> None:
        super().__init__()
        self._counts_steps = counts_steps
        self._times = times
        self._items: list[ReadItem] = []
        self._absent: list[ReadItem] = []
        self._values: dict[str, Any] = {}

    def set_up_planner(self, state_dict: Any, metadata: Any = None, is_coordinator: bool = False) -> None:
        """Begin the plan of this rank."""
        self._times.begin_plan()
        super().set_up_planner(state_dict, metadata, is_coordinator)
        self._values = {name: value for name, value in self.state_dict.items() if not torch.is_tensor(value)}

    def create_local_plan(self) -> LoadPlan:
        """Plan what this rank reads; parts of ranks without a process exist in the description alone."""
        plan = super().create_local_plan()
        self._items = [item for item in plan.items if self._place(item).offset >= 0]
        self._absent = [item for item in plan.items if self._place(item).offset < 0]
        return replace(plan, items=self._items)

    def finish_plan(self, new_plan: LoadPlan) -> LoadPlan:
        """Returns the final plan of this rank."""
        plan = super().finish_plan(new_plan)
        self._times.end_plan()
        return plan

    def resolve_tensor(self, read_item: ReadItem) -> torch.Tensor:
        """Returns the tensor that is copied to; the copy begins."""
        self._times.begin_copy()
        tensor: torch.Tensor = super().resolve_tensor(read_item)
        return tensor

    def commit_tensor(self, read_item: ReadItem, tensor: torch.Tensor) -> None:
        """End a copy."""
        super().commit_tensor(read_item, tensor)
        self._times.end_copy()

    @property
    def read_bytes(self) -> int:
        """Bytes of the parts of files that were read."""
        return sum(self._place(item).length for item in self._items)

    def differences(self, seed: int, step: int) -> Iterator[tuple[str, str | None]]:
        """Check what was read; yields each difference, in words, and the name of its file, if it lies in one.

        Args:
            seed: of the content.
            step: training step of the checkpoint.
        """
        for item in self._items:
            text = self._difference(item, seed, step)
            if text is not None:
                yield text, self._place(item).relative_path
        for name, rest in self._missing_elements().items():
            yield f"{rest} elements of {name} are in no file", None

    def _difference(self, item: ReadItem, seed: int, step: int) -> str | None:
        name = item.dest_index.fqn
        if item.type == LoadItemType.BYTE_IO:
            return None if self.state_dict[name] == self._values[name] else f"the value {name} differs"
        block = self._block(item)
        if self._counts_steps and name.endswith(f".{STEP}"):
            return None if float(block) == step else f"{name} is {float(block):g}, not {step}"
        offsets = [a + b for a, b in zip(item.dest_index.offset or (), item.dest_offsets, strict=True)]
        index = first_difference(block, seed, name, offsets, self.state_dict[name].shape)
        return None if index is None else f"element {list(index)} of {name} differs"

    def _block(self, item: ReadItem) -> torch.Tensor:
        """The part of this rank's tensor that one item has filled."""
        block: torch.Tensor = self.lookup_tensor(item.dest_index)
        for dimension, (first, count) in enumerate(zip(item.dest_offsets, item.lengths, strict=True)):
            block = block.narrow(dimension, first, count)
        return block.cpu().contiguous()

    def _missing_elements(self) -> dict[str, int]:
        """Number of elements of this rank's tensors for which the checkpoint has no file, by name."""
        rest: dict[str, int] = defaultdict(int)
        for name, value in self.state_dict.items():
            if torch.is_tensor(value):
                local: Any = value.to_local() if hasattr(value, "to_local") else value
                rest[name] = local.numel()
        for item in (*self._items, *self._absent):
            if item.type != LoadItemType.BYTE_IO:
                rest[item.dest_index.fqn] -= math.prod(item.lengths)
        return {name: count for name, count in rest.items() if count}

    def _place(self, item: ReadItem) -> Any:
        """File, offset and length of what an item reads."""
        assert self.metadata is not None
        return self.metadata.storage_data[item.storage_index]
