"""Topology of machines that only their kernel's files and the answers of nvidia-smi describe."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from fake_node import MIG_LIST, SYS_ONLY, TOPO, fake_cpus, fake_nvidia_smi, fake_pci, link, write

from dlio_torch.environment.cpu_lists import parse_cpus
from dlio_torch.environment.nvidia_smi import GpuQueryFailed, MigInstance, mig_instances, nvlinks
from dlio_torch.environment.topology.gpu_devices import gpu_node, gpus
from dlio_torch.environment.topology.node_topology import Topology, describe_topology
from dlio_torch.environment.topology.numa import cpu_places, cpu_sets, numa_nodes
from dlio_torch.environment.topology.processors import last_level_cache
from dlio_torch.environment.topology.visible_gpus import VisibleGpu, visible_gpus

GIB = 1 << 30


def described(root: Path, **environ: str) -> Topology:
    return describe_topology(root / "sys", root / "proc", environ=environ)


def without_reason(value: Any, name: str = "", reasons: frozenset[str] = frozenset()) -> list[str]:
    """Names of values that are null without a reason beside them."""
    if isinstance(value, dict):
        known = frozenset(value.get("why") or ())
        return [bad for key, part in value.items() for bad in without_reason(part, key, known)]
    if isinstance(value, list):
        return [bad for part in value for bad in without_reason(part, name, reasons)]
    return [name] if value is None and name not in reasons else []


@pytest.fixture
def large(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two sockets, eight GPUs, the first with MIG instances, two NVMe drives in a RAID, and InfiniBand."""
    fake_cpus(tmp_path, sockets=2, cores=4)
    rows, listed = [], []
    for number in range(8):
        address = f"0000:{number + 1}b:00.0"
        fake_pci(tmp_path, address, **{"class": "0x030200", "vendor": "0x10de", "numa_node": number // 4})
        uuid = f"GPU-{number}{number}{number}36b6-7d19"
        rows.append(f"{number}, {uuid}, NVIDIA H100 80GB HBM3, 81559, 0000{address.upper()}, 1, 16, 5, 16")
        listed.append(f"GPU {number}: NVIDIA H100 80GB HBM3 (UUID: {uuid})")
    listed[1:1] = [f"  MIG 1g.10gb     Device  {part}: (UUID: MIG-{part}a)" for part in range(2)]
    answers = {"--query-gpu": "\n".join(rows) + "\n", "topo": TOPO, "-L": "\n".join(listed) + "\n"}
    fake_nvidia_smi(tmp_path / "bin", monkeypatch, answers)
    for number in range(2):
        pci = fake_pci(
            tmp_path,
            f"0000:c{number}:00.0",
            numa_node=number,
            current_link_speed="16.0 GT/s PCIe",
            current_link_width=4,
            max_link_speed="32.0 GT/s PCIe",
            max_link_width=4,
        )
        drive = f"{pci}/nvme/nvme{number}/nvme{number}n1"
        write(
            tmp_path, {f"{drive}/size": 2 * GIB // 512, f"{drive}/queue/rotational": 0, f"{drive}/dev": f"259:{number}"}
        )
        write(tmp_path, {f"{pci}/nvme/nvme{number}/model": "SAMSUNG MZQL23T8HCLS-00A07"})
        link(tmp_path, f"{drive}/device", f"{pci}/nvme/nvme{number}")
        link(tmp_path, f"sys/block/nvme{number}n1", drive)
        link(tmp_path, f"sys/devices/virtual/block/md0/slaves/nvme{number}n1", drive)
    write(tmp_path, {f"sys/devices/virtual/block/md0/{n}": v for n, v in (("size", 4 * GIB // 512), ("dev", "9:0"))})
    link(tmp_path, "sys/block/md0", "sys/devices/virtual/block/md0")
    write(tmp_path, {"sys/block/loop0/size": 8, "sys/block/loop0/dev": "7:0"})
    mounted = ["22 1 9:0 / / rw - ext4 /dev/md0 rw", "23 22 0:50 / /scratch rw - lustre 10.0.0.1@o2ib:/s rw"]
    write(tmp_path, {"proc/self/mountinfo": "\n".join(mounted)})
    port = "sys/class/infiniband/mlx5_0/ports/1"
    write(
        tmp_path,
        {f"{port}/rate": "400 Gb/sec (4X NDR)", f"{port}/state": "4: ACTIVE", f"{port}/link_layer": "InfiniBand"},
    )
    write(tmp_path, {"sys/class/infiniband/mlx5_0/device/numa_node": 1})
    nic = fake_pci(tmp_path, "0000:e0:00.0", numa_node=0)
    write(tmp_path, {f"{nic}/net/ens1/speed": 100000, f"{nic}/net/ens1/operstate": "up"})
    link(tmp_path, f"{nic}/net/ens1/device", nic)
    link(tmp_path, "sys/class/net/ens1", f"{nic}/net/ens1")
    write(tmp_path, {"sys/class/net/lo/speed": 0, "sys/class/net/bonding_masters": ""})
    write(
        tmp_path, {"proc/meminfo": "MemTotal: 2113000 kB\nMemAvailable: 2000000 kB\nShmem: 12 kB\nHugePages_Total: 8"}
    )
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nmodel name\t: Intel(R) Xeon(R) Platinum 8468"})
    pool = "sys/kernel/mm/hugepages/hugepages-2048kB"
    write(tmp_path, {f"{pool}/nr_hugepages": 8, f"{pool}/free_hugepages": 5})
    write(tmp_path, {"sys/kernel/mm/transparent_hugepage/enabled": "always [madvise] never"})
    return tmp_path


def test_a_node_of_two_sockets_with_eight_gpus(large: Path) -> None:
    topology = described(large)
    cpus = topology.processors
    assert (cpus.sockets, cpus.cores, cpus.threads, cpus.usable) == (2, 8, 16, 16)
    assert [(cache.level, cache.size_bytes, cache.count) for cache in cpus.caches] == [(3, 32 << 20, 2)]
    assert last_level_cache(large / "sys", large / "proc") == 32 << 20
    assert last_level_cache(large / "none", large / "proc") is None
    assert [(node.cpus, node.distances) for node in topology.numa_nodes] == [
        ((0, 1, 2, 3, 8, 9, 10, 11), (10, 21)),
        ((4, 5, 6, 7, 12, 13, 14, 15), (21, 10)),
    ]
    assert topology.numa_nodes[0].memory_bytes == 1056 * 1024
    assert [gpu.numa_node for gpu in topology.gpus] == [0, 0, 0, 0, 1, 1, 1, 1]
    gpu = topology.gpus[7]
    assert (gpu.name, gpu.memory_bytes, gpu.pci_address) == ("NVIDIA H100 80GB HBM3", 81559 << 20, "0000:8b:00.0")
    assert (gpu.link.generation, gpu.link.width, gpu.link.most_generation) == (1, 16, 5)
    assert gpu.link.bytes_per_s == pytest.approx(63e9, rel=0.01)
    assert gpu.nvlinks == dict.fromkeys(range(7), 18)
    assert topology.gpus[0].mig == (MigInstance("1g.10gb", "MIG-0a"), MigInstance("1g.10gb", "MIG-1a"))
    memory = topology.memory
    assert (memory.total_bytes, memory.shared_bytes) == (2113000 * 1024, 12 * 1024)
    assert [(pool.size_bytes, pool.count, pool.free) for pool in memory.huge_pages] == [(2 << 20, 8, 5)]
    assert memory.transparent_huge_pages == "madvise"


def test_storage_and_network_of_the_large_node(large: Path) -> None:
    topology = describe_topology(
        large / "sys", large / "proc", paths={"data": "/data", "scratch": "/scratch/x"}, environ={}
    )
    raid, first, second = topology.storage
    assert (raid.name, raid.parts, raid.mounts, raid.pci_address) == ("md0", ("nvme0n1", "nvme1n1"), ("/",), None)
    assert (first.model, first.size_bytes, first.rotational) == ("SAMSUNG MZQL23T8HCLS-00A07", 2 * GIB, False)
    assert [drive.numa_node for drive in (first, second)] == [0, 1]
    assert first.link is not None
    assert (first.link.generation, first.link.most_generation, first.link.width) == (4, 5, 4)
    assert topology.paths["data"].devices == ("md0", "nvme0n1", "nvme1n1")
    assert topology.paths["scratch"].file_system == "lustre"
    assert topology.paths["scratch"].why == {"devices": "the file system lustre shows no block device"}
    (port,), (nic,) = topology.infiniband, topology.interfaces
    assert (port.bytes_per_s, port.active, port.layer, port.numa_node) == (50e9, True, "InfiniBand", 1)
    assert (nic.name, nic.bytes_per_s, nic.state, nic.numa_node) == ("ens1", 12.5e9, "up", 0)


def test_the_record_is_json_and_explains_every_null(large: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    empty = tmp_path_factory.mktemp("empty")
    for root in (large, empty, Path("/")):
        record = described(root).to_record()
        assert json.loads(json.dumps(record)) == record
        assert without_reason(record) == []
    assert described(large).to_record()["numa_nodes"][0]["cpus"] == "0-3,8-11"


def test_cpus_of_nodes_and_cores(large: Path) -> None:
    sys_folder = large / "sys"
    assert cpu_sets([0, 5, 8, 13], sys_folder) == {0: (0, 8), 1: (5, 13)}
    assert [place.cpu for place in cpu_places(range(16), sys_folder)][:6] == [0, 8, 1, 9, 2, 10]
    assert [place.sibling for place in cpu_places([0, 8], sys_folder)] == [0, 1]


@pytest.mark.parametrize(
    ("variable", "visible"),
    [
        (None, [(0, "MIG-0a")]),
        ("", []),
        ("1,2", [(1, None), (2, None)]),
        ("3,1,0", [(0, "MIG-0a")]),
        ("2,-1,3", [(2, None)]),
        ("2,2", []),
        ("9", []),
        ("none", []),
        ("GPU-", []),
        ("GPU-99", []),
        ("GPU-333,GPU-44436b6-7d19", [(3, None), (4, None)]),
        ("MIG-1a", [(0, "MIG-1a")]),
        ("MIG-9", []),
    ],
)
def test_visible_devices(large: Path, variable: str | None, visible: list[tuple[int, str | None]]) -> None:
    environ = {} if variable is None else {"CUDA_VISIBLE_DEVICES": variable}
    devices = gpus(large / "sys", environ)
    assert visible_gpus(devices, environ) == [VisibleGpu(*device) for device in visible]
    numbers = {number: gpu.number for gpu in devices for number in gpu.visible or ()}
    assert [numbers[number] for number in sorted(numbers)] == [gpu for gpu, _ in visible]


def test_the_node_of_a_rank_follows_its_gpu(large: Path) -> None:
    environ = {"CUDA_VISIBLE_DEVICES": "7,2"}
    assert [gpu_node(rank, large / "sys", environ)[0] for rank in range(3)] == [1, 0, 1]
    assert gpu_node(0, large / "sys", {"CUDA_VISIBLE_DEVICES": ""}) == (None, "no GPU is visible")


def test_recorded_answers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_nvidia_smi(tmp_path, monkeypatch, {"topo": SYS_ONLY, "-L": MIG_LIST})
    assert nvlinks() == {0: {}, 1: {}}
    instances = mig_instances()
    assert [len(instances[gpu]) for gpu in range(4)] == [4, 0, 0, 0]
    assert instances[0][3] == MigInstance("1g.20gb", "MIG-930574a9-d43a-5d2b-95da-3e68384c8d6b")
    fake_nvidia_smi(tmp_path / "other", monkeypatch, {})
    with pytest.raises(GpuQueryFailed, match=r"nvidia-smi failed: .* status 2"):
        nvlinks()


def test_gpus_without_the_program_come_from_the_bus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    for address, kind, vendor in (("0000:01:00.0", "0x030000", "0x1a03"), ("0000:3b:00.0", "0x030200", "0x10de")):
        fake_pci(tmp_path, address, **{"class": kind, "vendor": vendor, "numa_node": -1, "max_link_width": 255})
    amd = {"class": "0x038000", "vendor": "0x1002", "numa_node": 3, "mem_info_vram_total": 68702699520}
    fake_pci(tmp_path, "0000:c1:00.0", **amd, product_name="AMD INSTINCT MI250", current_link_speed="16 GT/s")
    nvidia, instinct = gpus(tmp_path / "sys", {})
    assert (nvidia.vendor, nvidia.numa_node, nvidia.link.most_width, nvidia.visible) == ("NVIDIA", None, None, (0,))
    assert nvidia.why["name"] == "nvidia-smi is not installed"
    assert (instinct.name, instinct.memory_bytes, instinct.numa_node) == ("AMD INSTINCT MI250", 68702699520, 3)
    assert (instinct.link.generation, instinct.visible) == (4, None)
    assert instinct.why["visible"] == "CUDA does not use it"
    node, why = gpu_node(0, tmp_path / "sys", {})
    assert (node, why) == (None, "GPU 0: the kernel shows no NUMA node for it")


def test_an_arm_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A Grace Hopper chip: no model in cpuinfo, a NUMA node of memory only, memory of the GPU not told."""
    fake_cpus(tmp_path, sockets=1, cores=4, threads=1)
    write(tmp_path, {"sys/devices/system/node/node1/cpulist": "", "sys/devices/system/node/node1/distance": "80 10"})
    write(tmp_path, {"proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 2000.00\nCPU implementer\t: 0x41"})
    fake_pci(tmp_path, "0009:01:00.0", **{"class": "0x030200", "vendor": "0x10de", "numa_node": 0})
    row = "0, GPU-1, NVIDIA GH200 480GB, [N/A], 00000009:01:00.0, 4, 1, 5, 16\n"
    fake_nvidia_smi(tmp_path / "bin", monkeypatch, {"--query-gpu": row})
    topology = described(tmp_path)
    assert (topology.processors.model, topology.processors.cores, topology.processors.threads) == (None, 4, 4)
    assert [len(node.cpus) for node in topology.numa_nodes] == [4, 0]
    assert cpu_sets(range(4), tmp_path / "sys") == {0: (0, 1, 2, 3)}
    (gpu,) = topology.gpus
    assert (gpu.memory_bytes, gpu.numa_node, gpu.nvlinks, gpu.mig) == (None, 0, None, None)
    assert gpu.why["memory_bytes"] == "nvidia-smi shows [N/A] for its memory"
    assert "status 2" in gpu.why["nvlinks"]
    assert without_reason(topology.to_record()) == []


def test_a_container_with_a_quota_and_without_drives(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    fake_cpus(tmp_path, sockets=1, cores=4, threads=2)
    write(tmp_path, {"proc/self/status": "Cpus_allowed_list:\t2-5", "proc/self/cgroup": "0::/"})
    mounted = ["30 1 0:40 / / rw - overlay overlay rw", "31 30 0:41 / /sys/fs/cgroup rw - cgroup2 cgroup rw"]
    write(tmp_path, {"proc/self/mountinfo": "\n".join(mounted), "proc/meminfo": "MemTotal: 4096 kB"})
    write(tmp_path, {"sys/fs/cgroup/cpu.max": "150000 100000", "sys/fs/cgroup/memory.max": 1 << 20})
    write(tmp_path, {"sys/fs/cgroup/memory.stat": "anon 0", ".dockerenv": ""})
    topology = describe_topology(tmp_path / "sys", tmp_path / "proc", paths={"data": "/data"}, environ={})
    assert (topology.processors.allowed, topology.processors.quota, topology.processors.usable) == ("2-5", 1.5, 1.5)
    assert topology.memory.limit_bytes == 1 << 20
    assert topology.storage == topology.gpus == topology.infiniband == ()
    assert topology.why["storage"] == "/sys/block shows no device, as in some containers"
    assert topology.paths["data"].why == {"devices": "the file system overlay shows no block device"}
    assert topology.virtualisation.container == "docker"
    assert without_reason(topology.to_record()) == []


@pytest.mark.parametrize(
    ("files", "environ", "container", "machine"),
    [
        ({}, {}, None, None),
        ({"run/.containerenv": "engine"}, {}, "podman", None),
        ({".dockerenv": ""}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, "kubernetes", None),
        ({".singularity.d/env": ""}, {}, "singularity", None),
        ({}, {"APPTAINER_CONTAINER": "/x.sif", "SINGULARITY_CONTAINER": "/x.sif"}, "apptainer", None),
        ({}, {"container": "lxc"}, "lxc", None),
        ({"proc/1/cgroup": "12:cpu:/kubepods/burstable/pod1/2"}, {}, "kubernetes", None),
        ({"proc/1/cgroup": "0::/lxc/web"}, {}, "lxc", None),
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2"}, {}, None, "amazon"),
        ({"sys/class/dmi/id/sys_vendor": "QEMU", "sys/class/dmi/id/product_name": "KVM"}, {}, None, "kvm"),
        ({"sys/class/dmi/id/product_name": "PowerEdge XE9680"}, {}, None, None),
        ({"proc/cpuinfo": "flags\t\t: fpu hypervisor lahf_lm"}, {}, None, "unknown"),
        ({"sys/hypervisor/type": "xen"}, {}, None, "xen"),
    ],
)
def test_containers_and_virtual_machines(
    tmp_path: Path, files: dict[str, str], environ: dict[str, str], container: str | None, machine: str | None
) -> None:
    write(tmp_path, files)
    around = described(tmp_path, **environ).virtualisation
    assert (around.container, around.machine) == (container, machine)
    assert set(around.evidence) | set(around.why) == {"container", "machine"}


def test_a_machine_without_numa_has_one_node(tmp_path: Path) -> None:
    write(tmp_path, {"sys/devices/system/cpu/online": "0"})
    (node,) = numa_nodes(tmp_path / "sys")
    assert (node.number, node.cpus) == (0, (0,))
    assert cpu_sets([0], tmp_path / "sys") == {0: (0,)}


@pytest.mark.parametrize("text", ["a", "3-2-1"])
def test_a_text_that_is_no_list_of_cpus(text: str) -> None:
    with pytest.raises(ValueError, match="invalid literal"):
        parse_cpus(text)


def test_the_description_imports_no_torch() -> None:
    program = (
        "import sys\n"
        "from dlio_torch.environment.topology.node_topology import describe_topology\n"
        "describe_topology(paths={'data': '.'})\n"
        "assert not {'torch', 'numpy', 'pandas', 'h5py'} & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)
