"""The page cache as a run asks for it: evicted or filled for real, checked, and said where it was not reached."""

from __future__ import annotations

import json
import mmap
import os
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import pytest
from figure_checks import check_figures
from ranks import Ended, run_ranks

from dlio_torch.analysis.step_metrics import summarise
from dlio_torch.config.compose import compose
from dlio_torch.config.schema import ComputeConfig, Config, DatasetConfig, FieldConfig
from dlio_torch.data.dataset.data_files import DataFiles
from dlio_torch.data.dataset.manifest import check_present, generated_manifests
from dlio_torch.dist.base import Communicator, SingleCommunicator
from dlio_torch.errors import PreconditionError, RunFailed
from dlio_torch.formats.core.registry import create
from dlio_torch.formats.numpy.options import NpzConfig
from dlio_torch.storage.cache_state import CacheKeeper, CachePreparation
from dlio_torch.storage.local.cache_process import CacheProcess, InProcess
from dlio_torch.storage.local.eviction import evict, mapped_by, read_through, why_cached
from dlio_torch.storage.local.page_cache import cached_share
from dlio_torch.train.steps import STEP_DTYPE, TRAIN

MIB = 1 << 20
T = TypeVar("T")


def evicted(path: Path, attempts: int = 20) -> bool:
    """As a run does it: the system may keep pages that are in use just then, so it is asked again."""
    for _ in range(attempts):
        if evict(path) is None and cached_share(path) == 0.0:
            return True
        time.sleep(0.2)
    return False


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder whose files can be evicted."""
    path = tmp_path / "trial"
    path.write_bytes(os.urandom(MIB))
    if not evicted(path):
        pytest.skip("this file system does not tell what is cached, or keeps everything in memory")
    path.unlink()
    return tmp_path


def keeper(folder: Path, state: Any, comm: Communicator | None = None, files: int = 3) -> CacheKeeper:
    """Of three binary files of 1 MiB, with an index each."""
    dataset = DatasetConfig(
        format="indexed_binary",
        root=str(folder),
        num_files=files,
        samples_per_file=4,
        fields=[FieldConfig("x", "uint8", [MIB // 4])],
    )
    config = Config(recipe="test", dataset=dataset)
    fmt = create(dataset, 1)
    manifests = generated_manifests(config, fmt)
    for number in range(files):
        path = manifests["train"].path(number)
        path.parent.mkdir(parents=True, exist_ok=True)
        if not path.exists():
            path.write_bytes(os.urandom(MIB))
            path.with_suffix(".idx").write_bytes(os.urandom(100_000))
    data = DataFiles(fmt, manifests.values(), check_present(manifests, fmt))
    return CacheKeeper(state, data, comm or SingleCommunicator())


def bins(folder: Path) -> list[Path]:
    return sorted(folder.rglob("*.bin"))


def test_cold_evicts_all_files_and_what_belongs_to_them(data: Path) -> None:
    found = keeper(data, "cold")
    assert (found.size.files, found.size.bytes, found.size.machines) == (3, 3 * (MIB + 100_000), 1)
    assert found.size.fits is True
    made = found.prepare(1)
    assert (made.epoch, made.reached, made.why, made.cached_share_before) == (1, True, None, 1.0)
    assert made.cached_share is not None
    assert made.cached_share < 0.03
    assert 1 <= made.attempts <= 5
    for path in [*bins(data), *data.rglob("*.idx")]:
        assert (cached_share(path) or 0.0) < 0.2
    assert found.prepared == [made]


def test_warm_reads_everything_once(data: Path) -> None:
    for path in (first := keeper(data, "as_is"), bins(data))[1]:
        assert evicted(path)
    looked = first.prepare(1)
    assert (looked.attempts, looked.reached, looked.why) == (0, None, None)
    assert looked.cached_share is not None
    assert looked.cached_share < 0.2
    made = keeper(data, "warm").prepare(1)
    assert (made.reached, made.cached_share, made.attempts) == (True, 1.0, 1)
    assert [cached_share(path) for path in bins(data)] == [1.0] * 3


def test_a_mapped_file_stays_and_who_maps_it_is_said(data: Path) -> None:
    found = keeper(data, "cold")
    with bins(data)[1].open("rb") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as held:
        assert sum(held[:: mmap.PAGESIZE]) >= 0  # every page is in use now
        assert mapped_by(bins(data)[1])
        made = found.prepare(1)
    assert made.reached is False
    assert made.attempts == 5
    assert made.cached_share is not None
    assert 0.25 < made.cached_share < 0.35
    assert made.why is not None
    assert f"{bins(data)[1].name} is mapped by " in made.why
    assert f"({os.getpid()})" in made.why
    assert found.prepare(2).reached is True


def test_dirty_pages_are_written_first(data: Path) -> None:
    path = data / "dirty"
    path.write_bytes(os.urandom(MIB))
    assert evicted(path)


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_an_ordinary_user_can_do_it(data: Path) -> None:
    path = data / "file"
    path.write_bytes(os.urandom(MIB))
    path.chmod(0o644)
    for folder in [data, *data.parents[:-1]]:
        if not folder.stat().st_mode & 0o001:
            folder.chmod(folder.stat().st_mode | 0o011)
    child = os.fork()
    if child == 0:  # pragma: no cover - another process
        code = 1
        try:
            os.setuid(65534)
            code = 0 if evicted(path) else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_memory_file_systems_cannot_be_evicted_and_say_so() -> None:
    folder = Path("/dev/shm") / f"dlio_torch-test-{os.getpid()}"
    if not os.access(folder.parent, os.W_OK):
        pytest.skip("no tmpfs here")
    folder.mkdir()
    try:
        made = keeper(folder, "cold").prepare(1)
        assert made.reached in (False, None)
        assert made.why is not None
        assert "tmpfs" in made.why
        assert why_cached(bins(folder)[0]) == "tmpfs keeps its files in memory"
    finally:
        for path in sorted(folder.rglob("*"), reverse=True):
            path.rmdir() if path.is_dir() else path.unlink()
        folder.rmdir()


def test_more_data_than_memory_cannot_be_warm(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("dlio_torch.storage.cache_state.cache_room", lambda: 2 * MIB)
    found = keeper(data, "warm")
    assert found.size.fits is False
    with pytest.raises(
        PreconditionError, match=r"cache\.state=warm is not possible: the data have 3\.29 MiB, .* room for only 2 MiB"
    ):
        found.prepare(1)


def test_what_cannot_be_told_is_not_called_reached(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "dlio_torch.storage.local.cache_process.cached_shares", lambda files, probes: [None] * len(files)
    )
    made = keeper(data, "cold").prepare(1)
    assert (made.cached_share, made.reached, made.attempts) == (None, None, 1)
    assert made.why is not None
    assert made.why.endswith("does not report which pages are in the page cache")


class Together(SingleCommunicator):
    """One of several ranks that are threads of this process."""

    def __init__(self, rank: int, world_size: int, shared: dict[str, Any]) -> None:
        super().__init__()
        self.rank, self.world_size, self._shared = rank, world_size, shared

    def barrier(self) -> None:
        self._shared["barrier"].wait(30)

    def gather_objects(self, value: Any, root: int = 0) -> Any:
        self._shared["values"][self.rank] = value
        self.barrier()
        found = list(self._shared["values"]) if self.rank == root else None
        self.barrier()
        return found

    def broadcast_object(self, value: Any, root: int = 0) -> Any:
        gathered = self.gather_objects(value)
        if self.rank == root:
            self._shared["sent"] = gathered[root]
        self.barrier()
        sent = self._shared["sent"]
        self.barrier()
        return sent


def on_ranks(world_size: int, do: Callable[[Communicator], T]) -> list[T]:
    shared = {"barrier": threading.Barrier(world_size), "values": [None] * world_size}
    with ThreadPoolExecutor(world_size) as pool:
        return list(pool.map(lambda rank: do(Together(rank, world_size, shared)), range(world_size)))


def test_ranks_share_the_files_and_agree(data: Path) -> None:
    keeper(data, "as_is", files=5)

    def prepare(comm: Communicator) -> tuple[CachePreparation, int, list[str]]:
        done: list[str] = []

        class Noted(InProcess):
            def run(self, task: str, files: Any) -> Any:
                done.extend(files if task == "evict" else [])
                return super().run(task, files)

        one = keeper(data, "cold", comm, files=5)
        one.use(Noted())
        return one.prepare(1), one.size.bytes, done

    found = on_ranks(2, prepare)
    assert {made.cached_share for made, _, _ in found} == {found[0][0].cached_share}
    assert all(made.reached for made, _, _ in found)
    assert {size for _, size, _ in found} == {5 * (MIB + 100_000)}
    parts = [{Path(path).name for path in done} for _, _, done in found]
    assert not parts[0] & parts[1]
    assert len(parts[0] | parts[1]) == 10


def test_a_helper_process_does_the_same(data: Path) -> None:
    path = data / "file"
    path.write_bytes(os.urandom(MIB))
    helper = CacheProcess()
    try:
        assert helper.run("measure", [str(path)]) == {
            "measured_bytes": MIB,
            "cached_bytes": MIB,
            "worst": [str(path), 1.0],
        }
        assert helper.run("evict", [str(path), str(data / "none")]) == [
            f"{data / 'none'} cannot be evicted: No such file or directory"
        ]
        if helper.run("measure", [str(path)])["cached_bytes"]:  # in use just then
            assert helper.run("evict", [str(path)]) == []
        assert helper.run("measure", [str(path)])["cached_bytes"] == 0
        assert helper.run("read", [str(path)]) == []
        assert cached_share(path) == 1.0
    finally:
        helper.close()
    with pytest.raises((RunFailed, ValueError)):
        helper.run("measure", [str(path)])


def test_what_cannot_be_read_is_said(tmp_path: Path) -> None:
    assert "No such file" in str(evict(tmp_path / "none"))
    assert "No such file" in str(read_through(tmp_path / "none"))
    assert mapped_by(tmp_path / "none") == []


def test_files_of_formats_that_have_several_are_all_named() -> None:
    fields = [FieldConfig("x", "uint8", [8]), FieldConfig("y", "uint8", [8])]
    fmt = create(DatasetConfig(format="npy", fields=fields, npz=NpzConfig()), 1)
    assert [path.name for path in fmt.files(Path("/d/case_0_x.npy"))] == ["case_0_x.npy", "case_0_y.npy"]


def test_the_time_of_preparing_counts_nowhere() -> None:
    ns = 1_000_000
    steps = np.zeros(4, STEP_DTYPE)
    steps["phase"], steps["epoch"], steps["step"] = TRAIN, [1, 1, 2, 2], [1, 2, 1, 2]
    # Steps of 10 ms; a pause of 100 ms between the epochs and 5 ms in which loaders start.
    steps["start_ns"], steps["fetch_ns"] = np.array([0, 10, 125, 135]) * ns, 10 * ns
    config = Config(compute=ComputeConfig(mode="none"))
    found = summarise([steps], config=config, extra={"pauses": [[(20 * ns, 120 * ns)]]})
    assert "pauses" not in found
    assert found["train"]["elapsed_s"] == pytest.approx(0.045)
    assert found["shares"]["between_epochs"] == pytest.approx(5 / 45)
    assert summarise([steps], config=config)["train"]["elapsed_s"] == pytest.approx(0.145)


# --- whole runs ---

RECIPE = """
description: a recipe of a test
defaults: [{dataset: npy}, {access: shuffled}, {compute: none}]
dataset:
  num_files: 16
  samples_per_file: 1
  fields: [{name: x, dtype: uint8, shape: [300000]}]
