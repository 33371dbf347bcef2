"""What the tool itself may cost: counts of modules, bytes and system calls that a change must not raise unseen."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

from benchmarks.own.index import INDEXES, existing, memory
from benchmarks.own.programs import EMPTY, heavy, look, probe

SAMPLES = 1_000_000
STEPS = 400
BEGUN = 100  # the first steps fill caches


@pytest.mark.ranks
@pytest.mark.parametrize(
    ("words", "modules", "megabytes"),
    [
        (["--help"], 160, 30),
        # Each family of formats brings three modules: its package, facts and options.
        (["ls"], 413, 45),
        (["explain", "loader.num_workers"], 413, 45),
        (["show", "recipe=cosmic_tagger"], 419, 45),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_verbs_that_only_talk_import_nothing_large(
    words: list[str], modules: int, megabytes: int, tmp_path: Path
) -> None:
    found = look(words, tmp_path)
    assert heavy(found["modules"]) == []
    assert len(found["modules"]) < modules
    assert found["peak_bytes"] < megabytes * 1e6


@pytest.mark.ranks
@pytest.mark.parametrize(("dataset", "large"), [("npz", {"numpy"}), ("hdf5", {"numpy", "h5py"}), ("csv", {"numpy"})])
def test_generating_takes_neither_torch_nor_pandas(dataset: str, large: set[str], tmp_path: Path) -> None:
    words = ["generate", "recipe=minimal", "scale=tiny", f"dataset={dataset}", "dataset.root=data"]
    found = look(words, tmp_path)
    assert len(list(tmp_path.rglob("train_*"))) > 0
    assert set(heavy(found["modules"])) == large
    assert len(found["modules"]) < 700
    assert found["peak_bytes"] < 80e6


@pytest.mark.parametrize(
    ("name", "kept", "most"),
    [
        ("manifest, generated", 0.01, 0.01),
        ("sampler, in order", 0.01, 0.1),
        ("sampler, shuffled", 5, 6),
        ("batches located", 1, 6),
        ("stream of files, shuffled", 17, 40),
    ],
)
def test_an_index_takes_a_few_bytes_a_sample(name: str, kept: float, most: float) -> None:
    INDEXES[name](256)  # what is imported or made once is not counted
    size, peak = memory(partial(INDEXES[name], SAMPLES))
    assert size < kept * SAMPLES
    assert peak < most * SAMPLES


def test_a_manifest_of_existing_files_takes_nothing_a_sample() -> None:
    names = [f"part_{number:05}.npz" for number in range(1000)]
    size, _ = memory(lambda: existing(names, [1000] * len(names)))
    assert size < 50 * len(names)


@pytest.fixture(scope="module")
def costs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What a run costs up to its first batch, and in steps in which nothing is done; spans are on."""
    return probe(["first", "memory", "calls"], BEGUN, STEPS, EMPTY, tmp_path_factory.mktemp("steps"))


@pytest.mark.ranks
def test_the_first_batch_is_there_before_pandas_is(costs: dict[str, Any]) -> None:
    # Batches in memory need no engine, so torchdata stays out, too.
    assert set(heavy(costs["first"]["modules"])) == {"torch", "numpy"}
    assert len(costs["first"]["modules"]) < 2000


@pytest.mark.ranks
def test_a_step_keeps_little_in_memory(costs: dict[str, Any]) -> None:
    found = costs["memory"]
    assert found["kept_bytes"] < 250 * STEPS  # the record of the step, and the number of its batch
    assert found["kept_blocks"] < 4 * STEPS
    assert found["peak_bytes"] - found["kept_bytes"] < 20_000  # of all that a step makes and drops


@pytest.mark.ranks
def test_a_step_in_which_nothing_is_done_makes_no_system_call(costs: dict[str, Any]) -> None:
    calls = costs["calls"]
    if calls is None:
        pytest.skip("strace is not installed, or may not attach to a process")
    # Memory that the records of steps grow into, and what is written to disk each second.
    assert sum(calls.values()) <= STEPS // 20, calls
