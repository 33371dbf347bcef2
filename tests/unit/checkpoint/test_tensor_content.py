"""Content of tensors: the same for every division among ranks, another one for every seed, name and index."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.checkpoint.tensor_content import fill, first_difference

TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.int8)


def whole(shape: tuple[int, ...], dtype: torch.dtype = torch.float32, seed: int = 1, name: str = "w") -> torch.Tensor:
    tensor = torch.zeros(shape, dtype=dtype)
    fill(tensor, seed, name, (0,) * len(shape), shape)
    return tensor


def bits(tensor: torch.Tensor) -> bytes:
    return bytes(tensor.contiguous().reshape(-1).view(torch.uint8).numpy())


@given(
    shape=st.lists(st.integers(1, 9), min_size=1, max_size=3),
    dtype=st.sampled_from(TYPES),
    data=st.data(),
)
def test_a_block_has_the_content_of_its_indices(shape: list[int], dtype: torch.dtype, data: st.DataObject) -> None:
    offsets = [data.draw(st.integers(0, size)) for size in shape]
    ends = [data.draw(st.integers(first, size)) for first, size in zip(offsets, shape, strict=True)]
    block = torch.zeros([end - first for first, end in zip(offsets, ends, strict=True)], dtype=dtype)
    fill(block, 1, "w", offsets, shape)
    part = whole(tuple(shape), dtype)[tuple(slice(a, b) for a, b in zip(offsets, ends, strict=True))]
    assert bits(block) == bits(part)
    assert first_difference(block, 1, "w", offsets, shape) is None


def test_blocks_of_a_large_tensor() -> None:
    shape = (3, 700_001)  # a row is more than is hashed at a time
    everything = whole(shape)
    block = everything[1:3, 300_000:].contiguous()
    assert first_difference(block, 1, "w", (1, 300_000), shape) is None
    block[1, 5] = 0.0
    assert first_difference(block, 1, "w", (1, 300_000), shape) == (2, 300_005)


@pytest.mark.parametrize(("seed", "name"), [(2, "w"), (1, "v")])
def test_another_seed_or_name_is_another_content(seed: int, name: str) -> None:
    tensor = whole((100,))
    assert first_difference(tensor, seed, name, (0,), (100,)) == (0,)
    assert first_difference(tensor, 1, "w", (1,), (101,)) == (1,)


def test_a_number_without_dimensions() -> None:
    step = torch.zeros((), dtype=torch.float32)
    fill(step, 1, "step", (), ())
    assert first_difference(step, 1, "step", (), ()) is None
    assert first_difference(torch.zeros(()), 1, "step", (), ()) == ()


def test_content_does_not_compress() -> None:
    import zlib

    content = bits(whole((1000, 1000), torch.bfloat16))
    assert len(zlib.compress(content, 1)) > 0.99 * len(content)
