"""The start of one rank of many: it looks at its share of the files only, and what rank 0 sends to all is small."""

from __future__ import annotations

import resource
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from data_files import RawFormat, config_of, run_threads

from benchmarks.starting import growth
from benchmarks.starting.alone import Alone
from benchmarks.starting.data import SMALLER, arguments, make
from benchmarks.starting.rank import main as start
from dlio_torch.config.compose import compose
from dlio_torch.data.dataset.data_files import DataFiles
from dlio_torch.data.dataset.generation import generate
from dlio_torch.data.dataset.manifest import check_present, existing_manifest, generated_manifests
from dlio_torch.dist.failure import rendezvous
from dlio_torch.errors import DataError, PreconditionError
from dlio_torch.iotrace.recorder.spans import NULL
from dlio_torch.storage.cache_state import CacheKeeper


class Looking(RawFormat):
    """Notes which files are looked for or into."""

    def __init__(self, *args: Any) -> None:
        super().__init__(*args)
        self.looked: list[str] = []
        self.inspected: list[str] = []

    def stored_size(self, path: str) -> int | None:
        self.looked.append(Path(path).name)
        return super().stored_size(path)

    def inspect(self, path: Path) -> Any:
        self.inspected.append(path.name)
        return super().inspect(path)


def looking(root: Path, files: int) -> tuple[Any, Any]:
    config = config_of(root, files, 2)
    return config, lambda: Looking(config.dataset, config.seed)


def test_ranks_look_for_their_share_of_the_files(tmp_path: Path) -> None:
    config, fmt = looking(tmp_path, 7)
    manifests = generated_manifests(config, fmt())
    with pytest.raises(PreconditionError, match=r"train_0000000\.\w+ does not exist \(7 of 7 files are missing\)"):
        run_threads(3, lambda comm: check_present(manifests, fmt(), comm))
    run_threads(3, lambda comm: generate(config, fmt(), comm, NULL))
    made = [fmt() for _ in range(3)]
    run_threads(3, lambda comm: check_present(manifests, made[comm.rank], comm))
    paths = [manifests["train"].path(number) for number in range(7)]
    assert [one.looked for one in made] == [[path.name for path in paths[rank::3]] for rank in range(3)]
    paths[4].unlink()
    paths[2].unlink()
    with pytest.raises(PreconditionError, match=r"train_0000002\.\w+ does not exist \(2 of 7 files are missing\)"):
        run_threads(3, lambda comm: check_present(manifests, fmt(), comm))


def test_ranks_look_for_what_is_to_be_written(tmp_path: Path) -> None:
    config, fmt = looking(tmp_path, 11)
    generate(config, fmt(), run_threads(1, lambda comm: comm)[0], NULL)
    manifest = generated_manifests(config, fmt())["train"]
    before = {number: manifest.path(number).read_bytes() for number in range(11)}
    for number in (1, 4, 5, 10):
        manifest.path(number).unlink()
    made = [fmt() for _ in range(3)]
    found = run_threads(3, lambda comm: generate(config, made[comm.rank], comm, NULL))
    assert {(one.written, one.reused) for one in found} == {(4, 7)}
    assert [len(one.looked) for one in made] == [4, 4, 3]
    assert {number: manifest.path(number).read_bytes() for number in range(11)} == before


def test_there_may_be_fewer_files_than_ranks(tmp_path: Path) -> None:
    config, fmt = looking(tmp_path / "made", 2)
    found = run_threads(3, lambda comm: generate(config, fmt(), comm, NULL))
    assert {one.written for one in found} == {2}
    manifests = generated_manifests(config, fmt())
    run_threads(3, lambda comm: check_present(manifests, fmt(), comm))
    folder = str(manifests["train"].path(0).parent)
    existing = replace(config, dataset=replace(config.dataset, path=folder))
    assert [one.num_files for one, _ in run_threads(3, lambda comm: existing_manifest(existing, fmt(), comm))] == [
        2
    ] * 3


