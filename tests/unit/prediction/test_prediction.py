"""The simulation of more ranks, where the answer is known: one thing is the limit, or nothing is."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlio_torch.analysis.advice.loader_replay import LoaderSetup
from dlio_torch.checkpoint.plan_cost import PlanCost
from dlio_torch.config.schema import CheckpointConfig, Config
from dlio_torch.config.schema_model import ModelConfig, ParallelConfig
from dlio_torch.config.schema_run import SystemConfig
from dlio_torch.errors import ConfigError
from dlio_torch.prediction.assumptions import assumptions
from dlio_torch.prediction.predicted_saves import Checkpoint, JobSaves
from dlio_torch.prediction.project import Question, Row, checked, project
from dlio_torch.prediction.rank_workload import RankWorkload

MB = 1_000_000


def workload(**changed: Any) -> RankWorkload:
    """Two samples a batch, 1 MB in one request, nothing but 100 ms of compute takes time."""
    one = np.array([0.0])
    plain = RankWorkload(
        samples=2.0, cpu=one, locked=0.0, blocked=one, slept=one, compute=np.array([0.1]), after=one, compute_ratio=1.0,
        serial=0.0, sending=0.0, setup=LoaderSetup("trainer"), bytes=MB, requests=1.0, in_order=False, opens=0.0,
        first_opens=0.0, header_requests=None, load_bytes=0.0, files=1, stored_bytes=0.0, epoch_samples=100_000,
        global_batch=0, ranks=1, barrier=False, allreduce_bytes=0.0, checkpoint=None,
        measured={"samples_per_s": 20.0, "au": 1.0, "wait_share": 0.0, "between_epochs": 0.0}, notes=(),
    )  # fmt: skip
    production = {"blocked": np.zeros_like(changed["cpu"])} if "cpu" in changed else {}
    spent = {"after": np.zeros_like(changed["compute"])} if "compute" in changed else {}
    return replace(plain, **production, **spent, **changed)


def system(**changed: Any) -> SystemConfig:
    return replace(SystemConfig(name="test", read_bytes_per_s=100.0 * MB), **changed)


def rows(work: RankWorkload, on: SystemConfig, *ranks: int, **asked: Any) -> list[Row]:
    return project(work, on, Question(ranks, **asked))


def near(value: float, relative: float = 0.02) -> Any:
    return pytest.approx(value, rel=relative)


def test_without_reads_ranks_do_not_feel_each_other() -> None:
    one, many, most = rows(workload(bytes=0.0, requests=0.0), system(), 1, 64, 2048)
    assert one.samples_per_s == near(20)
    assert (many.samples_per_s, most.samples_per_s) == (near(64 * 20), near(2048 * 20))
    assert [row.ideal_share for row in (one, many, most)] == [near(1)] * 3
    assert most.au == near(1)
    assert most.io_share == pytest.approx(0, abs=1e-6)
    assert {row.limited_by for row in (one, many, most)} == {"compute"}


def test_the_peak_of_the_storage_is_the_most_that_any_number_of_ranks_gets() -> None:
    few, many = rows(workload(), system(), 1, 256)
    assert few.samples_per_s == near(2 / 0.11)  # 10 ms for 1 MB, then 100 ms of compute
    assert many.samples_per_s == near(200)  # 100 batches of 1 MB a second
    assert many.io_share == near(1 - 100 * 0.1 / 256)
    assert many.au == near(100 * 0.1 / 256)
    assert many.limited_by == "storage targets"


def test_ranks_on_targets_of_their_own_share_the_peak_evenly() -> None:
    spread = system(targets=10, stripe_bytes=MB // 10, stripe_count=10)
    (row,) = rows(workload(), spread, 256)
    assert row.samples_per_s == near(200)


def test_a_file_on_few_targets_gets_no_more_than_they_give() -> None:
    (row,) = rows(workload(), system(targets=10, stripe_count=1), 256)
    assert row.samples_per_s == near(20)
    assert row.limited_by == "one storage target"
    (row,) = rows(workload(), system(targets=10, stripe_count=1), 256, files=1000)
    assert row.samples_per_s > 150


def test_more_targets_than_are_simulated_one_by_one_keep_the_peak() -> None:
    wide = system(targets=96, stripe_bytes=65536)
    (row,) = rows(workload(bytes=64.0 * MB), wide, 64)
    assert row.samples_per_s == near(2 * 100 / 64)


def test_metadata_servers_limit_small_files() -> None:
    work = workload(bytes=0.0, requests=0.0, opens=2.0)
    few, many = rows(work, system(metadata_ops_per_s=100.0, metadata_servers=2), 1, 256)
    assert few.samples_per_s == near(2 / 0.14)  # one server opens one file in 20 ms, then another
    assert many.samples_per_s == near(100)
    assert many.limited_by == "metadata servers"


def test_fewer_opens_than_batches_add_up() -> None:
    (row,) = rows(workload(bytes=0.0, requests=0.0, opens=0.25), system(metadata_ops_per_s=10.0), 1)
    assert row.samples_per_s == near(2 / (0.1 + 0.25 * 0.1))


def test_requests_per_second_limit_small_reads() -> None:
    (row,) = rows(workload(bytes=1000.0, requests=10.0), system(target_requests_per_s=500.0), 128)
    assert row.samples_per_s == near(100)


def test_reading_ahead_joins_requests_in_order() -> None:
    slow = system(target_requests_per_s=500.0)
    (row,) = rows(workload(requests=1000.0), slow, 128)
    assert row.samples_per_s == near(1)
    (row,) = rows(workload(requests=1000.0, in_order=True), slow, 128)
    assert row.samples_per_s == near(200)


def test_latency_is_waited_for_by_each_rank_alone() -> None:
    one, many = rows(workload(bytes=1.0, requests=10.0), system(request_latency_s=0.01), 1, 64)
    assert one.samples_per_s == near(10)
    assert many.samples_per_s == near(640)
    assert many.io_share == near(0.5)


def test_the_link_of_a_node_is_shared_by_its_ranks() -> None:
    linked = system(read_bytes_per_s=1e12, client_bytes_per_s=10.0 * MB, ranks_per_node=4)
    one, node, two = rows(workload(), linked, 1, 4, 8)
    assert one.samples_per_s == near(10)
    assert (node.nodes, node.samples_per_s) == (1, near(20))
    assert (two.nodes, two.samples_per_s) == (2, near(40))
    assert node.limited_by == "a node's network link"


def test_makers_share_the_cores_of_a_node() -> None:
    busy = workload(bytes=0.0, requests=0.0, cpu=np.array([0.1]), setup=LoaderSetup("workers", 1, 2))
    cores = system(cores_per_node=2, ranks_per_node=8)
    two, eight = rows(busy, cores, 2, 8)
    assert two.samples_per_s == near(40)
    assert eight.samples_per_s == near(40)
    assert eight.limited_by == "a node's cores"


def test_what_is_read_ahead_is_not_waited_for() -> None:
    ahead = LoaderSetup("workers", 1, 2)
    (hidden,) = rows(workload(cpu=np.array([0.08]), setup=ahead), system(), 1)
    (longer,) = rows(workload(cpu=np.array([0.15]), setup=ahead), system(), 1)
    (two,) = rows(workload(cpu=np.array([0.15]), setup=LoaderSetup("workers", 2, 4)), system(), 1)
    assert hidden.samples_per_s == near(20)
    assert longer.samples_per_s == near(2 / 0.16)
    assert longer.limited_by == "compute"
    assert two.samples_per_s == near(20)


def test_threads_under_one_lock_are_no_faster_than_one() -> None:
    threads = workload(bytes=0.0, requests=0.0, cpu=np.array([0.2]), setup=LoaderSetup("threads", 4, 4))
    (free,) = rows(threads, system(), 1)
    (locked,) = rows(replace(threads, locked=1.0), system(), 1)
    assert (free.samples_per_s, locked.samples_per_s) == (near(20), near(10))


def test_ranks_wait_for_the_slowest_where_gradients_are_reduced() -> None:
    uneven = workload(bytes=0.0, requests=0.0, compute=np.array([0.1, 0.3]))
    (alone,) = rows(uneven, system(), 64)
    (together,) = rows(replace(uneven, barrier=True), system(), 64)
    assert alone.samples_per_s == near(64 * 2 / 0.2, 0.05)
    assert together.samples_per_s == near(64 * 2 / 0.3)
    assert together.reduce_share == near(1 / 3, 0.1)


def test_the_exchange_of_gradients_is_a_ring() -> None:
    reduced = workload(bytes=0.0, requests=0.0, barrier=True, allreduce_bytes=10.0 * MB)
    linked = system(network_bytes_per_s=100.0 * MB, network_latency_s=0.001)
    one, four = rows(reduced, linked, 1, 4)
    assert one.samples_per_s == near(20)
    assert four.step_s == near(0.1 + 2 * 0.75 * 0.1 + 2 * 2 * 0.001)


@pytest.mark.parametrize(("everyone", "seconds"), [(False, 0.5), (True, 4.0)])
def test_checkpoints_are_spread_over_the_steps_between_them(everyone: bool, seconds: float) -> None:
    saves = workload(bytes=0.0, requests=0.0, checkpoint=Checkpoint(50.0 * MB, 10, 0, everyone))
    (row,) = rows(saves, system(), 8)
    assert row.checkpoint_s == near(seconds)
    assert row.step_s == near(0.1 + seconds / 10)
    assert row.io_share == near(seconds / 10 / (0.1 + seconds / 10))
    (faster,) = rows(saves, system(write_bytes_per_s=1000.0 * MB), 8)
    assert faster.checkpoint_s == near(seconds / 10)


def test_assumptions_of_a_described_checkpoint_say_what_was_measured_and_what_follows() -> None:
    model = ModelConfig(hidden_size=64, num_layers=4, num_heads=4, ffn_hidden_size=160, vocab_size=512)
    parallel, saved = ParallelConfig(data=4, fsdp="full"), CheckpointConfig(layout="dcp", every_steps=10)
    config = replace(Config(), model=model, parallel=parallel, checkpoint=saved)
    cost = PlanCost(ranks=4, tensors=9, local_s=0.5, global_s=2.0, plan_bytes=MB, metadata_bytes=1, sizes=())
    work = workload(checkpoint=Checkpoint(1.0, 10, 0, True, JobSaves(config, cost), flushed=True))
    sentences = assumptions(work, system(), Question((8,)), {}, 0.0)
    assert any("planning a checkpoint of 4 ranks takes 500 ms" in line for line in sentences["measured"])
    guessed = "\n".join(sentences["guessed"])
    for text in ("more data parallelism", "in proportion to the number of ranks", "durable writes"):
        assert text in guessed
    assert any("system.network_bytes_per_s" in line for line in sentences["not given"])
    (row,) = rows(work, system(), 8)
    assert row.checkpoint is not None
    assert row.checkpoint_s == row.checkpoint.seconds
    assert row.checkpoint.ranks == 8
    assert row.step_s == near(0.1 + row.checkpoint.seconds / 10)


def test_all_ranks_meet_at_the_begin_of_a_shared_file() -> None:
    opening = workload(bytes=0.0, requests=0.0, first_opens=1.0, header_requests=10.0)
    slow = system(targets=50, target_requests_per_s=100.0)
    few, many = rows(opening, slow, 8, 64)
    assert (few.begin_s, many.begin_s) == (near(0.8), near(6.4))
    (apart,) = rows(opening, slow, 64, files=10_000)
    assert apart.begin_s < many.begin_s / 8


def test_an_epoch_is_its_begin_and_its_steps() -> None:
    opening = workload(bytes=0.0, requests=0.0, first_opens=1.0)
    one, most = rows(opening, system(metadata_ops_per_s=1.0), 1, 64, samples=100)
    assert one.epoch_s == near(1 + 50 * 0.1)
    assert most.epoch_s is None  # 128 samples a step


def test_what_is_loaded_before_the_training_is_part_of_the_begin() -> None:
    loads = workload(bytes=0.0, requests=0.0, load_bytes=200.0 * MB)
    (row,) = rows(loads, system(), 4)
    assert row.begin_s == near(8)


def test_page_caches_take_load_off_the_storage() -> None:
    (half,) = rows(workload(), system(), 256, cached=0.5)
    (whole,) = rows(workload(), SystemConfig(), 256, cached=1.0)
    assert half.samples_per_s == near(400)
    assert whole.samples_per_s == near(256 * 20)


def test_a_batch_of_all_ranks_is_cut() -> None:
    cut = workload(global_batch=8, samples=8.0, bytes=8.0 * MB, cpu=np.array([0.8]))
    one, four = rows(cut, system(read_bytes_per_s=1e12), 1, 4)
    assert (one.step_s, four.step_s) == (near(0.9), near(0.3))
    assert four.samples_per_s == near(8 / 0.3)
    with pytest.raises(ConfigError, match="ranks=16"):
        rows(cut, system(), 16)


def test_storage_that_is_not_described_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"system.read_bytes_per_s=0 .*not described"):
        rows(workload(), SystemConfig(), 2)


def test_the_same_question_has_the_same_answer() -> None:
    uneven = workload(cpu=np.array([0.0, 0.02, 0.1]), setup=LoaderSetup("threads", 2, 3), barrier=True)
    assert rows(uneven, system(targets=7), 32) == rows(uneven, system(targets=7), 32)
    assert rows(uneven, system(targets=7), 32, seed=2) != rows(uneven, system(targets=7), 32)


def test_the_run_itself_is_simulated_with_its_own_storage() -> None:
    slept = workload(cpu=np.array([0.1]), slept=np.array([0.2]))
    # A batch is made in 300 ms, then there are 100 ms of compute: 5 samples/s, or 4 with a fifth of the time between.
    assert checked(replace(slept, measured={"samples_per_s": 4.0, "between_epochs": 0.2}), 1) == pytest.approx(
        0, abs=0.01
    )
    assert checked(replace(slept, measured={"samples_per_s": 2.5, "between_epochs": 0.0}), 1) == near(1.0)


def test_eight_thousand_ranks_take_few_events() -> None:
    (row,) = rows(workload(requests=1.0), system(targets=56), 8192)
    assert row.batches < 16 * 8192
    assert row.samples_per_s == near(200, 0.1)


def test_guesses_are_told_apart_until_they_are_set() -> None:
    guessing = system(guessed=["request_latency_s"], request_latency_s=0.001)
    found = assumptions(workload(), guessing, Question([1]), {"system.request_latency_s": "conf/x.yaml:3"}, 0.1)
    assert any("system.request_latency_s, conf/x.yaml:3" in line for line in found["guessed"])
    assert any("+10.0 %" in line for line in found["measured"])
    found = assumptions(workload(), guessing, Question([1]), {"system.request_latency_s": "command line"}, 0.1)
    assert any("system.request_latency_s" in line for line in found["described"])
    assert found["left out"]


LOADS = st.fixed_dictionaries(
    {
        "bytes": st.sampled_from([0.0, 1e4, 1e6, 3e7]),
        "requests": st.sampled_from([1.0, 7.0, 300.0]),
        "opens": st.sampled_from([0.0, 1.0, 16.0]),
        "barrier": st.booleans(),
        "setup": st.sampled_from([LoaderSetup("trainer"), LoaderSetup("workers", 2, 4), LoaderSetup("threads", 1, 1)]),
    }
)


@settings(max_examples=6, deadline=None)
@given(LOADS, st.sampled_from([1e8, 1e9]), st.floats(1.5, 8))
def test_more_ranks_and_faster_storage_never_give_less(load: dict[str, Any], rate: float, factor: float) -> None:
    work = workload(**load)
    slow = system(read_bytes_per_s=rate, target_requests_per_s=1e4, metadata_ops_per_s=1e3)
    fast = replace(
        slow, read_bytes_per_s=factor * rate, target_requests_per_s=factor * 1e4, metadata_ops_per_s=factor * 1e3
    )
    few, many = rows(work, slow, 2, 8)
    assert many.samples_per_s >= 0.98 * few.samples_per_s
    assert many.samples_per_s <= 1.02 * 4 * few.samples_per_s
    (faster,) = rows(work, fast, 8)
    assert faster.samples_per_s >= 0.98 * many.samples_per_s
    assert 0 <= many.io_share <= 1
    assert many.au is not None
    assert 0 <= many.au <= 1.000001
