"""Start several real processes as ranks of one run: directly, or through a launcher.

``run_ranks`` sets the variables that torchrun or horovodrun would set and starts the ranks itself,
which is quick and shows each rank's own exit code and output.  ``run_launcher`` uses the launcher.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import optional_parts
import psutil
import pytest

Kind = Literal["single", "torch", "horovod", "mpi"]

REPO = Path(__file__).resolve().parents[2]
SUPPORT = REPO / "tests" / "support"
_PREFIXES = ("HOROVOD_", "OMPI_", "PMI_", "SLURM_", "TORCHELASTIC_", "MASTER_")
_NAMES = {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "GROUP_RANK", "GLOO_SOCKET_IFNAME"}


@dataclass(frozen=True)
class Ended:
    """What is left of a rank: exit code (negative: killed by that signal), output, and running children."""

    exit_code: int
    stdout: str
    stderr: str
    running: tuple[int, ...] = ()


def need_horovod() -> None:
    """Fail where Horovod is missing, or skip if DLIO_TORCH_ALLOW_NO_HOROVOD=1 allows that."""
    optional_parts.need("horovod")


def clean_environ() -> dict[str, str]:
    """The environment of this process without any launcher's variables, on one thread per process."""
    kept = {name: value for name, value in os.environ.items() if name not in _NAMES and not name.startswith(_PREFIXES)}
    path = os.pathsep.join(filter(None, [str(REPO), kept.get("PYTHONPATH", "")]))
    return kept | {"OMP_NUM_THREADS": "1", "PYTHONPATH": path}


def run_ranks(
    kind: Kind,
    world_size: int,
    arguments: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
    stops: int | None = None,
) -> list[Ended]:
    """Run ``python *arguments`` as ranks 0 to ``world_size - 1`` of one run and wait for all of them.

    Args:
        kind: the launcher whose variables are set: none, torchrun's, or horovodrun's (over Gloo); ``mpi``: they are
            started by mpiexec itself.
        world_size: number of processes.
        arguments: of the Python interpreter.
        cwd: working directory of the ranks.
        env: more environment variables.
        timeout_s: after it everything is killed and the test fails.
        stops: a rank that stops itself (SIGSTOP); it is let go on when all others have ended.

    Returns:
        How each rank ended, in the order of ranks.
    """
    if kind == "mpi":
        return _run_below_mpiexec(world_size, arguments, cwd, dict(env or {}), timeout_s)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        variables = stack.enter_context(_variables(kind, world_size))
        ranks: list[subprocess.Popen[bytes]] = []
        stack.callback(_kill, ranks)
        for rank, own in enumerate(variables):
            # Files, not pipes: a child of a rank may hold a pipe open after the rank has ended.
            out = stack.enter_context((folder / f"{rank}.out").open("wb"))
            err = stack.enter_context((folder / f"{rank}.err").open("wb"))
            ranks.append(
                subprocess.Popen(
                    [sys.executable, *map(str, arguments)],
                    env=clean_environ() | own | dict(env or {}),
                    cwd=cwd,
                    stdout=out,
                    stderr=err,
                    start_new_session=True,
                )
            )

        def output(rank: int, name: str) -> str:
            return (folder / f"{rank}.{name}").read_text(errors="replace")

        try:
            for rank, process in enumerate(ranks):
                if rank != stops:
                    process.wait(timeout_s)
            if stops is not None:
                ranks[stops].send_signal(signal.SIGCONT)
                ranks[stops].wait(timeout_s)
        except subprocess.TimeoutExpired:
            states = "\n".join(
                f"--- rank {rank}: {process.poll()}\n{output(rank, 'out')}{output(rank, 'err')}"
                for rank, process in enumerate(ranks)
            )
            pytest.fail(f"ranks still running after {timeout_s:g} s\n{states}")
        return [
            Ended(process.returncode, output(i, "out"), output(i, "err"), _running(process.pid))
            for i, process in enumerate(ranks)
        ]


def mpiexec(world_size: int) -> list[str]:
    """The mpiexec of the MPI that mpi4py loads here; skips where there is none."""
    optional_parts.need("mpi")
    return [str(optional_parts.mpiexec()), "-n", str(world_size)]


