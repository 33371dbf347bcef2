"""Two nodes on one machine: network namespaces of different host names, joined by a pair of virtual devices.

They need util-linux' ``unshare`` and ``nsenter``, iproute2's ``ip``, and a kernel that lets this user make namespaces;
``need_namespaces`` skips where that is not so.  Nothing outside of the namespaces is touched, and they are gone with
the processes that hold them.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest
from ranks import Ended, clean_environ

ADDRESSES = ("10.77.0.1", "10.77.0.2")
HOSTS = ("one", "two")
_TOOLS = ("unshare", "nsenter", "ip", "hostname")


@dataclass(frozen=True)
class Node:
    """A node: the process that holds its namespaces."""

    number: int
    pid: int

    def command(self, *words: str) -> list[str]:
        """The words of a command on this node."""
        return ["nsenter", f"--target={self.pid}", "--user", "--net", "--uts", "--preserve-credentials", "--", *words]

    def run(self, *words: str) -> None:
        """Run a command on this node."""
        subprocess.run(self.command(*words), check=True, capture_output=True, timeout=20)


@contextmanager
def two_nodes() -> Iterator[tuple[Node, Node]]:
    """Two nodes, which reach each other at ADDRESSES through the devices ``one`` and ``two``."""
    with ExitStack() as stack:
        first = _hold(stack, 0, ["unshare", "--map-root-user", "--net", "--uts"])
        second = _hold(stack, 1, [*first.command(), "unshare", "--net", "--uts"])
        first.run("ip", "link", "add", HOSTS[0], "type", "veth", "peer", "name", HOSTS[1], "netns", str(second.pid))
        for node in (first, second):
            name = HOSTS[node.number]
            node.run("hostname", name)
            node.run("ip", "address", "add", f"{ADDRESSES[node.number]}/24", "dev", name)
            for device in ("lo", name):
                node.run("ip", "link", "set", device, "up")
        yield first, second


@contextmanager
def need_namespaces() -> Iterator[tuple[Node, Node]]:
    """As :func:`two_nodes`; skips, with the reason, where they cannot be made."""
    lacking = [tool for tool in _TOOLS if shutil.which(tool) is None]
    if lacking:
        pytest.skip(f"network namespaces need {', '.join(lacking)}")
    with ExitStack() as stack:
        try:
            nodes = stack.enter_context(two_nodes())
        except (OSError, subprocess.SubprocessError) as error:
            reason = getattr(error, "stderr", None) or str(error).encode()
            pytest.skip(f"this user cannot make network namespaces: {reason.decode(errors='replace').strip()}")
        yield nodes


def torchrun(
    nodes: Sequence[Node],
    ranks_per_node: int,
    arguments: Sequence[str | Path],
    *,
    cwd: Path,
    env: Sequence[Mapping[str, str]],
    timeout_s: float = 90.0,
) -> list[Ended]:
    """Run ``python *arguments`` under a torchrun on each node, which meet at the first.

    Args:
        nodes: where.
        ranks_per_node: ranks on each.
        arguments: of torchrun, the program first.
        cwd: working directory.
        env: more environment variables of each node.
        timeout_s: after it everything is killed and the test fails.
    """
    launcher = [sys.executable, "-m", "torch.distributed.run", f"--nnodes={len(nodes)}"]
    launcher += [f"--nproc-per-node={ranks_per_node}", f"--master-addr={ADDRESSES[0]}", "--master-port=29500"]
    started = []
    try:
        for node in nodes:
            own = {"GLOO_SOCKET_IFNAME": HOSTS[node.number], **env[node.number]}
            words = [*launcher, f"--node-rank={node.number}", *map(str, arguments)]
            with (cwd / f"node{node.number}.out").open("wb") as out, (cwd / f"node{node.number}.err").open("wb") as err:
                started.append(
                    subprocess.Popen(
                        node.command(*words),
                        env=clean_environ() | own,
                        cwd=cwd,
                        stdout=out,
                        stderr=err,
                        start_new_session=True,
                    )
                )
        for process in started:
            process.wait(timeout_s)
    finally:
        for process in started:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
    texts = [[(cwd / f"node{node.number}.{name}").read_text() for name in ("out", "err")] for node in nodes]
    return [Ended(process.returncode, *text) for process, text in zip(started, texts, strict=True)]


def _hold(stack: ExitStack, number: int, words: list[str]) -> Node:
    """A process that holds namespaces of its own until the end."""
    process = subprocess.Popen(
        [*words, sys.executable, "-c", "print(flush=True); import time; time.sleep(600)"], stdout=subprocess.PIPE
    )
    stack.callback(process.wait)
    stack.callback(process.kill)
    assert process.stdout is not None
    stack.callback(process.stdout.close)
    if not process.stdout.readline():  # it begins when its namespaces are made
        raise OSError(f"{' '.join(words)} ended with {process.wait()}")
    return Node(number, process.pid)
