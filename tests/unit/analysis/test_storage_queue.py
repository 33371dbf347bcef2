"""The simulated queue of requests gives the closed-form step times of simple storages."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from dlio_torch.analysis.storage_queue import Lane, RankLoad, simulate

STEPS = 40


def load(
    lanes: Sequence[Lane],
    compute: float | Sequence[float] = 1.0,
    *,
    readers: int = 0,
    depth: int = 0,
    epochs: int = 1,
) -> RankLoad:
    """Equal batches of one rank; the compute times are repeated."""
    times = [compute] if isinstance(compute, float) else list(compute)
    return RankLoad(
        batches=[lanes] * STEPS,
        compute=[times[k % len(times)] for k in range(STEPS)],
        epoch=[1 + k * epochs // STEPS for k in range(STEPS)],
        readers=readers,
        depth=depth,
    )


def step(asked: Sequence[float]) -> float:
    """Mean time of the steps after the first half."""
    half = STEPS // 2
    return (asked[-1] - asked[half]) / (STEPS - half)


def test_a_trainer_that_reads_waits_for_every_request() -> None:
    [asked] = simulate([load([[(2.0, 0.5), (1.0, 0.0)]])], barrier=False)
    assert asked == pytest.approx([4.5 * k for k in range(STEPS + 1)])


@pytest.mark.parametrize("readers", [1, 2, 4])
def test_readers_share_the_requests_of_their_batches(readers: int) -> None:
    [asked] = simulate([load([[(6.0, 0.0)]], readers=readers, depth=2 * readers)], barrier=False)
    assert step(asked) == pytest.approx(max(1.0, 6.0 / readers))
    assert asked[1] == 7.0  # nothing was read before the epoch


def test_readers_that_are_fast_enough_hide_the_storage() -> None:
    [asked] = simulate([load([[(1.5, 0.0)]], readers=2, depth=4)], barrier=False)
    assert step(asked) == pytest.approx(1.0)


def test_a_batch_is_begun_when_the_window_has_room() -> None:
    """With one batch ahead two readers are as slow as one, which reads while the trainer computes."""
    [one] = simulate([load([[(3.0, 0.0)]], readers=1, depth=1)], barrier=False)
    [two] = simulate([load([[(3.0, 0.0)]], readers=2, depth=1)], barrier=False)
    assert one == two
    assert step(one) == pytest.approx(3.0)


@pytest.mark.parametrize("ranks", [1, 2])
def test_the_pipe_is_shared_by_all_ranks(ranks: int) -> None:
    loads = [load([[(1.0, 2.0)]], readers=4, depth=8)] * ranks
    for asked in simulate(loads, barrier=False):
        assert step(asked) == pytest.approx(2.0 * ranks)


def test_a_request_of_no_bytes_does_not_wait_for_the_pipe() -> None:
    """While the first rank fills the pipe, the second one opens files."""
    _, asked = simulate([load([[(0.0, 50.0)]]), load([[(1.0, 0.0)]])], barrier=False)
    assert asked[10] == pytest.approx(20.0)


def test_lanes_of_a_batch_are_served_at_once() -> None:
    [asked] = simulate([load([[(3.0, 0.0)], [(1.0, 0.0), (1.0, 0.0)], []])], barrier=False)
    assert step(asked) == pytest.approx(3.0 + 1.0)


def test_a_batch_without_requests_takes_no_time() -> None:
    for readers in (0, 2):
        [asked] = simulate([load([], readers=readers, depth=4)], barrier=False)
        assert asked[-1] == pytest.approx(STEPS)


def test_ranks_at_a_barrier_wait_for_the_slowest() -> None:
    uneven = [load([[(1.0, 0.0)]], compute=times) for times in ([1.0, 3.0], [3.0, 1.0])]
    together, apart = simulate(uneven, barrier=True), simulate(uneven, barrier=False)
    assert [step(asked) for asked in together] == pytest.approx([4.0, 4.0])
    assert [step(asked) for asked in apart] == pytest.approx([3.0, 3.0])


def test_readers_begin_each_epoch_with_the_trainer() -> None:
    [whole] = simulate([load([[(5.0, 0.0)]], readers=8, depth=16)], barrier=False)
    [parts] = simulate([load([[(5.0, 0.0)]], readers=8, depth=16, epochs=4)], barrier=False)
    assert whole[-1] == pytest.approx(STEPS + 5.0)
    assert parts[-1] == pytest.approx(STEPS + 4 * 5.0)


def test_a_rank_with_more_batches_stops_with_the_others() -> None:
    short = RankLoad([[[(1.0, 0.0)]]] * 3, [1.0] * 3, [1] * 3, 0, 0)
    assert [len(asked) for asked in simulate([load([[(1.0, 0.0)]]), short], barrier=True)] == [4, 4]
