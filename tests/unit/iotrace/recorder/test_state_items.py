"""Tensors and values of a saved state, as the import hook describes them."""

from __future__ import annotations

import torch

from dlio_torch.iotrace.recorder.torch_hook.state_items import state_items


class _Unknown:
    """Whatever a program saves."""

    def __reduce__(self) -> str:
        raise AssertionError("pickled by the hook")


def test_items_have_the_names_shapes_and_types_of_a_state() -> None:
    state = {
        "model": {"a.weight": torch.zeros(2, 3), "a.bias": torch.zeros(2, 3), "b": torch.zeros((), dtype=torch.int64)},
        "groups": [{"lr": 0.5, "params": [0, 1, 2, 3]}],
        "unknown": _Unknown(),
    }
    items = state_items(state)
    assert items[:2] == [["model.a.weight", [2, 3], "float32", 2], ["model.b", [], "int64", 1]]
    assert [(name, dtype) for name, _, dtype, _ in items[2:]] == [
        ("groups.0.lr", "object"),
        ("groups.0.params", "object"),
    ]


def test_a_state_of_very_many_kinds_of_items_is_not_described() -> None:
    assert state_items({str(size): torch.empty(size) for size in range(2000)}) == []