def _run_below_mpiexec(
    world_size: int, arguments: Sequence[str | Path], cwd: Path | None, env: dict[str, str], timeout_s: float
) -> list[Ended]:
    """As ``run_ranks``, below a real mpiexec; it is ended when the ranks have."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        said = stack.enter_context((folder / "mpiexec.out").open("w+b"))
        keeper = [sys.executable, "-S", "-E", str(Path(__file__).with_name("rank_keeper.py")), str(folder)]
        command = [*mpiexec(world_size), *keeper, sys.executable, *map(str, arguments)]
        launcher = subprocess.Popen(
            command, env=clean_environ() | env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=said, stderr=said,
            start_new_session=True,
        )  # fmt: skip
        stack.callback(_kill, [launcher])
        stack.callback(_kill_groups, folder)
        deadline = time.monotonic() + timeout_s
        while len(list(folder.glob("*.code"))) < world_size:
            if time.monotonic() > deadline:
                outputs = "\n".join(f"{file.name}: {file.read_text()}" for file in sorted(folder.iterdir()))
                pytest.fail(f"ranks still running after {timeout_s:g} s\n{outputs}")
            time.sleep(0.01)

        def kept(rank: int, suffix: str) -> str:
            return (folder / f"{rank}.{suffix}").read_text(errors="replace")

        return [
            Ended(int(kept(i, "code")), kept(i, "out"), kept(i, "err"), _running(int(kept(i, "pid"))))
            for i in range(world_size)
        ]


def _kill_groups(folder: Path) -> None:
    """Kill what ranks have left behind."""
    for file in folder.glob("*.pid"):
        with suppress(ProcessLookupError):
            os.killpg(int(file.read_text()), signal.SIGKILL)


def run_launcher(
    launcher: Literal["torchrun", "horovodrun", "mpiexec"],
    world_size: int,
    arguments: Sequence[str | Path],
    *,
    cwd: Path | None = None,
    env: Mapping[str, str] | None = None,
    timeout_s: float = 120.0,
) -> Ended:
    """Run ``python *arguments`` on ``world_size`` ranks of this host through the real launcher.

    Returns:
        How the launcher ended; its output holds that of the ranks.
    """
    given = [str(argument) for argument in arguments]
    if launcher == "torchrun":
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(world_size)]
        command += given
    elif launcher == "mpiexec":
        command = [*mpiexec(world_size), sys.executable, *given]
    else:
        command = [sys.executable, "-W", "ignore", "-m", "horovod.runner.launch", "-np", str(world_size), "--gloo"]
        command += ["--network-interfaces", "lo", sys.executable, *given]
    process = subprocess.Popen(
        command,
        env=clean_environ() | dict(env or {}),
        cwd=cwd,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill([process])
        out, err = process.communicate()
        pytest.fail(f"{launcher} still running after {timeout_s:g} s\n{out}{err}")
    return Ended(process.returncode, out, err)


@contextmanager
def _variables(kind: Kind, world_size: int) -> Iterator[list[dict[str, str]]]:
    """Each rank's environment variables, and the server that they need, where they need one."""
    if kind == "single":
        yield [{} for _ in range(world_size)]
    elif kind == "torch":
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        yield [
            {
                "RANK": str(rank),
                "WORLD_SIZE": str(world_size),
                "LOCAL_RANK": str(rank),
                "LOCAL_WORLD_SIZE": str(world_size),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
            }
            for rank in range(world_size)
        ]
    else:
        with _horovod_rendezvous(world_size) as port:
            yield [
                {
                    "HOROVOD_RANK": str(rank),
                    "HOROVOD_SIZE": str(world_size),
                    "HOROVOD_LOCAL_RANK": str(rank),
                    "HOROVOD_LOCAL_SIZE": str(world_size),
                    "HOROVOD_CROSS_RANK": "0",
                    "HOROVOD_CROSS_SIZE": "1",
                    "HOROVOD_HOSTNAME": "localhost",
                    "HOROVOD_GLOO_RENDEZVOUS_ADDR": "127.0.0.1",
                    "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
                    "HOROVOD_GLOO_IFACE": "lo",
                    "HOROVOD_CONTROLLER": "gloo",
                    "HOROVOD_CPU_OPERATIONS": "gloo",
                }
                for rank in range(world_size)
            ]


@contextmanager
def _horovod_rendezvous(world_size: int) -> Iterator[int]:
    need_horovod()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Horovod 0.28.1 predates some deprecations
        from horovod.runner.common.util.hosts import get_host_assignments, parse_hosts
        from horovod.runner.http.http_server import RendezvousServer
    server = RendezvousServer(0)
    port = server.start()
    server.init(get_host_assignments(parse_hosts(f"localhost:{world_size}"), world_size))
    try:
        yield port
    finally:
        server.stop()
        server._httpd.server_close()


def _running(group: int) -> tuple[int, ...]:
    """Processes of a group that still run after two seconds."""
    members = []
    for process in psutil.process_iter():
        with suppress(OSError, psutil.Error):
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                members.append(process)
    return tuple(process.pid for process in psutil.wait_procs(members, timeout=2.0)[1])


def _kill(processes: list[subprocess.Popen[bytes]] | list[subprocess.Popen[str]]) -> None:
    """Kill the processes, and the children that they left."""
    for process in processes:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
