"""Cores and memory that control groups leave to a process: read below a made-up root."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from dlio_torch.environment import cores
from dlio_torch.environment.cgroups import own_groups
from dlio_torch.environment.cores import idle_core_s, physical_cores, quota_cores, usable_cores, whole_cores
from dlio_torch.environment.memory_limits import cache_room, memory_limit

MIB = 1 << 20
CGROUP = "sys/fs/cgroup"


def mount(point: str, kind: str, options: str = "rw", root: str = "/") -> str:
    return f"31 23 0:28 {root} /{point} rw,relatime shared:1 - {kind} {kind} {options}\n"


# What a machine shows of its groups: version 2 alone, version 1 alone, both; a container that sees its part alone.
V2 = {"proc/self/cgroup": "0::/job/step\n", "proc/self/mountinfo": mount(CGROUP, "cgroup2")}
V1 = {
    "proc/self/cgroup": "4:cpuacct,cpu:/job/step\n3:memory:/job\n1:name=systemd:/x:y\n",
    "proc/self/mountinfo": mount(CGROUP, "tmpfs")
    + mount(f"{CGROUP}/cpu,cpuacct", "cgroup", "rw,cpu,cpuacct")
    + mount(f"{CGROUP}/memory", "cgroup", "rw,memory"),
}
BOTH = {
    "proc/self/cgroup": V1["proc/self/cgroup"] + "0::/job/step\n",
    "proc/self/mountinfo": V1["proc/self/mountinfo"] + mount(f"{CGROUP}/unified", "cgroup2"),
}
OWN_PART = {
    "proc/self/cgroup": "4:cpu:/docker/abc/step\n",
    "proc/self/mountinfo": mount(f"{CGROUP}/cpu", "cgroup", "rw,cpu", root="/docker/abc"),
}
OUTSIDE = {"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": mount(CGROUP, "cgroup2")}


def machine(root: Path, *files: dict[str, str]) -> Path:
    for name, text in {name: text for some in files for name, text in some.items()}.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def v1_quota(folder: str, quota: int, period: int = 100_000) -> dict[str, str]:
    at = f"{CGROUP}/{folder}"
    return {f"{at}/cpu.cfs_quota_us": f"{quota}\n", f"{at}/cpu.cfs_period_us": f"{period}\n"}


@pytest.mark.parametrize(
    ("files", "quota"),
    [
        ([V2, {f"{CGROUP}/job/step/cpu.max": "150000 100000\n"}], 1.5),
        ([V2, {f"{CGROUP}/job/step/cpu.max": "max 100000\n"}], None),
        # A parent may grant less than the group itself.
        ([V2, {f"{CGROUP}/job/step/cpu.max": "400000 100000\n", f"{CGROUP}/job/cpu.max": "100000 50000\n"}], 2.0),
        ([V2, {f"{CGROUP}/job/cpu.max": "25000 100000\n", f"{CGROUP}/cpu.max": "max 100000\n"}], 0.25),
        ([V2, {f"{CGROUP}/other/cpu.max": "25000 100000\n"}], None),
        ([V2, {f"{CGROUP}/job/cpu.max": "nonsense\n"}], None),
        ([V2], None),
        ([V1, v1_quota("cpu,cpuacct/job/step", 300_000)], 3.0),
        ([V1, v1_quota("cpu,cpuacct/job/step", -1)], None),
        ([V1, v1_quota("cpu,cpuacct/job/step", -1), v1_quota("cpu,cpuacct/job", 120_000)], 1.2),
        ([V1, v1_quota("memory/job", 120_000)], None),
        ([BOTH, v1_quota("cpu,cpuacct/job", 200_000)], 2.0),
        ([OWN_PART, v1_quota("cpu/step", 50_000)], 0.5),
        ([OWN_PART, v1_quota("cpu", 70_000)], 0.7),
        ([OUTSIDE, {f"{CGROUP}/cpu.max": "100000 100000\n"}], 1.0),
        ([{"proc/self/mountinfo": mount(CGROUP, "cgroup2")}], None),
        ([{"proc/self/cgroup": "0::/\n", "proc/self/mountinfo": mount("", "ext4")}], None),
        ([], None),
    ],
)
def test_the_quota_is_the_least_of_all_groups_above(
    files: list[dict[str, str]], quota: float | None, tmp_path: Path
) -> None:
    assert quota_cores(machine(tmp_path, *files)) == quota


@pytest.mark.parametrize(
    ("affinity", "quota", "usable", "whole"),
    [
        (8, "max", 8, 8),
        (8, "1600000", 8, 8),  # more than the cores that it may run on
        (8, "250000", 2.5, 2),
        (8, "300000", 3, 3),
        (2, "300000", 2, 2),
        (2, "50000", 0.5, 1),
    ],
)
def test_usable_cores_are_those_of_affinity_and_quota(
    affinity: int, quota: str, usable: float, whole: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: set(range(affinity)))
    root = machine(tmp_path, V2, {f"{CGROUP}/job/cpu.max": f"{quota} 100000\n"})
    found = usable_cores(root)
    assert (found, type(found)) == (usable, type(usable))
    monkeypatch.setattr(cores, "usable_cores", lambda: found)
    assert whole_cores() == whole


CPUS = "cpu  9 9 9 999 9 0 0 0 0 0\ncpu0 1 2 3 400 50 6 7 8 0 0\ncpu1 1 2 3 100 0 6 7 8 0 0\nintr 5\n"


@pytest.mark.parametrize(
    ("cpus", "stat", "seconds"),
    [({0}, CPUS, 450), ({0, 1}, CPUS, 550), ({0, 2}, CPUS, None), ({0}, "cpu0 1 2\n", None), ({0}, None, None)],
)
def test_idle_time_is_that_of_the_cores_that_may_be_used(
    cpus: set[int], stat: str | None, seconds: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cpus)
    root = machine(tmp_path, {} if stat is None else {"proc/stat": stat})
    assert idle_core_s(root) == (None if seconds is None else seconds / os.sysconf("SC_CLK_TCK"))


@pytest.mark.parametrize(("cpus", "cores"), [({0, 1, 2, 3}, 2), ({0, 2}, 1), ({0, 1}, 2), ({3, 9}, None)])
def test_threads_of_one_core_count_once(
    cpus: set[int], cores: int | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: cpus)
    told = {f"sys/devices/system/cpu/cpu{n}/topology/thread_siblings_list": f"{n % 2},{n % 2 + 2}\n" for n in range(4)}
    assert physical_cores(machine(tmp_path, told)) == cores


def test_the_groups_of_this_machine_exist() -> None:
    for controller in ("cpu", "memory"):
        for group in own_groups(controller):
            assert (group.folder / "cgroup.procs").is_file(), group


@pytest.mark.parametrize(
    ("files", "room", "limit"),
    [
        ([{"proc/meminfo": "MemFree: 1 kB\nMemAvailable: 2048 kB\n"}], 2 * MIB, None),
        (
            [V2, {"proc/meminfo": "MemAvailable: 9999 kB\n", f"{CGROUP}/job/step/memory.max": f"{3 * MIB}\n",
                  f"{CGROUP}/job/step/memory.stat": f"file 5\nanon {MIB}\n"}],
            2 * MIB, 3 * MIB,
        ),
        # Its parent grants less, to more processes.
        (
            [V2, {f"{CGROUP}/job/step/memory.max": f"{3 * MIB}\n", f"{CGROUP}/job/step/memory.stat": f"anon {MIB}\n",
                  f"{CGROUP}/job/memory.max": f"{4 * MIB}\n", f"{CGROUP}/job/memory.stat": f"anon {3 * MIB}\n"}],
            MIB, 3 * MIB,
        ),
        (
            [V2, {"proc/meminfo": "MemAvailable: 2048 kB\n", f"{CGROUP}/job/step/memory.max": "max\n"}],
            2 * MIB, None,
        ),
        (
            [V1, {f"{CGROUP}/memory/job/memory.limit_in_bytes": f"{3 * MIB}\n",
                  f"{CGROUP}/memory/job/memory.stat": f"total_rss {4 * MIB}\n"}],
            0, 3 * MIB,
        ),
        ([], None, None),
    ],
)  # fmt: skip
def test_room_is_what_is_available_below_all_limits(
    files: list[dict[str, str]], room: int | None, limit: int | None, tmp_path: Path
) -> None:
    root = machine(tmp_path, *files)
    assert (cache_room(root), memory_limit(root)) == (room, limit)
