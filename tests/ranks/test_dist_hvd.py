from __future__ import annotations

import pytest
from ranks import SUPPORT, need_horovod, run_ranks


@pytest.mark.horovod
@pytest.mark.parametrize("count", [1, 2, 15, 16, 1000, 2**20, 2**20 + 1, 60_000_001])
def test_a_gradient_is_cut_like_a_network(count: int) -> None:
    need_horovod()
    from dlio_torch.dist.hvd_reducer import layer_sizes

    sizes = layer_sizes(count)
    assert sum(sizes) == count
    assert min(sizes) >= 1
    assert max(sizes) <= 2**20
    assert len(sizes) == pytest.approx(2 * count / (2**20 + 2**10), abs=20)


@pytest.mark.ranks
@pytest.mark.horovod
def test_the_gradient_goes_to_horovod_as_an_application_s() -> None:
    ended = run_ranks("horovod", 2, [SUPPORT / "dist_program.py", "reduction", "100000"])
    assert [(rank.exit_code, rank.stdout) for rank in ended] == [(0, "done\n")] * 2, ended
