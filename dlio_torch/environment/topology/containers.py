"""Container and virtual machine in which this process runs.

Sources: systemd, ``src/basic/virt.c`` (``detect_container``, ``dmi_vendor_table``); the files that container engines
leave in a container: ``/.dockerenv`` (Docker), ``/run/.containerenv`` (Podman), ``/.singularity.d`` (Singularity and
Apptainer); the variable that Kubernetes sets in each container.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from dlio_torch.environment.topology.kernel_files import text_of
from dlio_torch.environment.topology.numa import PROC, SYS

_FILES = ((".singularity.d", "singularity"), ("run/.containerenv", "podman"), (".dockerenv", "docker"))
_VARIABLES = (
    ("APPTAINER_CONTAINER", "apptainer"),
    ("SINGULARITY_CONTAINER", "singularity"),
    ("KUBERNETES_SERVICE_HOST", "kubernetes"),
)
_GROUPS = (
    ("/kubepods", "kubernetes"),
    ("/docker", "docker"),
    ("/libpod", "podman"),
    ("/lxc", "lxc"),
    ("cri-containerd", "kubernetes"),
)
"""Parts of names of control groups; only version 1, or a namespace of the host, shows them."""
_VENDORS = (
    ("KVM", "kvm"),
    ("OpenStack", "kvm"),
    ("KubeVirt", "kvm"),
    ("Amazon EC2", "amazon"),
    ("QEMU", "qemu"),
    ("VMware", "vmware"),
    ("VMW", "vmware"),
    ("innotek GmbH", "virtualbox"),
    ("VirtualBox", "virtualbox"),
    ("Xen", "xen"),
    ("Bochs", "bochs"),
    ("Parallels", "parallels"),
    ("BHYVE", "bhyve"),
    ("Hyper-V", "hyper-v"),
    ("Google Compute Engine", "google"),
    ("Apple Virtualization", "apple"),
)
"""Beginning of a name in the machine's description (DMI) -> virtual machine; the first match counts."""
_DESCRIPTIONS = ("product_name", "sys_vendor", "board_vendor", "bios_vendor", "product_version")


@dataclass(frozen=True)
class Virtualisation:
    """Container and virtual machine around this process.

    Attributes:
        container: ``docker``, ``podman``, ``kubernetes``, ``singularity``, ``apptainer``, ``lxc`` or another name;
            ``None`` if nothing shows one.
        machine: kind of virtual machine, ``unknown`` for a hypervisor without a name; ``None`` if nothing shows one.
        evidence: what shows them, by attribute.
        why: reason of each ``None``, by attribute.
    """

    container: str | None
    machine: str | None
    evidence: Mapping[str, str] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)


def virtualisation(sys: Path = SYS, proc: Path = PROC, environ: Mapping[str, str] = os.environ) -> Virtualisation:
    """Container and virtual machine, by files, variables, control groups and the machine's description.

    Args:
        sys: folder of the kernel's devices.
        proc: folder of the kernel's processes; container engines leave their files in the folder that contains it.
        environ: environment variables of this process.
    """
    container, machine = _container(proc, environ), _machine(sys, proc)
    evidence = {"container": container[1] if container else None, "machine": machine[1] if machine else None}
    why = {
        "container": "no file, variable or control group of a container engine is there",
        "machine": "the processor shows no hypervisor, and the machine's description names none",
    }
    return Virtualisation(
        container[0] if container else None,
        machine[0] if machine else None,
        {name: text for name, text in evidence.items() if text is not None},
        {name: reason for name, reason in why.items() if evidence[name] is None},
    )


def _container(proc: Path, environ: Mapping[str, str]) -> tuple[str, str] | None:
    """Name of the container engine and its evidence; the innermost engine comes first."""
    for variable, name in _VARIABLES:
        if environ.get(variable):
            return name, variable
    if (engine := environ.get("container")) is not None:  # LXC, systemd-nspawn and Podman set it
        return engine, "container"
    for file, name in _FILES:
        if (proc.parent / file).exists():
            return name, f"/{file}"
    groups = text_of(proc / "1/cgroup") or ""
    return next(((name, f"control group {part}") for part, name in _GROUPS if part in groups), None)


def _machine(sys: Path, proc: Path) -> tuple[str, str] | None:
    for file in _DESCRIPTIONS:
        text = text_of(sys / "class/dmi/id" / file) or ""
        if name := next((name for begin, name in _VENDORS if text.startswith(begin)), None):
            return name, f"{file}: {text}"
    if (kind := text_of(sys / "hypervisor/type")) is not None:
        return kind, "/sys/hypervisor/type"
    flags = (line for line in (text_of(proc / "cpuinfo") or "").splitlines() if line.startswith("flags"))
    if "hypervisor" in next(flags, "").split():
        return "unknown", "flag hypervisor of the processor"
    return None
