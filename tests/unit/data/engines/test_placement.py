"""Placement: readers run on the CPUs that ``loader.affinity`` gives them, as the kernel shows it."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from data_files import make_raw
from decoupled_data import data_of

from dlio_torch import cli
from dlio_torch.config.schema import ComputeConfig, Config, LoaderConfig, TrainConfig
from dlio_torch.data.dataset.map_dataset import CatchingDataset, SampleDataset
from dlio_torch.data.engines.batch_loader import BatchLoader, Source
from dlio_torch.data.engines.decoupled.batch_groups import DecoupledSource
from dlio_torch.data.engines.facts import Demand
from dlio_torch.data.engines.placement_plan import LocalRank, on_cores, on_nodes, plan_placement
from dlio_torch.data.order.sampler import BatchSampler
from dlio_torch.data.order.specification import SamplerSpec
from dlio_torch.data.workers.placement import UNPLACED, Placement, place_trainer
from dlio_torch.environment.topology.numa import CpuPlace, cpus_of_task
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.study.strategies.search.loader_axes import worker_resets
from dlio_torch.train.readers import pss_bytes, reader_figures, thread_cpus

USABLE = sorted(os.sched_getaffinity(0))
TWO = Placement(((USABLE[0],), (USABLE[-1],)))
"""Different CPUs for two readers, the same one on a machine with only one."""
LOADERS: dict[str, dict[str, Any]] = {
    "map, fork": {"num_workers": 2, "multiprocessing_context": "fork"},
    "map, forkserver": {"num_workers": 1, "multiprocessing_context": "forkserver"},
    "pipe, spawn": {"style": "pipe", "num_workers": 1, "multiprocessing_context": "spawn"},
    "stateful, fork": {"engine": "stateful", "num_workers": 2, "multiprocessing_context": "fork"},
    "nodes, fork": {"engine": "nodes", "num_workers": 2, "multiprocessing_context": "fork"},
    "nodes, spawn": {"engine": "nodes", "num_workers": 1, "multiprocessing_context": "spawn"},
    "decoupled, fork": {"engine": "decoupled", "num_workers": 2, "multiprocessing_context": "fork"},
    "map, threads": {"read_threads": 2},
    "nodes, threads": {"engine": "nodes", "read_threads": 2},
    "decoupled, threads": {"engine": "decoupled", "read_threads": 2, "prefetch_bytes": 1},
    "decoupled, pipe": {"engine": "decoupled", "style": "pipe", "read_threads": 2, "prefetch_bytes": 1},
}


def loader(folder: Path, placement: Placement, **options: Any) -> BatchLoader:
    source: Source
    if options.get("engine") == "decoupled":
        fmt, manifest = data_of(folder, "large")
        source = DecoupledSource(fmt, manifest, NULL)
    else:
        raw, manifest = make_raw(folder)
        source = CatchingDataset(SampleDataset(raw, manifest, NULL))
    sampler = BatchSampler(SamplerSpec(batch_size=2), num_samples=manifest.num_samples)
    return BatchLoader(LoaderConfig(timeout_s=60, **options), source, sampler, placement=placement)


@pytest.mark.parametrize("name", LOADERS)
def test_readers_run_on_their_cpus(name: str, tmp_path: Path) -> None:
    before = os.sched_getaffinity(0)
    batches = loader(tmp_path, TWO, **LOADERS[name])
    try:
        items = batches.epoch(0)
        for _ in range(len(batches) if "num_workers" in LOADERS[name] else 1):  # until each worker has begun
            next(items)
        workers = [Path(f"/proc/{worker.pid}") for worker in batches.workers()]
        threads = [Path(f"/proc/self/task/{thread.native_id}") for thread in batches.threads()]
        readers = workers or threads
        assert [cpus_of_task(reader) for reader in readers] == list(TWO.readers[: len(readers)])
        assert len(readers) == (LOADERS[name].get("num_workers") or LOADERS[name].get("read_threads"))
        tasks = [task for worker in workers for task in (worker / "task").iterdir()]
        assert {len(cpus_of_task(task)) for task in tasks} <= {0, 1}  # 0: a thread that has ended meanwhile
        figures = reader_figures(batches, thread_cpus(batches))
        assert figures is not None
        may_have_ended = LOADERS[name].get("engine") in ("decoupled", "nodes")  # their workers end with the last batch
        assert all(may_have_ended if size is None else size > 1 << 20 for size in figures.pss_bytes)
        assert (len(figures.pss_bytes), len(figures.threads)) == (len(workers), len(threads))
        assert figures.workers + figures.threads == tuple(str(cpus[0]) for cpus in TWO.readers[: len(readers)])
    finally:
        batches.close()
    assert os.sched_getaffinity(0) == before


def test_readers_without_a_placement_run_on_all_cpus(tmp_path: Path) -> None:
    batches = loader(tmp_path, UNPLACED, num_workers=1, multiprocessing_context="fork")
    next(batches.epoch(0))
    assert [cpus_of_task(Path(f"/proc/{worker.pid}")) for worker in batches.workers()] == [tuple(USABLE)]
    batches.close()


def test_the_trainer_gets_its_cpus_back() -> None:
    restore = place_trainer(Placement(trainer=(USABLE[-1],)))
    assert os.sched_getaffinity(0) == {USABLE[-1]}
    restore()
    assert os.sched_getaffinity(0) == set(USABLE)


def test_the_memory_of_a_process_that_is_not_there_is_not_known() -> None:
    assert pss_bytes(Path("/proc/999999999")) is None


# --- plans -----------------------------------------------------------------------------------------


def places(cores: int, siblings: int = 1, nodes: int = 1) -> list[CpuPlace]:
    """CPUs as Linux numbers them: the second hardware threads of all cores after the first ones."""
    return sorted(
        CpuPlace(core * nodes // cores, (core * nodes // cores, core), sibling, sibling * cores + core)
        for core in range(cores)
        for sibling in range(siblings)
    )


def demand(workers: int = 0, threads: int = 0) -> Demand:
    return Demand(workers, threads, 0, None, ())


def test_each_worker_gets_a_core_and_the_trainer_the_rest() -> None:
    plan = on_cores(places(8), demand(3), LocalRank())
    assert (plan.readers, plan.trainer, plan.notes) == (((0,), (1,), (2,)), (3, 4, 5, 6, 7), ())


def test_hardware_threads_of_a_core_are_shared_last() -> None:
    plan = on_cores(places(4, siblings=2), demand(5), LocalRank())
    assert (plan.readers, plan.trainer) == (((0,), (1,), (2,), (3,), (4,)), (5, 6, 7))


def test_ranks_share_no_cpu_and_stay_on_a_node() -> None:
    plans = [on_cores(places(8, siblings=2, nodes=2), demand(3), LocalRank(rank, rank, 4)) for rank in range(4)]
    readers = [cpu for plan in plans for cpus in plan.readers for cpu in cpus]
    assert len(set(readers)) == len(readers) == 12
    assert [plan.trainer for plan in plans] == [(9,), (11,), (13,), (15,)]
    assert {cpu % 8 < 4 for plan in plans[:2] for cpus in plan.readers for cpu in cpus} == {True}


def test_workers_with_threads_get_a_cpu_for_each_where_there_are_enough() -> None:
    assert on_cores(places(8), demand(2, 3), LocalRank()).readers == ((0, 1, 2), (3, 4, 5))
    assert on_cores(places(5), demand(2, 3), LocalRank()).readers == ((0, 1), (2, 3))
    busy = on_cores(places(8), demand(2, 3), LocalRank(), busy=4)
    assert (busy.readers, busy.trainer) == (((0, 1), (2, 3)), (4, 5, 6, 7))


def test_more_readers_than_cpus_share_them_in_turn() -> None:
    plan = on_cores(places(2), demand(5), LocalRank())
    assert [plan.of_reader(number) for number in range(5)] == [(0,), (1,), (0,), (1,), (0,)]
    assert plan.trainer == ()
    assert "5 readers share 2 CPUs round robin" in plan.notes[0]
    assert on_cores(places(2), demand(threads=2), LocalRank()) == Placement(((0,), (1,)))


def test_ranks_with_cpus_of_their_own_do_not_divide_them_again() -> None:
    ranks = [("a", "0-3"), ("a", "4-7"), ("b", "0-3"), ("b", "0-3")]
    assert LocalRank.of(1, 1, ranks) == LocalRank(1, 0, 1)
    assert LocalRank.of(3, 1, ranks) == LocalRank(1, 1, 2)


def test_one_cpu_serves_all_readers_of_all_ranks() -> None:
    plans = [on_cores(places(1), demand(2), LocalRank(rank, rank, 3)) for rank in range(3)]
    assert {(plan.readers, plan.trainer) for plan in plans} == {(((0,),), ())}


def test_a_node_of_the_gpu_or_of_the_local_rank() -> None:
    sets = {0: (0, 1), 1: (2, 3)}
    assert on_nodes(sets, LocalRank(0), 1) == Placement(((2, 3),))
    assert [on_nodes(sets, LocalRank(rank)).readers for rank in range(3)] == [((0, 1),), ((2, 3),), ((0, 1),)]
    unusable = on_nodes({0: (0, 1)}, LocalRank(5), 1)
    assert unusable.readers == ((0, 1),)
    assert unusable.notes == (
        "the process may use no CPU of NUMA node 1 of its GPU; the local rank chooses NUMA node 0",
    )
    assert on_nodes(sets, LocalRank(1), None, "no GPU is visible").notes == (
        "no GPU is visible; the local rank chooses NUMA node 1",
    )


@pytest.mark.parametrize("affinity", ["none", "numa", "cores"])
def test_plans_of_this_machine_use_its_cpus(affinity: Any) -> None:
    config = Config(loader=LoaderConfig(num_workers=1, affinity=affinity), compute=ComputeConfig(mode="spin"))
    plan = plan_placement(config, demand(1), LocalRank())
    assert set(plan.usable) == (set() if affinity == "none" else set(USABLE))
    assert {cpu for cpus in plan.readers for cpu in cpus} <= set(USABLE)


def test_the_gpu_of_the_rank_decides_on_a_machine_with_two_nodes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for node, cpu in ((0, "0"), (1, "1")):
        (tmp_path / f"devices/system/node/node{node}").mkdir(parents=True)
        (tmp_path / f"devices/system/node/node{node}/cpulist").write_text(cpu)
    for number, node in enumerate((1, 0)):
        gpu = tmp_path / f"bus/pci/devices/0000:0{number}:00.0"
        gpu.mkdir(parents=True)
        for name, text in (("class", "0x030200"), ("vendor", "0x10de"), ("numa_node", str(node))):
            (gpu / name).write_text(f"{text}\n")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: {0, 1})
    config = Config(loader=LoaderConfig(num_workers=1, affinity="numa"), train=TrainConfig(device="cuda"))
    plans = [plan_placement(config, demand(1), LocalRank(n, n, 2), tmp_path) for n in (0, 1)]
    assert [plan.readers for plan in plans] == [((1,),), ((0,),)]
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "1")
    assert plan_placement(config, demand(1), LocalRank(), tmp_path).readers == ((0,),)


# --- runs ------------------------------------------------------------------------------------------

RUN = ["recipe=minimal", "scale=tiny", "storage.limits=off", "cache=as_is", "output.progress=false", "output.dir=run"]


def test_a_run_reports_start_method_memory_and_cpus(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    options = ["loader.num_workers=1", "loader.affinity=cores", "loader.multiprocessing_context=fork"]
    assert cli.main([*RUN, *options]) == 0
    workers = json.loads(Path("run/summary.json").read_text())["workers"]
    assert (workers["start_method"], workers["count"], workers["placed"], workers["why"]) == ("fork", 1, True, {})
    assert workers["pss_bytes"]["max"] >= workers["pss_bytes"]["mean"] > 1 << 20
    (rank,) = workers["affinity"]
    assert (rank["rank"], rank["threads"], len(rank["workers"])) == (0, [], 1)
    if len(USABLE) < 3:  # the order of CPUs of larger machines depends on their cores
        assert (rank["workers"], rank["trainer"]) == ([str(USABLE[0])], str(USABLE[-1]))
    out = capsys.readouterr().out
    assert "1 by fork, " in out
    assert "workers on CPUs " in out
    assert cli.main(["report", "run"]) == 0
    page = Path("run/report.html").read_text()
    assert "1 by fork, " in page
    assert os.sched_getaffinity(0) == set(USABLE)


def test_a_run_without_workers_says_why_their_memory_is_not_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert cli.main([*RUN, "loader=main_process"]) == 0
    workers = json.loads(Path("run/summary.json").read_text())["workers"]
    assert workers["count"] == 0
    assert [workers[name] for name in ("start_method", "pss_bytes", "affinity")] == [None] * 3
    assert set(workers["why"]) == {"pss_bytes", "affinity"}


def test_a_loader_without_readers_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main([*RUN, "loader=main_process", "loader.affinity=cores", "--dry-run"]) == 2
    assert "loader.affinity=cores (command line) with loader.num_workers=0" in capsys.readouterr().err


def test_the_plan_says_that_readers_share_cpus(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    count = len(USABLE) + 1
    options = [f"loader.num_workers={count}", "loader.affinity=cores", f"dataset.root={tmp_path}", "--dry-run"]
    assert cli.main([*RUN, *options]) == 0
    assert f"loader.affinity=cores: {count} readers share " in capsys.readouterr().out


def test_a_search_tries_no_workers_with_a_recipe_that_places_them() -> None:
    config = Config(loader=LoaderConfig(num_workers=2, affinity="cores"))
    assert worker_resets(config, ()) == ("loader.affinity=none",)
    assert worker_resets(config, {"loader.affinity"}) == ()