def test_ranks_look_into_their_share_of_existing_files(tmp_path: Path) -> None:
    config, fmt = looking(tmp_path / "made", 7)
    generate(config, fmt(), run_threads(1, lambda comm: comm)[0], NULL)
    folder = generated_manifests(config, fmt())["train"].path(0).parent
    existing = replace(config, dataset=replace(config.dataset, path=str(folder)))
    made = [fmt() for _ in range(3)]
    found = run_threads(3, lambda comm: existing_manifest(existing, made[comm.rank], comm))
    assert sorted(len(one.inspected) for one in made) == [2, 2, 3]
    alone = existing_manifest(existing, fmt())
    for manifest, details in found:
        assert details == alone[1]
        assert manifest.counts() == [2] * 7
        assert [manifest.path(number) for number in range(7)] == [alone[0].path(number) for number in range(7)]
    damaged = alone[0].path(4)
    damaged.write_bytes(damaged.read_bytes()[:-1])
    with pytest.raises(DataError, match=damaged.name):
        run_threads(3, lambda comm: existing_manifest(existing, fmt(), comm))


def test_one_rank_of_many_starts_alone(tmp_path: Path) -> None:
    make("minimal", tmp_path / "data")
    words = [*arguments("minimal", tmp_path / "data"), f"output.root={tmp_path}"]
    for rank in (0, 7):
        found = start(time.perf_counter_ns(), rank, 8, tmp_path / "sent", words)
        assert (found["samples"], found["files"], found["share"]) == (512, 4, 64)
        assert found["batch_bytes"] > 0
        assert 0 < found["index_bytes"] <= found["index_peak_bytes"] < 100_000
        assert 0 < found["received_bytes"] < 10_000
    refused = start(time.perf_counter_ns(), 0, 129, tmp_path / "sent", words)
    assert "train.batch_size=4" in refused["error"]


def test_what_is_smaller_than_published_is_so_in_size_only(tmp_path: Path) -> None:
    for recipe, smaller in SMALLER.items():
        here = compose(arguments(recipe, tmp_path), environ={}).config.dataset
        published = compose([f"recipe={recipe}", "scale=paper"], environ={}).config.dataset
        assert (here.num_files, here.samples_per_file) == (published.num_files, published.samples_per_file)
        assert smaller.stored < published.samples_per_file


def test_the_sweep_keeps_the_share() -> None:
    assert [point.ranks for point in growth.with_ranks(64)] == [1, 8, 64]
    rows = list(growth.rows("ranks", growth.with_ranks(8), ["random blocks"]))
    assert [row["samples"] for row in rows] == [growth.SHARE, 8 * growth.SHARE]
    [fit] = growth.fits([{**row, "kept (KiB)": row["ranks"]} for row in rows])
    assert fit["kept: bytes a rank more"] == pytest.approx(1024)


def test_places_on_machines_take_some_bytes_a_rank(tmp_path: Path) -> None:
    config, fmt = looking(tmp_path, 1)
    files = DataFiles(fmt(), generated_manifests(config, fmt()).values(), 1)
    comm = Alone(0, 4096, tmp_path / "sent")
    keeper = CacheKeeper("as_is", files, comm)
    assert keeper.size.machines == 1
    assert comm.received_bytes < 9 * 4096
    comm.close()
    last = Alone(4095, 4096, tmp_path / "sent")
    assert CacheKeeper("as_is", files, last).size == keeper.size
    last.close()


def test_rank_0_may_open_a_connection_to_each_rank(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = [1024, 100_000]
    monkeypatch.setattr(resource, "getrlimit", lambda which: tuple(limits))
    monkeypatch.setattr(resource, "setrlimit", lambda which, pair: limits.__setitem__(0, pair[0]))
    rendezvous._allow_open(4)
    assert limits[0] == 1024
    rendezvous._allow_open(8192)
    assert limits[0] >= 8192
    with pytest.raises(OSError, match="rank 0 needs 200256 open files for 200000 ranks, and the hard limit is 100000"):
        rendezvous._allow_open(200_000)
