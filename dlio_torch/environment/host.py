"""Identity of the host that a process runs on."""

from __future__ import annotations

import contextlib
import os
import socket
from pathlib import Path


def boot_id() -> str:
    """Identifier of the running kernel's boot, equal in all containers of a machine; empty if the kernel hides it."""
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    except OSError:
        return ""


def host_identity() -> tuple[str, str, str]:
    """Host name, boot and network namespace; equal for two processes only if they reach each other over loopback."""
    boot, network = boot_id(), ""
    with contextlib.suppress(OSError):
        network = os.readlink("/proc/self/ns/net")
    return (socket.gethostname(), boot, network) if boot and network else (socket.gethostname(), "", "")