train: {epochs: 3, batch_size: 2, warmup_steps: 0}
"""


def run(folder: Path, *arguments: str) -> tuple[Ended, dict[str, Any]]:
    (folder / "mine.yaml").write_text(RECIPE)
    out = folder / f"run{len(list(folder.glob('run*')))}"
    command = ["-m", "dlio_torch", "recipe=./mine.yaml", "scale=paper", "trace.spans=false", f"output.dir={out}"]
    ended = run_ranks("single", 1, [*command, *arguments], cwd=folder, env={"COLUMNS": "500"})[0]
    assert ended.exit_code == 0, ended.stderr
    summary = json.loads((out / "summary.json").read_text())
    check_figures(summary)
    return ended, summary


def test_a_run_cold_in_each_epoch_reads_from_the_device_in_each(data: Path) -> None:
    ended, summary = run(data, "cache=cold", "cache.every_epoch=true", "trace.posix=true", "storage.limits=off")
    if summary["io"]["read_bytes"] is None:
        pytest.skip("this file system does not count what its device delivers")
    cache = summary["cache"]
    assert [one["reached"] for one in cache["prepared"]] == [True] * 3
    assert [one["epoch"] for one in cache["prepared"]] == [1, 2, 3]
    assert all(epoch["device_read_share"] > 0.7 for epoch in cache["epochs"])
    assert cache["warnings"] == []
    assert "cache: cold: 4.58 MiB evicted in " in ended.stderr
    assert "warning" not in ended.stdout
    # What was done to the cache is not among the recorded calls.
    assert summary["posix"]["io"]["classes"]["read"]["calls"] <= 4 * 16 * 3
    assert all(one["seconds"] > 0 for one in cache["prepared"])  # how long depends on the machine
    assert summary["storage"]["why"] == "storage.limits=off"


def test_a_run_from_memory_says_so_and_what_to_do(data: Path) -> None:
    ended, summary = run(data, "cache=cold")
    if summary["io"]["read_bytes"] is None:
        pytest.skip("this file system does not count what its device delivers")
    shares = [epoch["device_read_share"] for epoch in summary["cache"]["epochs"]]
    assert shares[0] > 0.7
    assert shares[1:] == [0, 0]
    assert len(summary["cache"]["warnings"]) == 1
    warning = summary["cache"]["warnings"][0]
    assert warning.startswith("the data (4.58 MiB) fit into the ")
    assert warning.endswith("set cache.every_epoch=true, dataset.direct_io=true, or use a data set larger than memory")
    assert f"warning: {warning}" in ended.stdout
    assert " from the device, epochs 2 to 3: 0.0 %" in ended.stdout


def test_by_default_generated_data_are_evicted_and_files_of_a_user_are_left_alone(data: Path) -> None:
    ended, summary = run(data, "train.epochs=1")
    cache = summary["cache"]
    assert (cache["state"], cache["goal"], len(cache["prepared"])) == ("auto", "cold", 1)
    assert cache["prepared"][0]["attempts"] >= 1
    assert "cache: cold: 4.58 MiB evicted in " in ended.stderr
    mine = next(folder for folder in (data / "data").iterdir() if folder.is_dir())
    ended, summary = run(data, "train.epochs=1", f"dataset.path={mine}")
    cache = summary["cache"]
    assert (cache["state"], cache["goal"]) == ("auto", "as_is")
    assert [one["attempts"] for one in cache["prepared"]] == [0]
    assert "evicted" not in ended.stderr


@pytest.mark.parametrize(
    ("arguments", "goal"),
    [
        ([], "cold"),
        (["dataset.path=/there"], "as_is"),
        (["stage.dir=/fast"], "as_is"),
        (["dataset=npy", "dataset.direct_io=true"], "as_is"),
        (["cache=warm"], "warm"),
        (["dataset.path=/there", "cache=cold"], "cold"),
    ],
)
def test_what_auto_means(arguments: list[str], goal: str) -> None:
    assert compose(["recipe=minimal", *arguments], environ={}).config.cache_goal == goal


def test_direct_reads_come_from_the_device_with_the_right_content(data: Path) -> None:
    _, summary = run(data, "dataset.direct_io=true", "verify=true", "train.epochs=2")
    assert summary["verified_samples"] == 32
    cache = summary["cache"]
    assert (cache["state"], cache["direct_io"], cache["warnings"]) == ("auto", True, [])
    if summary["io"]["read_bytes"] is not None:
        assert all(epoch["device_read_share"] > 0.7 for epoch in cache["epochs"])


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["cache=warm", "dataset.direct_io=true"], "direct reads do not use the page cache"),
        (
            ["cache=cold", "cache.every_epoch=true", "loader=in_memory"],
            "loader.in_memory reads the data once, before the first epoch",
        ),
    ],
)
def test_impossible_wishes_are_refused(
    arguments: list[str], line: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from dlio_torch import cli

    (tmp_path / "mine.yaml").write_text(RECIPE)
    monkeypatch.chdir(tmp_path)
    assert cli.main(["recipe=./mine.yaml", *arguments]) == 2
    assert line in capsys.readouterr().err
    assert sys.exc_info() == (None, None, None)
