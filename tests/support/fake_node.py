"""Fake ``/sys`` and ``/proc`` of machines that tests do not run on, and a fake ``nvidia-smi`` with recorded answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

TOPO = """\
\t\x1b[4mGPU0\tGPU1\tGPU2\tGPU3\tGPU4\tGPU5\tGPU6\tGPU7\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\x1b[0m
GPU0\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t0-47,96-143\t0\t\tN/A
GPU1\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t0-47,96-143\t0\t\tN/A
GPU2\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tNV18\tNV18\t0-47,96-143\t0\t\tN/A
GPU3\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\tNV18\t0-47,96-143\t0\t\tN/A
GPU4\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\tNV18\t48-95,144-191\t1\t\tN/A
GPU5\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tNV18\tNV18\t48-95,144-191\t1\t\tN/A
GPU6\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t X \tNV18\t48-95,144-191\t1\t\tN/A
GPU7\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\tNV18\t X \t48-95,144-191\t1\t\tN/A

Legend:

  X    = Self
  NV#  = Connection traversing a bonded set of # NVLinks
"""
"""Eight H100 of two sockets; HazyResearch/ThunderKittens, issue 167."""

SYS_ONLY = """\
\tGPU0\tGPU1\tNIC0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID
GPU0\t X \tPHB\tSYS\t0-63\t0\t\tN/A
GPU1\tPHB\t X \tSYS\t0-63\t0\t\tN/A
NIC0\tSYS\tSYS\t X \t
"""
"""GPUs without NVLink; noonghunna/club-3090, issue 1229, with a network device as in others."""

MIG_LIST = """\
GPU 0: NVIDIA A100-SXM4-80GB (UUID: GPU-513536b6-7d19-9063-b049-1e69664bb298)
  MIG 1g.20gb     Device  0: (UUID: MIG-ce861fb0-a248-58ce-a9a8-f9adbc22a66a)
  MIG 1g.20gb     Device  1: (UUID: MIG-a45882f0-9215-5733-a0c1-49286ab31cb5)
  MIG 1g.20gb     Device  2: (UUID: MIG-f00d722c-f4e1-52c9-aa31-750441ae1bfe)
  MIG 1g.20gb     Device  3: (UUID: MIG-930574a9-d43a-5d2b-95da-3e68384c8d6b)
GPU 1: NVIDIA A100-SXM4-80GB (UUID: GPU-d8594bd4-0fc3-8595-e355-7c98138f3b95)
GPU 2: NVIDIA A100-SXM4-80GB (UUID: GPU-5e375e7e-b41f-155b-dcdc-534524c356fc)
GPU 3: NVIDIA A100-SXM4-80GB (UUID: GPU-69ec2344-ebac-b028-f88f-452abb3d7f11)
"""
"""GPUs, the first one in MIG mode; influxdata/telegraf, issue 5812."""


def write(folder: Path, files: Mapping[str, object]) -> None:
    """Write files with line ends, by path below ``folder``."""
    for name, content in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(f"{content}\n")


def link(folder: Path, name: str, target: str) -> None:
    """Make a symbolic link below ``folder`` to another path below it."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.symlink_to(folder / target)


def fake_nvidia_smi(folder: Path, monkeypatch: pytest.MonkeyPatch, answers: Mapping[str, str]) -> None:
    """The only program on ``PATH``: answers by first argument, without the part after ``=``; fails for others."""
    folder.mkdir(parents=True, exist_ok=True)
    cases = ""
    for number, (argument, answer) in enumerate(answers.items()):
        (folder / f"{number}.txt").write_text(answer)
        lines = f"while IFS= read -r line; do printf '%s\\n' \"$line\"; done < {folder}/{number}.txt"
        cases += f"{argument}) {lines} ;;\n"
    program = folder / "nvidia-smi"
    program.write_text(f'#!/bin/sh\ncase "${{1%%=*}}" in\n{cases}*) echo "Invalid argument" >&2; exit 2 ;;\nesac\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(folder))


def fake_cpus(root: Path, sockets: int, cores: int, threads: int = 2) -> None:
    """Processors as Linux numbers them, a NUMA node for each socket, and the affinity mask of all of them."""
    total = sockets * cores
    for cpu in range(total * threads):
        core, folder = cpu % total, f"sys/devices/system/cpu/cpu{cpu}"
        siblings = ",".join(str(core + thread * total) for thread in range(threads))
        place = {"physical_package_id": core // cores, "core_id": core % cores, "thread_siblings_list": siblings}
        write(root, {f"{folder}/topology/{name}": value for name, value in place.items()})
        write(root, {f"{folder}/cache/index3/{n}": v for n, v in _cache(core // cores, cores, total, threads).items()})
    for socket in range(sockets):
        cpus = ",".join(f"{socket * cores + n * total}-{(socket + 1) * cores - 1 + n * total}" for n in range(threads))
        node = f"sys/devices/system/node/node{socket}"
        distances = " ".join("10" if other == socket else "21" for other in range(sockets))
        memory = f"Node {socket} MemTotal:       1056 kB\nNode {socket} MemFree:        100 kB"
        write(root, {f"{node}/cpulist": cpus, f"{node}/distance": distances, f"{node}/meminfo": memory})
    write(root, {"sys/devices/system/cpu/online": f"0-{total * threads - 1}"})
    write(root, {"proc/self/status": f"Name:\tpython\nCpus_allowed_list:\t0-{total * threads - 1}"})


def _cache(socket: int, cores: int, total: int, threads: int) -> dict[str, object]:
    shared = ",".join(f"{socket * cores + n * total}-{(socket + 1) * cores - 1 + n * total}" for n in range(threads))
    return {"level": 3, "type": "Unified", "size": "32768K", "shared_cpu_list": shared}


def fake_pci(root: Path, address: str, **files: object) -> str:
    """A PCI device at a bridge, and its entry on the bus; returns its folder."""
    folder = f"sys/devices/pci0000:00/0000:00:01.0/{address}"
    write(root, {f"{folder}/{name}": value for name, value in files.items()})
    link(root, f"sys/bus/pci/devices/{address}", folder)
    return folder
