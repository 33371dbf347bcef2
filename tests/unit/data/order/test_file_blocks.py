"""Streams that deal blocks of files, such as row groups, instead of whole files."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlio_torch.data.dataset.file_counts import FileCounts
from dlio_torch.data.order.file_blocks import FileBlocks
from dlio_torch.data.order.specification import StreamSpec
from dlio_torch.data.order.stream_plan import StreamPlan
from dlio_torch.errors import ConfigError

COUNTS = st.lists(st.integers(1, 40), min_size=1, max_size=6)


@given(COUNTS, st.integers(1, 9))
def test_blocks_cover_each_file_in_order(counts: list[int], size: int) -> None:
    blocks = FileBlocks(FileCounts(counts), size)
    covered = [
        (file, begin + row)
        for block, samples in enumerate(blocks.counts)
        for file, begin in [blocks.place(block)]
        for row in range(samples)
    ]
    assert covered == [(file, row) for file, count in enumerate(counts) for row in range(count)]
    assert max(blocks.counts) <= size


@given(COUNTS.filter(lambda counts: sum(counts) > 30), st.integers(1, 9), st.integers(1, 3), st.integers(0, 2))
def test_each_sample_of_a_pass_comes_once(counts: list[int], size: int, parts: int, epoch: int) -> None:
    plan = StreamPlan(counts, StreamSpec(batch_size=1, block=size, order="shuffled", parts=parts))
    given_samples = [sample for part in range(parts) for batch in plan.part_batches(epoch, part) for sample in batch]
    assert sorted(given_samples) == list(range(sum(counts)))


def test_samples_of_a_block_stay_together_and_blocks_are_shuffled() -> None:
    plan = StreamPlan([64, 64], StreamSpec(batch_size=8, block=8, order="shuffled"))
    blocks = [sorted(batch) for batch in plan.batches(0)]
    assert all(block == list(range(block[0], block[0] + 8)) and block[0] % 8 == 0 for block in blocks)
    assert [block[0] for block in blocks] != sorted(block[0] for block in blocks)
    assert [sorted(batch) for batch in plan.batches(1)] != blocks


def test_ranks_share_the_blocks_of_a_single_file() -> None:
    of_ranks = [
        set(StreamPlan([64], StreamSpec(batch_size=4, block=8, rank=rank, world_size=2)).expected(0).tolist())
        for rank in range(2)
    ]
    assert len(of_ranks[0]) == len(of_ranks[1]) == 32
    assert not of_ranks[0] & of_ranks[1]
    with pytest.raises(ConfigError, match="1 block for 2 ranks"):
        StreamPlan([64], StreamSpec(batch_size=4, block=64, world_size=2))
