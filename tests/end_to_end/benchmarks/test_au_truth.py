"""The benchmark of ``au_of_storage``: its truth agrees with closed forms, its cases compose, and its groups end."""

from __future__ import annotations

import signal
import subprocess
from argparse import Namespace
from pathlib import Path

import pytest

from benchmarks.au_truth import Case, cases, options, run
from benchmarks.harness.rounds import Unavailable
from benchmarks.harness.tables import Missing, Table
from benchmarks.utilisation.ideal import ideal_utilisation
from benchmarks.utilisation.limited_device import (
    MOST_UNKNOWN,
    QUICK_DATA,
    LimitedCase,
    known_range,
    limited_cases,
    limited_parts,
)
from benchmarks.utilisation.limited_group import block_device, limited_group, whole_disk
from benchmarks.utilisation.storage_run import SIMULATED
from dlio_torch.config.compose import compose
from dlio_torch.data.engines.delayed_reads import StorageDelay
from dlio_torch.errors import ConfigError

SIZES = [1000, 3000]
SAMPLE_BYTES = 264_000


@pytest.mark.parametrize(
    ("storage", "workers", "ranks", "known"),
    [
        (StorageDelay(0.002), 0, 1, 0.2),  # 1 ms of compute, 2 requests of 2 ms
        (StorageDelay(0.002), 1, 1, 0.25),
        (StorageDelay(0.002), 2, 1, 0.5),
        (StorageDelay(0.002), 4, 2, 1.0),
        (StorageDelay(0.0, 1e6), 0, 1, 0.2),  # 4 ms of transfer
        (StorageDelay(0.0, 1e6), 4, 1, 0.25),
        (StorageDelay(0.0, 1e6), 4, 2, 0.125),  # shared
        (StorageDelay(0.001, 0.0, 0.002), 1, 1, 0.25),  # the mean of the jitter counts
    ],
)
def test_the_truth_is_the_closed_form_where_there_is_one(
    storage: StorageDelay, workers: int, ranks: int, known: float
) -> None:
    assert ideal_utilisation(storage, SIZES, 1e-3, workers, ranks, steps=1000) == pytest.approx(known, rel=0.02)


def test_cases_compose() -> None:
    every = list(cases())
    assert {case.workers for case in every} == {0, 1, 2, 4}
    assert {case.ranks for case in every} == {1, 2}
    for case in (every[0], every[-1], Case(1.4, "npz", 2, 2)):
        config = compose([*SIMULATED.options, f"dataset={case.data}", *options(case)], environ={}).config
        assert config.loader.num_workers == case.workers
        assert config.compute.step_s == pytest.approx(case.step_ms / 1e3)
        assert config.trace.posix


def test_a_text_that_no_case_has_is_an_error() -> None:
    with pytest.raises(ConfigError, match="--only 'parquet' is in no case's name"):
        list(run(Namespace(only="parquet", quick=True, rounds=None, directory=None)))


@pytest.mark.parametrize("case", list(limited_cases()), ids=lambda case: case.name)
def test_cases_with_a_limited_device_have_one_truth(case: LimitedCase) -> None:
    slowest, fastest = known_range(case, SAMPLE_BYTES)
    transfer_s, step_s = SAMPLE_BYTES / case.bytes_per_s, case.step_ms / 1e3
    without_pauses = step_s / (max(step_s, transfer_s) if case.workers else step_s + transfer_s)
    assert slowest == pytest.approx(without_pauses, rel=0.02)
    assert slowest <= fastest <= min(1.0, step_s / transfer_s) * 1.02
    assert 100 * (fastest - slowest) <= MOST_UNKNOWN


def test_a_partition_has_the_limits_of_its_disk(tmp_path: Path) -> None:
    disk = tmp_path / "sys/devices/pci/block/sda"
    for folder, number in ((disk, "8:0"), (disk / "sda1", "8:1")):
        folder.mkdir(parents=True)
        (folder / "dev").write_text(f"{number}\n")
        link = tmp_path / "sys/dev/block" / number
        link.parent.mkdir(parents=True, exist_ok=True)
        link.symlink_to(folder)
    (disk / "sda1/partition").write_text("1\n")
    assert whole_disk("8:1", tmp_path) == whole_disk("8:0", tmp_path) == "8:0"
    with pytest.raises(Unavailable, match="does not show the block device 9:9"):
        whole_disk("9:9", tmp_path)


def test_a_file_system_without_a_device_has_no_limits() -> None:
    with pytest.raises(Unavailable, match="/proc lies on proc, which has no single block device"):
        block_device(Path("/proc"))


def test_without_a_delegated_group_the_reason_is_given_and_nothing_is_left(tmp_path: Path) -> None:
    with pytest.raises(Unavailable, match="this process has none"), limited_group("8:0", tmp_path):
        pytest.fail("there is no group")
    group = tmp_path / "sys/fs/cgroup/job"
    group.mkdir(parents=True)
    (tmp_path / "proc/self").mkdir(parents=True)
    (tmp_path / "proc/self/cgroup").write_text("0::/job\n")
    (tmp_path / "proc/self/mountinfo").write_text("31 23 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n")
    no_limit = pytest.raises(Unavailable, match=r"job/dlio_torch_benchmark_\d+/io.max: No such file")
    with no_limit, limited_group("8:0", tmp_path):
        pytest.fail("its children have no io.max")
    assert list(group.iterdir()) == list(group.parent.glob("dlio_torch*")) == []


def test_the_group_is_removed_with_its_processes_after_an_error(tmp_path: Path) -> None:
    made = []
    try:
        with limited_group(block_device(tmp_path)) as group:
            made.append(group.group.folder)
            process = subprocess.Popen([*group.prefix, "sleep", "100"])
            while str(process.pid) not in (made[0] / "cgroup.procs").read_text().split():
                assert process.poll() is None
            raise KeyboardInterrupt
    except Unavailable as error:
        pytest.skip(str(error))
    except KeyboardInterrupt:
        assert process.wait() == -signal.SIGKILL
    assert not made[0].exists()


def test_a_run_on_a_limited_device_has_its_row_and_verdict(tmp_path: Path) -> None:
    case = LimitedCase(50.0, "hdf5", 1, 2_500_000)
    parts = list(limited_parts(tmp_path, [case], 1, QUICK_DATA))
    if isinstance(parts[0], Missing):
        pytest.skip(parts[0].why)
    rows, verdict = (part.rows[0] for part in parts if isinstance(part, Table))
    assert (rows["format"], rows["workers"], rows["limit MB/s"]) == ("hdf5", 1, 2.5)
    assert None not in rows.values()
    assert verdict["cases"] == 1
